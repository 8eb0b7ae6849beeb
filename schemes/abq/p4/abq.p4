/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Active Buffer Queueing: the rule of schemes/abq/kernel/abq_algorithm.h, in
 * packets. While a port's output queue is long, the pure acknowledgements that
 * arrive on it go round and round through a parking port, each with a ticket, and
 * leave in the order of their tickets. README.md says what that costs.
 */
#include "headers.p4"

struct scheme_metadata {
    @field_list(1) bit<1> parked;
    @field_list(1) bit<1> leaves;
    @field_list(1) bit<1> ece;
    @field_list(1) bit<9> port;		/* that it arrived on */
    @field_list(1) bit<32> ticket;
    @field_list(1) bit<1> waited;	/* it might have left at its last turn, but for `awaited` */
    @field_list(1) bit<32> awaited;	/* the head then */
}

#include "acknowledgements.p4"
#include "step_marking.p4"

const bit<8> PARKED = 1;	/* the field list */
const bit<19> SMALLEST_X = 4;	/* "If X is less than the size of four [MTUs], X is set as zero" */

const bit<2> US = 0;		/* uncongested: acknowledgements pass */
const bit<2> CS = 1;		/* congested: they are held */
const bit<2> LCS = 2;		/* lightly congested: held, and released when the queue falls to X */

/* By port. Of the tickets that were given out, those before `head` have left. */
@name(".abq_state") register<bit<2>>(PORTS) state_of;
@name(".abq_x") register<bit<19>>(PORTS) x_of;
@name(".abq_head") register<bit<32>>(PORTS) head_of;
@name(".abq_tail") register<bit<32>>(PORTS) tail_of;
@name(".abq_released") register<bit<32>>(PORTS) released_of;	/* the first ticket that is still held */

control SchemeIngress(inout headers hdr, inout metadata meta,
                      inout standard_metadata_t standard_metadata)
{
    SetEce() set_ece;
    bit<9> parking_port;
    bit<32> hold_limit;

    /* by the port that they arrived on, as the kernel's statistics of the same names */
    @name(".holds") counter(PORTS, CounterType.packets) holds;
    @name(".released") counter(PORTS, CounterType.packets) released;
    @name(".released_with_ece") counter(PORTS, CounterType.packets) released_with_ece;
    @name(".corrected") counter(PORTS, CounterType.packets) corrected;
    @name(".overflow") counter(PORTS, CounterType.packets) overflow;

    @name(".parking") action parking(bit<9> port, bit<32> limit) {
        parking_port = port;
        hold_limit = limit;
    }

    @name(".abq_parking") table abq_parking {
        actions = { parking; }
        default_action = parking(510, 1000);
    }

    /* One more turn: routing comes after the last one, and has counted this one as a hop. */
    action park() {
        standard_metadata.egress_spec = parking_port;
        hdr.ipv4.ttl = hdr.ipv4.ttl + 1;
        hdr.ipv6.hop_limit = hdr.ipv6.hop_limit + 1;
    }

    apply {
        bit<32> index = (bit<32>)standard_metadata.ingress_port;
        bit<2> state;
        bit<32> head;
        bit<32> tail;
        bit<32> until;

        abq_parking.apply();
        if (meta.scheme.parked == 1) {
            index = (bit<32>)meta.scheme.port;
            if (meta.scheme.leaves == 0) {
                park();
                return;
            }
            meta.scheme.parked = 0;
            released.count(index);
            if (meta.scheme.ece == 1) {
                released_with_ece.count(index);
                if (hdr.tcp.ece == 0) {
                    set_ece.apply(hdr);
                    corrected.count(index);
                }
            }
            return;
        }
        /* pure acknowledgements, with whatever options */
        if (!hdr.tcp.isValid() || hdr.tcp.ack == 0 || hdr.tcp.syn == 1 || hdr.tcp.fin == 1 ||
            hdr.tcp.rst == 1 || meta.transport_bytes != ((bit<16>)hdr.tcp.words << 2))
            return;
        state_of.read(state, index);
        head_of.read(head, index);
        tail_of.read(tail, index);
        if (state == US && head == tail)
            return;
        meta.scheme.parked = 1;
        meta.scheme.leaves = 0;
        meta.scheme.ece = 0;
        meta.scheme.waited = 0;
        meta.scheme.port = standard_metadata.ingress_port;
        meta.scheme.ticket = tail;
        tail_of.write(index, tail + 1);
        holds.count(index);
        if (tail - head >= hold_limit) {
            released_of.read(until, index);
            if ((int<32>)(until - head) <= 0)
                released_of.write(index, head + 1);
            overflow.count(index);
        }
        park();
    }
}

control SchemeEgress(inout headers hdr, inout metadata meta,
                     inout standard_metadata_t standard_metadata)
{
    StepMarking(40) step_marking;
    bit<19> limit;
    bit<19> threshold;

    /* by egress port */
    @name(".releases") counter(PORTS, CounterType.packets) releases;
    @name(".entries_us") counter(PORTS, CounterType.packets) entries_us;
    @name(".entries_cs") counter(PORTS, CounterType.packets) entries_cs;
    @name(".entries_lcs") counter(PORTS, CounterType.packets) entries_lcs;

    @name(".hold_above") action hold_above(bit<19> packets, bit<19> buffer) {
        threshold = packets;
        limit = buffer;
    }

    @name(".abq") table abq {
        key = { standard_metadata.egress_port : exact @name("port"); }
        actions = { hold_above; }
        default_action = hold_above(20, 1000);
        size = PORTS;
    }

    apply {
        bit<32> index = (bit<32>)standard_metadata.egress_port;
        bit<19> queue = standard_metadata.deq_qdepth;
        bit<2> state;
        bit<19> x;
        bit<32> head;
        bit<32> tail;
        bit<32> until;

        if (meta.scheme.parked == 1) {
            /*
             * At the parking port. Whoever is released, or of an uncongested port, leaves
             * when it is the oldest; or, so that a lost ticket locks nothing up, when the
             * oldest has not come by in a whole turn.
             */
            bit<32> ticket = meta.scheme.ticket;

            index = (bit<32>)meta.scheme.port;
            state_of.read(state, index);
            head_of.read(head, index);
            released_of.read(until, index);
            if ((int<32>)(until - ticket) > 0)
                meta.scheme.ece = 1;
            if (meta.scheme.ece == 0 && state != US) {
                meta.scheme.waited = 0;
            } else if ((int<32>)(ticket - head) <= 0 ||
                       (meta.scheme.waited == 1 && meta.scheme.awaited == head)) {
                meta.scheme.leaves = 1;
                if ((int<32>)(ticket - head) >= 0)
                    head_of.write(index, ticket + 1);
            } else {
                meta.scheme.waited = 1;
                meta.scheme.awaited = head;
            }
            recirculate_preserving_field_list(PARKED);
            return;
        }
        step_marking.apply(hdr, standard_metadata);

        /* the output queue as the packet has left it */
        abq.apply();
        state_of.read(state, index);
        x_of.read(x, index);
        if (queue > threshold) {
            if (state != CS) {
                state_of.write(index, CS);
                entries_cs.count(index);
                x = 0;
                if (limit > threshold)
                    x = limit - threshold;
                if (x > threshold)
                    x = threshold;
                x_of.write(index, x);
            }
        } else if (state != US && queue <= x) {
            /* departure by departure, the queue meets each X: one step is enough */
            x = x >> 1;
            if (x < SMALLEST_X)
                x = 0;
            x_of.write(index, x);
            if (x == 0) {
                state_of.write(index, US);
                entries_us.count(index);
            } else if (state != LCS) {
                state_of.write(index, LCS);
                entries_lcs.count(index);
            }
            tail_of.read(tail, index);
            released_of.write(index, tail);
            releases.count(index);
        }
    }
}

#include "switch.p4"
