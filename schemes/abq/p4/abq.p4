/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Active Buffer Queueing: the rule of schemes/abq/kernel/abq_algorithm.h, in
 * packets. While a port's output queue is long, the pure acknowledgements that
 * arrive on it circulate through a recirculation port, each with a ticket. The
 * acknowledgements of a flow leave in the order of their arrival. README.md states
 * the cost.
 */
#include "headers.p4"

struct scheme_metadata {
    bit<19> threshold;		/* of the egress port */
    bit<19> limit;
    bit<32> count;			/* released ACKs at each X */
    @field_list(1) bit<1> held;
    @field_list(1) bit<1> passes;	/* its port was uncongested: it waits for those of its flow alone */
    @field_list(1) bit<1> leaves;
    @field_list(1) bit<1> ece;
    @field_list(1) bit<9> port;		/* that it arrived on */
    @field_list(1) bit<32> ticket;	/* of that port */
    @field_list(1) bit<16> flow;
    @field_list(1) bit<32> place;	/* in its flow */
    @field_list(1) bit<1> waited;	/* it might have left at its last turn, but for `awaited` */
    @field_list(1) bit<32> awaited;	/* the first of the flow then */
}

#include "acknowledgements.p4"
#include "step_marking.p4"

#define FLOWS 65536
const bit<8> HELD = 1;	/* the field list */
const bit<32> ALL = 0xffffffff;
const bit<19> SMALLEST_X = 4;	/* "If X is less than the size of four [MTUs], X is set as zero" */

const bit<2> US = 0;		/* uncongested: acknowledgements pass */
const bit<2> CS = 1;		/* congested: they are held */
const bit<2> LCS = 2;		/* lightly congested: held, and released when the queue falls to X */

/* By port */
@name(".abq_state") register<bit<2>>(PORTS) state_of;
@name(".abq_x") register<bit<19>>(PORTS) x_of;
@name(".abq_waiting") register<bit<19>>(PORTS) waiting_of;	/* and what did not fit since one has left */
@name(".abq_tail") register<bit<32>>(PORTS) tail_of;	/* the next ticket */
@name(".abq_released") register<bit<32>>(PORTS) released_of;	/* the first ticket that is still held */
@name(".entries_cs") counter(PORTS, CounterType.packets) entries_cs;

/* By flow, places: of those that are held, and of the next */
@name(".abq_first") register<bit<32>>(FLOWS) first_of;
@name(".abq_next") register<bit<32>>(FLOWS) next_of;

/* More packets than the threshold wait at a port. */
control EnterCongestion(in bit<32> index, in bit<19> threshold, in bit<19> limit)
{
    apply {
        bit<2> state;
        bit<19> x = 0;

        state_of.read(state, index);
        if (state == CS)
            return;
        state_of.write(index, CS);
        entries_cs.count(index);
        if (limit > threshold)
            x = limit - threshold;
        if (x > threshold)
            x = threshold;
        x_of.write(index, x);
    }
}

/* A register of the flow. Flows that share one wait for each other's acknowledgements, too. */
control FlowPosition(in headers hdr, out bit<16> flow)
{
    apply {
        flow = 0;
        if (hdr.ipv4.isValid())
            hash(flow, HashAlgorithm.crc16, 16w0,
                 { hdr.ipv4.source, hdr.ipv4.destination, hdr.tcp.source_port, hdr.tcp.destination_port },
                 17w0x10000);
        else
            hash(flow, HashAlgorithm.crc16, 16w0,
                 { hdr.ipv6.source, hdr.ipv6.destination, hdr.tcp.source_port, hdr.tcp.destination_port },
                 17w0x10000);
    }
}

control SchemeIngress(inout headers hdr, inout metadata meta,
                      inout standard_metadata_t standard_metadata)
{
    SetEce() set_ece;
    FlowPosition() flow_position;
    EnterCongestion() enter_congestion;
    bit<9> recirculation_port;
    bit<32> hold_limit;

    /* by the port that they arrived on, as the kernel's statistics of the same names */
    @name(".holds") counter(PORTS, CounterType.packets) holds;
    @name(".released") counter(PORTS, CounterType.packets) released;
    @name(".released_with_ece") counter(PORTS, CounterType.packets) released_with_ece;
    @name(".corrected") counter(PORTS, CounterType.packets) corrected;
    @name(".overflow") counter(PORTS, CounterType.packets) overflow;

    @name(".recirculation") action recirculation(bit<9> port, bit<32> limit) {
        recirculation_port = port;
        hold_limit = limit;
    }

    @name(".abq_recirculation") table abq_recirculation {
        actions = { recirculation; }
        default_action = recirculation(510, 1000);
    }

    @name(".hold_above") action hold_above(bit<19> packets, bit<19> buffer, bit<32> count) {
        meta.scheme.threshold = packets;
        meta.scheme.limit = buffer;
        meta.scheme.count = count;
    }

    @name(".abq") table abq {
        key = { standard_metadata.egress_spec : exact @name("port"); }
        actions = { hold_above; }
        default_action = hold_above(20, 1000, ALL);
        size = PORTS;
    }

    /* One more turn: routing comes after the last one, and has counted this one as a hop. */
    action recirculate_held() {
        standard_metadata.egress_spec = recirculation_port;
        hdr.ipv4.ttl = hdr.ipv4.ttl + 1;
        hdr.ipv6.hop_limit = hdr.ipv6.hop_limit + 1;
    }

    /* A pure acknowledgement, with whatever options: held where its port is congested, or one of its flow is. */
    action hold(bit<2> state, bit<32> next) {
        meta.scheme.held = 1;
        meta.scheme.passes = 0;
        meta.scheme.leaves = 0;
        meta.scheme.ece = 0;
        meta.scheme.waited = 0;
        meta.scheme.port = standard_metadata.ingress_port;
        meta.scheme.place = next;
        next_of.write((bit<32>)meta.scheme.flow, next + 1);
        if (state == US)
            meta.scheme.passes = 1;
        recirculate_held();
    }

    apply {
        bit<32> index = (bit<32>)standard_metadata.ingress_port;
        bit<2> state;
        bit<32> first;
        bit<32> next;
        bit<32> tail;
        bit<32> until;
        bit<19> queue;

        abq_recirculation.apply();
        if (meta.scheme.held == 1) {
            index = (bit<32>)meta.scheme.port;
            if (meta.scheme.leaves == 0) {
                recirculate_held();
                return;
            }
            meta.scheme.held = 0;
            if (meta.scheme.passes == 0)
                released.count(index);
            if (meta.scheme.ece == 1) {
                released_with_ece.count(index);
                if (hdr.tcp.ece == 0) {
                    set_ece.apply(hdr);
                    corrected.count(index);
                }
            }
        } else if (hdr.tcp.isValid() && hdr.tcp.ack == 1 && hdr.tcp.syn == 0 &&
                   hdr.tcp.fin == 0 && hdr.tcp.rst == 0 &&
                   meta.transport_bytes == ((bit<16>)hdr.tcp.words << 2)) {
            flow_position.apply(hdr, meta.scheme.flow);
            state_of.read(state, index);
            first_of.read(first, (bit<32>)meta.scheme.flow);
            next_of.read(next, (bit<32>)meta.scheme.flow);
            if (state != US || first != next) {
                hold(state, next);
                if (state != US) {
                    holds.count(index);
                    tail_of.read(tail, index);
                    released_of.read(until, index);
                    meta.scheme.ticket = tail;
                    tail_of.write(index, tail + 1);
                    if (tail - until >= hold_limit) {
                        released_of.write(index, until + 1);
                        overflow.count(index);
                    }
                }
                return;
            }
        }

        /* to its output queue, which it makes longer; what does not fit, until one leaves */
        index = (bit<32>)standard_metadata.egress_spec;
        abq.apply();
        waiting_of.read(queue, index);
        queue = queue |+| 1;
        waiting_of.write(index, queue);
        if (queue > meta.scheme.threshold)
            enter_congestion.apply(index, meta.scheme.threshold, meta.scheme.limit);
    }
}

control SchemeEgress(inout headers hdr, inout metadata meta,
                     inout standard_metadata_t standard_metadata)
{
    StepMarking(40) step_marking;
    EnterCongestion() enter_congestion;

    /* by egress port */
    @name(".releases") counter(PORTS, CounterType.packets) releases;
    @name(".entries_us") counter(PORTS, CounterType.packets) entries_us;
    @name(".entries_lcs") counter(PORTS, CounterType.packets) entries_lcs;

    apply {
        bit<32> index = (bit<32>)standard_metadata.egress_port;
        bit<19> queue = standard_metadata.deq_qdepth;
        bit<2> state;
        bit<19> x;
        bit<32> first;
        bit<32> tail;
        bit<32> until;

        if (meta.scheme.held == 1) {
            /*
             * At the recirculation port. A packet that is released, or of an uncongested port,
             * leaves if it is the first of its flow. It also leaves if the first has not
             * passed within a whole turn, so that a lost place blocks no flow.
             */
            bit<32> flow = (bit<32>)meta.scheme.flow;
            bit<32> place = meta.scheme.place;

            index = (bit<32>)meta.scheme.port;
            state_of.read(state, index);
            released_of.read(until, index);
            first_of.read(first, flow);
            if (meta.scheme.passes == 0 && (int<32>)(until - meta.scheme.ticket) > 0)
                meta.scheme.ece = 1;
            if (meta.scheme.passes == 0 && meta.scheme.ece == 0 && state != US) {
                meta.scheme.waited = 0;
            } else if ((int<32>)(place - first) <= 0 ||
                       (meta.scheme.waited == 1 && meta.scheme.awaited == first)) {
                meta.scheme.leaves = 1;
                if ((int<32>)(place - first) >= 0)
                    first_of.write(flow, place + 1);
            } else {
                meta.scheme.waited = 1;
                meta.scheme.awaited = first;
            }
            recirculate_preserving_field_list(HELD);
            return;
        }
        step_marking.apply(hdr, standard_metadata);

        /* the output queue as the packet has left it */
        waiting_of.write(index, queue);
        if (queue > meta.scheme.threshold) {
            enter_congestion.apply(index, meta.scheme.threshold, meta.scheme.limit);
            return;
        }
        state_of.read(state, index);
        x_of.read(x, index);
        if (state == US || queue > x)
            return;
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
        /* an uncongested port lets all go */
        tail_of.read(tail, index);
        released_of.read(until, index);
        if (x == 0 || tail - until <= meta.scheme.count)
            until = tail;
        else
            until = until + meta.scheme.count;
        released_of.write(index, until);
        releases.count(index);
    }
}

#include "switch.p4"
