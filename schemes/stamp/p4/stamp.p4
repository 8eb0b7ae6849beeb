/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues that say how long they are, in one of a few bins: the rule of
 * schemes/stamp/kernel/stamp_algorithm.h. README.md has what differs.
 */
#include "headers.p4"

struct scheme_metadata {
}

#include "signal.p4"
#include "metadata.p4"

#define INVERSE(full) (0x10000000000000000 / (full))

/* The settings of a port, from the plan. */
struct stamp_settings {
    bit<32> threshold;
    bit<32> frame_bytes;	/* stands for a packet where a length is in bytes */
    bit<48> wire_time;		/* of 65536 bytes, ns */
    bit<1> at_enqueue;
    bit<1> count_itself;
    bit<1> middle;
    bit<1> reverse;
    bit<32> full_packets;
    bit<64> inverse_packets;	/* 2^64 / full, as the next ones */
    bit<32> full_bytes;
    bit<64> inverse_bytes;
    bit<32> full_ns;		/* 0: not known */
    bit<64> inverse_ns;
}

/* The bin of `length`, of 2^bits equal ones. */
control FindBin(in bit<8> bits, in bit<64> full, in bit<64> inverse, in bit<64> length,
                out bit<64> bin)
{
    apply {
        if (length >= full) {
            bin = (64w1 << bits) - 1;
        } else {
            /* length * 2^bits / full: the inverse is rounded down, so it may be one more */
            bin = (length * inverse) >> (8w64 - bits);
            if (full * (bin + 1) <= (length << bits))
                bin = bin + 1;
        }
    }
}

/* `length` in so many bits: the lower bound of its bin, or the middle of it. */
control Quantize(in bit<8> bits, in bit<64> full, in bit<64> inverse, in bit<1> middle,
                 inout bit<64> length)
{
    FindBin() find_bin;

    apply {
        bit<64> bin;
        bit<64> last_bin = (64w1 << bits) - 1;
        bit<64> last = full;

        if (length > full)
            length = full;
        if ((full >> bits) != 0) {		/* else bins are finer than a unit */
            find_bin.apply(bits, full, inverse, length, bin);
            length = (full * bin + last_bin) >> bits;
            if (middle == 1) {
                if (bin != last_bin)
                    last = ((full * (bin + 1) + last_bin) >> bits) - 1;
                length = length + ((last - length) >> 1);
            }
        }
    }
}

control SchemeIngress(inout headers hdr, inout metadata meta,
                      inout standard_metadata_t standard_metadata)
{
    apply {
    }
}

control SchemeEgress(inout headers hdr, inout metadata meta,
                     inout standard_metadata_t standard_metadata)
{
    Quantize() quantize;
    FindBin() find_bin;
    Fold() fold;
    FoldCompact() fold_compact;
    stamp_settings port;
    bit<64> full;
    bit<64> inverse;
    bit<64> length;

    /* by egress port, as the kernel's statistics of the same names */
    @name(".stamped") counter(PORTS, CounterType.packets) stamped;
    @name(".left_out") counter(PORTS, CounterType.packets) left_out;
    @name(".unknown_version") counter(PORTS, CounterType.packets) unknown_version;
    @name(".too_short") counter(PORTS, CounterType.packets) too_short;
    @name(".malformed") counter(PORTS, CounterType.packets) malformed;
    @name(".no_rate") counter(PORTS, CounterType.packets) no_rate;
    @name(".largest") register<bit<64>>(PORTS) largest;

    @name(".settings") action settings(bit<32> threshold, bit<32> frame_bytes, bit<48> wire_time,
                                       bit<1> at_enqueue, bit<1> count_itself, bit<1> middle,
                                       bit<1> reverse,
                                       bit<32> full_packets, bit<64> inverse_packets,
                                       bit<32> full_bytes, bit<64> inverse_bytes,
                                       bit<32> full_ns, bit<64> inverse_ns) {
        port.threshold = threshold;
        port.frame_bytes = frame_bytes;
        port.wire_time = wire_time;
        port.at_enqueue = at_enqueue;
        port.count_itself = count_itself;
        port.middle = middle;
        port.reverse = reverse;
        port.full_packets = full_packets;
        port.inverse_packets = inverse_packets;
        port.full_bytes = full_bytes;
        port.inverse_bytes = inverse_bytes;
        port.full_ns = full_ns;
        port.inverse_ns = inverse_ns;
    }

    @name(".stamp") table stamp {
        key = { standard_metadata.egress_port : exact @name("port"); }
        actions = { settings; }
        default_action = settings(65, 1514, 0, 0, 0, 0, 1, 200, INVERSE(200), 200 * 1514,
                                  INVERSE(200 * 1514), 0, 0);
        size = PORTS;
    }

    @name(".stands_for") action stands_for(bit<64> value) {
        length = value;
    }

    /* Other bins than equal ones: each a range of lengths, and what stands for it. */
    @name(".bins") table bins {
        key = {
            standard_metadata.egress_port : exact @name("port");
            hdr.signal.unit : exact @name("unit");
            hdr.signal.bits : exact @name("bits");
            length : range @name("length");
        }
        actions = { stands_for; @defaultonly NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    /* The queue's length in the packet's unit, and a full buffer's. */
    action measure_packets(bit<64> depth) {
        full = (bit<64>)port.full_packets;
        inverse = port.inverse_packets;
        length = depth + (bit<64>)port.count_itself;
    }

    action measure_bytes(bit<64> depth, bit<64> counted_bytes) {
        full = (bit<64>)port.full_bytes;
        inverse = port.inverse_bytes;
        length = depth * (bit<64>)port.frame_bytes + counted_bytes;
    }

    action measure_time_at_enqueue(bit<64> depth, bit<64> counted_bytes) {
        length = ((depth * (bit<64>)port.frame_bytes + counted_bytes) * (bit<64>)port.wire_time) >> 16;
    }

    action measure_time(bit<64> counted_bytes) {
        length = (bit<64>)standard_metadata.deq_timedelta * 1000 +
                 ((counted_bytes * (bit<64>)port.wire_time) >> 16);
    }

    apply {
        bit<32> index = (bit<32>)standard_metadata.egress_port;
        bit<64> depth;
        bit<64> counted_bytes = 0;
        bit<64> largest_length;
        bit<64> bin;
        bit<8> type = hdr.signal.type;
        bit<8> kind = hdr.signal.kind;
        bit<8> unit = hdr.signal.unit;
        bit<1> forward = 0;

        if (meta.form == FORM_COMPACT) {
            type = (bit<8>)hdr.compact.type;
            kind = (bit<8>)hdr.compact.kind;
            unit = (bit<8>)hdr.compact.unit;
            forward = hdr.compact.forward;
        } else if (meta.form != FORM_HEADER) {
            if (meta.form == FORM_UNKNOWN_VERSION)
                unknown_version.count(index);
            else if (meta.form == FORM_TOO_SHORT)
                too_short.count(index);
            else if (meta.form == FORM_MALFORMED)
                malformed.count(index);
            return;
        }
        stamp.apply();
        if (kind == SIGNAL_NONE || type == SIGNAL_FEEDBACK ||
            (type == SIGNAL_ACK && (port.reverse == 0 || forward == 1))) {
            left_out.count(index);
            return;
        }
        if (port.at_enqueue == 1)
            depth = (bit<64>)standard_metadata.enq_qdepth;
        else
            depth = (bit<64>)standard_metadata.deq_qdepth;
        if (port.count_itself == 1)
            counted_bytes = (bit<64>)standard_metadata.packet_length;
        if (kind == SIGNAL_IND) {
            length = 0;
            if (depth + (bit<64>)port.count_itself > (bit<64>)port.threshold)
                length = 1;
        } else {
            if (unit == SIGNAL_PACKETS) {
                measure_packets(depth);
            } else if (unit == SIGNAL_IN_BYTES) {
                measure_bytes(depth, counted_bytes);
            } else {
                full = (bit<64>)port.full_ns;
                inverse = port.inverse_ns;
                if (port.at_enqueue == 1)
                    measure_time_at_enqueue(depth, counted_bytes);
                else
                    measure_time(counted_bytes);
            }
            if (full == 0) {
                no_rate.count(index);
                return;
            }
            if (meta.form == FORM_COMPACT) {
                find_bin.apply((bit<8>)hdr.compact.bits_less_one + 1, full, inverse, length, bin);
                length = bin;
            } else if (kind == SIGNAL_VECTOR) {
                /* the length itself */
            } else if (!bins.apply().hit)
                quantize.apply(hdr.signal.bits, full, inverse, port.middle, length);
        }
        if (meta.form == FORM_COMPACT)
            fold_compact.apply(hdr, length);
        else
            fold.apply(hdr, length);
        stamped.count(index);
        largest.read(largest_length, index);
        if (length > largest_length)
            largest.write(index, length);
    }
}

#include "switch.p4"
