/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The congestion point of Quantized Congestion Notification: the rule of
 * schemes/qcn/kernel/qcn_algorithm.h, as packets arrive: what left the queue
 * last said how many it left there, and ingress counts those that have come
 * since. What goes to a source is a clone of the packet, which is recirculated,
 * cut to its headers and routed as any packet.
 */
#include "headers.p4"

struct scheme_metadata {
    @field_list(1) bit<1> is_feedback;	/* a feedback packet of this switch, before routing */
    @field_list(1) bit<16> feedback;	/* how a clone describes its original packet */
    @field_list(1) bit<8> feedback_bits;
}

#include "metadata.p4"
#include "signal.p4"

const bit<8> KEPT = 1;		/* the field list */
const bit<8> SWITCH_HOP_LIMIT = 64;
const bit<32> FEEDBACK_SESSION = 1;	/* the clone session of the recirculation port */

/* By egress port: packets that wait, and those that did not fit since one has left */
@name(".waiting") register<bit<32>>(PORTS) waiting_of;

struct qcn_settings {
    bit<32> buffer;		/* packets: what does not fit is not sampled */
    bit<32> equilibrium;	/* packets */
    bit<32> weight;
    bit<32> full_scale;		/* packets; never 0 */
    bit<64> inverse_scale;	/* 2^48 / full_scale */
    bit<8> bits;
    bit<32> min_sampling;	/* probabilities, of 2^32 */
    bit<64> sample_step;	/* by which it grows a packet of congestion, of 2^48 */
    bit<32> reflect;		/* of 2^32 */
    bit<32> reflect_step;	/* by which it grows a step of the quantizer, of 2^32; rounded up */
    bit<1> between_samples;
    bit<1> capped;
}

/* A feedback packet of the switch, addressed from the receiver of the data to their sender. */
control MakeFeedback(inout headers hdr, inout metadata meta,
                     inout standard_metadata_t standard_metadata)
{
    apply {
        bit<16> greater = hdr.udp.source_port;
        bit<16> protocol = (bit<16>)PROTOCOL_UDP;

        hdr.signal.type = SIGNAL_FEEDBACK;
        hdr.signal.flags = 0;
        hdr.signal.kind = SIGNAL_NONE;
        hdr.signal.unit = 0;
        hdr.signal.bits = 0;
        hdr.signal.hops = 0;
        hdr.signal.echo_hops = 0;
        hdr.signal.feedback = meta.scheme.feedback;
        hdr.signal.feedback_bits = meta.scheme.feedback_bits;
        hdr.signal.offset = 0;
        hdr.signal.window = 0;
        hdr.signal.echo_time = hdr.signal.time;
        hdr.signal.time = (bit<64>)standard_metadata.egress_global_timestamp * 1000;
        hdr.signal.signal_high = 0;
        hdr.signal.signal_low = 0;
        hdr.signal.echo_signal = 0;

        hdr.udp.source_port = hdr.udp.destination_port;
        hdr.udp.destination_port = greater;
        hdr.udp.bytes = UDP_BYTES + SIGNAL_BYTES;
        hdr.udp.checksum = 0;
        if (hdr.ipv4.isValid()) {
            bit<32> source = hdr.ipv4.source;
            hdr.ipv4.source = hdr.ipv4.destination;
            hdr.ipv4.destination = source;
            hdr.ipv4.words = 5;
            hdr.ipv4.ecn = ECN_NOT_CAPABLE;
            hdr.ipv4.bytes = IPV4_BYTES + UDP_BYTES + SIGNAL_BYTES;
            hdr.ipv4.identification = 0;
            hdr.ipv4.flags = 1;		/* don't fragment */
            hdr.ipv4.ttl = SWITCH_HOP_LIMIT + 1;	/* routing takes one */
            hdr.ipv4_options.setInvalid();
            hash(hdr.udp.checksum, HashAlgorithm.csum16, 16w0, {
                hdr.ipv4.source, hdr.ipv4.destination, protocol, hdr.udp.bytes, hdr.udp, hdr.signal
            }, 17w0x10000);
        } else {
            bit<128> source = hdr.ipv6.source;
            hdr.ipv6.source = hdr.ipv6.destination;
            hdr.ipv6.destination = source;
            hdr.ipv6.ecn = ECN_NOT_CAPABLE;
            hdr.ipv6.flow_label = 0;
            hdr.ipv6.bytes = UDP_BYTES + SIGNAL_BYTES;
            hdr.ipv6.protocol = PROTOCOL_UDP;
            hdr.ipv6.hop_limit = SWITCH_HOP_LIMIT + 1;
            hdr.extension[0].setInvalid();
            hdr.extension[1].setInvalid();
            hash(hdr.udp.checksum, HashAlgorithm.csum16, 16w0, {
                hdr.ipv6.source, hdr.ipv6.destination, protocol, hdr.udp.bytes, hdr.udp, hdr.signal
            }, 17w0x10000);
        }
        if (hdr.udp.checksum == 0)
            hdr.udp.checksum = 0xffff;
        meta.scheme.is_feedback = 1;
        recirculate_preserving_field_list(KEPT);
    }
}

/* A packet of data comes to its queue, which has room for it and in which `queue` packets wait. */
control CongestionPoint(inout headers hdr, inout metadata meta, in qcn_settings port,
                        in bit<32> index, in bit<32> queue)
{
    UpdateUdpChecksum() update_udp_checksum;

    /* by egress port, as the kernel's statistics of the same names */
    @name(".sampled") counter(PORTS, CounterType.packets) sampled;
    @name(".congested") counter(PORTS, CounterType.packets) congested;
    @name(".written") counter(PORTS, CounterType.packets) written;
    @name(".reflected") counter(PORTS, CounterType.packets) reflected;
    @name(".largest") register<bit<32>>(PORTS) largest_of;

    /* the queue that the last sample, or arrival, found: q_delta counts from here */
    @name(".last_packets") register<bit<32>>(PORTS) last_packets_of;

    apply {
        bit<32> length = queue;
        bit<32> last;
        bit<32> random_bits;
        bit<32> largest;
        bit<64> probability;
        bit<64> congestion;
        bit<64> steps;
        bit<64> quantized;
        bit<64> max_feedback;
        bit<64> packet_max_feedback;
        bool worse;
        bit<64> change;

        /* Fb = -(q_off + w q_delta): `congestion` is -Fb, or 0 where Fb is not negative */
        last_packets_of.read(last, index);
        if (port.capped == 1 && length > (port.equilibrium << 1))
            length = port.equilibrium << 1;
        length = length - port.equilibrium + port.weight * (queue - last);
        congestion = 0;
        if ((int<32>)length > 0)
            congestion = (bit<64>)length;
        steps = congestion;		/* what is in scale */
        if (steps > (bit<64>)port.full_scale)
            steps = (bit<64>)port.full_scale;

        probability = (bit<64>)port.min_sampling + ((steps * port.sample_step) >> 16);
        random(random_bits, 32w0, 32w0xffffffff);
        if ((bit<64>)random_bits >= probability) {
            if (port.between_samples == 0)
                last_packets_of.write(index, queue);
            return;
        }
        last_packets_of.write(index, queue);
        sampled.count(index);
        if (congestion == 0)
            return;
        congested.count(index);
        largest_of.read(largest, index);
        if (length > largest)
            largest_of.write(index, length);

        /* steps * max_feedback / full scale, rounded up; the inverse is rounded down, so it may be one more */
        max_feedback = (64w1 << port.bits) - 1;
        steps = steps * max_feedback;
        quantized = (steps * port.inverse_scale) >> 48;
        if (steps > quantized * (bit<64>)port.full_scale)
            quantized = quantized + 1;
        if (steps > quantized * (bit<64>)port.full_scale)
            quantized = quantized + 1;

        /* worse than what is there, perhaps of another quantizer? By the fraction of the largest value. */
        packet_max_feedback = 0xffff;
        if (hdr.signal.feedback_bits < 16)
            packet_max_feedback = (64w1 << hdr.signal.feedback_bits) - 1;
        worse = quantized * packet_max_feedback > (bit<64>)hdr.signal.feedback * max_feedback;
        if (hdr.signal.feedback_bits == 0)
            worse = true;
        if (!worse)
            return;
        change = (bit<64>)(~hdr.signal.feedback) + (bit<64>)(~(hdr.signal.feedback_bits ++ 8w0)) +
                 (bit<64>)(~(hdr.signal.flags ++ 8w0));
        hdr.signal.feedback = (bit<16>)quantized;
        hdr.signal.feedback_bits = port.bits;
        written.count(index);
        probability = (bit<64>)port.reflect + quantized * (bit<64>)port.reflect_step;
        random(random_bits, 32w0, 32w0xffffffff);
        if ((bit<64>)random_bits < probability) {
            hdr.signal.flags = hdr.signal.flags | SIGNAL_REFLECTED;
            meta.scheme.feedback = hdr.signal.feedback;
            meta.scheme.feedback_bits = hdr.signal.feedback_bits;
            clone_preserving_field_list(CloneType.I2E, FEEDBACK_SESSION, KEPT);
            reflected.count(index);
        }
        change = change + (bit<64>)hdr.signal.feedback + (bit<64>)(hdr.signal.feedback_bits ++ 8w0) +
                 (bit<64>)(hdr.signal.flags ++ 8w0);
        update_udp_checksum.apply(hdr, change);
    }
}

control SchemeIngress(inout headers hdr, inout metadata meta,
                      inout standard_metadata_t standard_metadata)
{
    CongestionPoint() congestion_point;
    qcn_settings port;

    /* feedback that found a route; the rest of `reflected` did not */
    @name(".routed") counter(1, CounterType.packets) routed;

    /* by egress port */
    @name(".unknown_version") counter(PORTS, CounterType.packets) unknown_version;
    @name(".too_short") counter(PORTS, CounterType.packets) too_short;
    @name(".malformed") counter(PORTS, CounterType.packets) malformed;

    @name(".settings") action settings(bit<32> buffer, bit<32> equilibrium, bit<32> weight,
                                       bit<32> full_scale, bit<64> inverse_scale, bit<8> bits,
                                       bit<32> min_sampling, bit<64> sample_step, bit<32> reflect,
                                       bit<32> reflect_step, bit<1> between_samples, bit<1> capped) {
        port.buffer = buffer;
        port.equilibrium = equilibrium;
        port.weight = weight;
        port.full_scale = full_scale;
        port.inverse_scale = inverse_scale;
        port.bits = bits;
        port.min_sampling = min_sampling;
        port.sample_step = sample_step;
        port.reflect = reflect;
        port.reflect_step = reflect_step;
        port.between_samples = between_samples;
        port.capped = capped;
    }

    /* any buffer, w = 2, q_eq = 25, 6 bits, sampled with 1 to 25 %, reflected with 0 to 100 % */
    @name(".qcn") table qcn {
        key = { standard_metadata.egress_spec : exact @name("port"); }
        actions = { settings; }
        default_action = settings(0xffffffff, 25, 2, 125, 0x1000000000000 / 125, 6,
                                  0x100000000 / 100, 24 * 0x1000000000000 / 12500, 0,
                                  0x100000000 / 63 + 1, 1, 0);
        size = PORTS;
    }

    apply {
        bit<32> index = (bit<32>)standard_metadata.egress_spec;
        bit<32> queue;
        bit<32> bytes = ETHERNET_BYTES;

        if (meta.scheme.is_feedback == 1) {
            routed.count(0);
            /* not in the pass before: simple_switch recirculates all of a packet that is cut */
            if (hdr.vlan[0].isValid())
                bytes = bytes + VLAN_BYTES;
            if (hdr.vlan[1].isValid())
                bytes = bytes + VLAN_BYTES;
            if (hdr.ipv4.isValid())
                bytes = bytes + (bit<32>)hdr.ipv4.bytes;
            else
                bytes = bytes + IPV6_BYTES + (bit<32>)hdr.ipv6.bytes;
            truncate(bytes);
        }
        /* what does not fit is counted, too: more than the buffer is as good as the buffer */
        waiting_of.read(queue, index);
        waiting_of.write(index, queue + 1);
        if (meta.form == FORM_NONE)
            return;
        qcn.apply();
        if (queue >= port.buffer)
            return;
        if (meta.form == FORM_UNKNOWN_VERSION)
            unknown_version.count(index);
        else if (meta.form == FORM_TOO_SHORT)
            too_short.count(index);
        else if (meta.form == FORM_MALFORMED)
            malformed.count(index);
        else if (meta.form == FORM_HEADER && hdr.signal.type == SIGNAL_DATA)
            congestion_point.apply(hdr, meta, port, index, queue);
    }
}

control SchemeEgress(inout headers hdr, inout metadata meta,
                     inout standard_metadata_t standard_metadata)
{
    MakeFeedback() make_feedback;

    apply {
        if (standard_metadata.instance_type == INSTANCE_INGRESS_CLONE)
            make_feedback.apply(hdr, meta, standard_metadata);
        else
            waiting_of.write((bit<32>)standard_metadata.egress_port,
                             (bit<32>)standard_metadata.deq_qdepth);
    }
}

#include "switch.p4"
