/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reverse path congestion marking: the rule of schemes/rpm/kernel/rpm_algorithm.h
 * (Algorithm 1 of the paper). CoDel decides as a packet leaves its queue, other
 * laws as it enters it; the decision waits in a register of its flow for the
 * flow's next acknowledgement.
 */
#include "headers.p4"

#define REGISTERS 65536		/* of flows; behind them, one of each port */

struct scheme_metadata {
    bit<32> register_mask;
    bit<48> reverse_timeout;	/* us */
    bit<1> per_port;
    bit<1> one_bit;		/* a register is a bit: decisions until the next acknowledgement are one */
}

#include "acknowledgements.p4"
#include "controlled_delay.p4"
#include "decisions.p4"
#include "marking.p4"

/* Signatures that no flow has: of a free register, and of one that all flows of a port share. */
const bit<32> NO_HOLDER = 0;
const bit<32> ANY_FLOW = 1;

/* The register of the packet's flow, or, of an acknowledgement, of the flow that it answers. */
control FlowRegister(in headers hdr, in metadata meta, in bool reversed, in bit<9> port,
                     out bit<32> position, out bit<32> signature)
{
    apply {
        bit<16> hashed = 0;
        bit<16> source_port = hdr.tcp.source_port;
        bit<16> destination_port = hdr.tcp.destination_port;

        signature = ANY_FLOW;
        if (meta.scheme.per_port == 1) {
            position = REGISTERS + (bit<32>)port;
            return;
        }
        if (reversed) {
            source_port = hdr.tcp.destination_port;
            destination_port = hdr.tcp.source_port;
        }
        if (hdr.ipv4.isValid()) {
            bit<32> source = hdr.ipv4.source;
            bit<32> destination = hdr.ipv4.destination;
            if (reversed) {
                source = hdr.ipv4.destination;
                destination = hdr.ipv4.source;
            }
            hash(hashed, HashAlgorithm.crc16, 16w0,
                 { source, destination, source_port, destination_port }, 17w0x10000);
            hash(signature, HashAlgorithm.crc32, 32w0,
                 { source, destination, source_port, destination_port }, 33w0x100000000);
        } else {
            bit<128> source = hdr.ipv6.source;
            bit<128> destination = hdr.ipv6.destination;
            if (reversed) {
                source = hdr.ipv6.destination;
                destination = hdr.ipv6.source;
            }
            hash(hashed, HashAlgorithm.crc16, 16w0,
                 { source, destination, source_port, destination_port }, 17w0x10000);
            hash(signature, HashAlgorithm.crc32, 32w0,
                 { source, destination, source_port, destination_port }, 33w0x100000000);
        }
        position = (bit<32>)hashed & meta.scheme.register_mask;
        if (signature <= ANY_FLOW)
            signature = ANY_FLOW + 1;
    }
}

@name(".rpm_holder") register<bit<32>>(REGISTERS + PORTS) holder_of;
@name(".rpm_reverse_time") register<bit<48>>(REGISTERS + PORTS) reverse_time_of;
@name(".rpm_pending") register<bit<32>>(REGISTERS + PORTS) pending_of;
@name(".rpm_pending_port") register<bit<9>>(REGISTERS + PORTS) pending_port_of;
@name(".rpm_closing") register<bit<1>>(REGISTERS + PORTS) closing_of;
@name(".cleared") register<bit<32>>(PORTS) cleared_of;

/* By the deciding port: pending decisions, the sum of their waiting times (ns), and the time of that sum (us) */
@name(".pending") register<bit<32>>(PORTS) port_pending_of;
@name(".pending_time") register<bit<64>>(PORTS) pending_time_of;
@name(".rpm_pending_changed") register<bit<48>>(PORTS) changed_of;

/* packets in the queue of the port, where the law decides at ingress, which knows of no queue */
@name(".waiting") register<bit<32>>(PORTS) waiting_of;

/* The number of pending decisions of a port changes: to the sum goes the integral of the number before. */
control CountPending(in bit<9> port, in bit<48> now, in bit<32> added, in bit<32> removed)
{
    apply {
        bit<32> index = (bit<32>)port;
        bit<32> pending;
        bit<64> sum;
        bit<48> changed;

        port_pending_of.read(pending, index);
        pending_time_of.read(sum, index);
        changed_of.read(changed, index);
        pending_time_of.write(index, sum + (bit<64>)pending * (bit<64>)(now - changed) * 1000);
        port_pending_of.write(index, pending + added - removed);
        changed_of.write(index, now);
    }
}

/* Nothing will carry what is pending in the register. */
control Clear(in bit<32> position, in bit<48> now)
{
    CountPending() count_pending;

    apply {
        bit<32> pending;
        bit<32> cleared;
        bit<9> port;

        pending_of.read(pending, position);
        if (pending == 0)
            return;
        pending_port_of.read(port, position);
        cleared_of.read(cleared, (bit<32>)port);
        cleared_of.write((bit<32>)port, cleared + pending);
        count_pending.apply(port, now, 0, pending);
        pending_of.write(position, 0);
    }
}

/* The connection is gone, or another one of these ports begins. */
control End(in bit<32> position, in bit<32> signature, in bit<48> now)
{
    Clear() clear;

    apply {
        bit<32> holder;

        holder_of.read(holder, position);
        if (holder != signature)
            return;
        clear.apply(position, now);
        holder_of.write(position, NO_HOLDER);
        closing_of.write(position, 0);
    }
}

/* The decisions that an acknowledgement of the register's flow makes void, or carries. */
control Acknowledge(inout headers hdr, in metadata meta, in bit<48> now, in bit<32> position,
                    in bit<32> signature)
{
    Clear() clear;
    CountPending() count_pending;
    SetEce() set_ece;

    /* by the deciding port */
    @name(".reverse_marks") counter(PORTS, CounterType.packets) reverse_marks;
    @name(".ece_already_set") counter(PORTS, CounterType.packets) ece_already_set;

    apply {
        bit<32> holder;
        bit<48> reverse_time;
        bit<1> closing;
        bit<32> pending;
        bit<9> port;

        holder_of.read(holder, position);
        if (holder != signature) {
            reverse_time_of.read(reverse_time, position);
            closing_of.read(closing, position);
            if (holder != NO_HOLDER && closing == 0 && now - reverse_time <= meta.scheme.reverse_timeout)
                return;		/* a collision; decisions count those */
            holder_of.write(position, signature);
        }
        /* what is pending is of an earlier holder or, at a SYN-ACK, of an earlier connection */
        if (holder != signature || (hdr.tcp.syn == 1 && signature != ANY_FLOW)) {
            closing_of.write(position, 0);
            clear.apply(position, now);
        }
        reverse_time_of.write(position, now);
        pending_of.read(pending, position);
        if (pending == 0 || hdr.tcp.syn == 1)
            return;		/* in a SYN-ACK, ECE means something else (RFC 3168, 6.1.1) */
        pending_port_of.read(port, position);
        pending_of.write(position, pending - 1);
        count_pending.apply(port, now, 0, 1);
        if (hdr.tcp.ece == 1) {
            ece_already_set.count((bit<32>)port);
        } else {
            set_ece.apply(hdr);
            reverse_marks.count((bit<32>)port);
        }
    }
}

/* by egress port, as the kernel's statistics of the same names */
@name(".marked") counter(PORTS, CounterType.packets) marked;
@name(".forward_marks") counter(PORTS, CounterType.packets) forward_marks;
@name(".ce_arrived") counter(PORTS, CounterType.packets) ce_arrived;
@name(".collisions") counter(PORTS, CounterType.packets) collisions;
@name(".dropped") counter(PORTS, CounterType.packets) dropped;
@name(".merged") counter(PORTS, CounterType.packets) merged;

/* The law of a port signals congestion with a packet. */
control Signal(inout headers hdr, in metadata meta, in bit<9> egress_port, in bit<48> now, out bool drops)
{
    ReadEcn() read_ecn;
    SetCe() set_ce;
    CountPending() count_pending;
    FlowRegister() flow_register;

    apply {
        bit<32> index = (bit<32>)egress_port;
        bool forward = true;
        bit<2> ecn;
        bit<32> position = 0;
        bit<32> signature;
        bit<32> holder;
        bit<48> reverse_time;
        bit<32> pending = 0;
        bit<9> port;
        bit<1> closing;

        drops = false;
        read_ecn.apply(hdr, ecn);
        if (ecn == ECN_NOT_CAPABLE) {
            dropped.count(index);
            drops = true;
            return;
        }
        marked.count(index);
        if (ecn == ECN_CE) {
            ce_arrived.count(index);
            return;
        }
        if (hdr.tcp.isValid()) {
            flow_register.apply(hdr, meta, false, egress_port, position, signature);
            holder_of.read(holder, position);
            reverse_time_of.read(reverse_time, position);
            pending_of.read(pending, position);
            pending_port_of.read(port, position);
            /* only where an acknowledgement of the flow passed a short while ago */
            if (holder != NO_HOLDER && now - reverse_time <= meta.scheme.reverse_timeout) {
                if (holder != signature) {
                    closing_of.read(closing, position);
                    if (closing == 0)
                        collisions.count(index);
                } else if (pending == 0 || port == egress_port) {
                    forward = false;
                }
            }
        }
        if (forward) {
            set_ce.apply(hdr);
            forward_marks.count(index);
        } else if (pending != 0 && meta.scheme.one_bit == 1) {
            merged.count(index);
        } else {
            pending_of.write(position, pending + 1);
            pending_port_of.write(position, egress_port);
            count_pending.apply(egress_port, now, 1, 0);
        }
    }
}

control SchemeIngress(inout headers hdr, inout metadata meta,
                      inout standard_metadata_t standard_metadata)
{
    FlowRegister() flow_register;
    FlowRegister() answered_register;
    End() end_flow;
    End() end_answered;
    Acknowledge() acknowledge;
    EnqueueDecision() enqueue_decision;
    Signal() signal;
    enqueue_law law;

    @name(".registers") action registers(bit<32> mask, bit<48> reverse_timeout_us, bit<1> per_port) {
        meta.scheme.register_mask = mask;
        meta.scheme.reverse_timeout = reverse_timeout_us;
        meta.scheme.per_port = per_port;
        meta.scheme.one_bit = 0;
    }

    @name(".bits") action bits(bit<32> mask, bit<48> reverse_timeout_us, bit<1> per_port) {
        meta.scheme.register_mask = mask;
        meta.scheme.reverse_timeout = reverse_timeout_us;
        meta.scheme.per_port = per_port;
        meta.scheme.one_bit = 1;
    }

    @name(".rpm") table rpm {
        actions = { registers; bits; }
        default_action = registers(REGISTERS - 1, 1000000, 0);
    }

    @name(".at_egress") action at_egress() {
        law = { NOT_ENQUEUED, 0, 0, 0, 0, 0 };
    }

    @name(".red") action red(bit<32> buffer, bit<32> min, bit<32> max, bit<64> slope, bit<8> wlog) {
        law = { RED, buffer, min, max, slope, wlog };
    }

    @name(".step") action step(bit<32> buffer, bit<32> threshold) {
        law = { STEP, buffer, threshold, 0, 0, 0 };
    }

    @name(".linear") action linear(bit<32> buffer, bit<32> threshold, bit<64> eta) {
        law = { LINEAR, buffer, threshold, 0, eta, 0 };
    }

    @name(".decides") table decides {
        key = { standard_metadata.egress_spec : exact @name("port"); }
        actions = { at_egress; red; step; linear; }
        default_action = at_egress();
        size = PORTS;
    }

    apply {
        bit<48> now = standard_metadata.ingress_global_timestamp;
        bit<9> port = standard_metadata.ingress_port;
        bit<32> flow_index;
        bit<32> flow_signature;
        bit<32> answered;
        bit<32> signature;
        bit<32> holder;
        bool of_flows;
        bit<32> index;
        bit<32> queue;
        bool signals;
        bool drops;

        rpm.apply();
        of_flows = meta.scheme.per_port == 0;	/* the register of a port serves all */
        if (hdr.tcp.isValid()) {
            flow_register.apply(hdr, meta, false, port, flow_index, flow_signature);
            answered_register.apply(hdr, meta, true, port, answered, signature);
            if (of_flows && (hdr.tcp.syn == 1 || hdr.tcp.rst == 1))
                end_flow.apply(flow_index, flow_signature, now);
            if (of_flows && hdr.tcp.rst == 1)
                end_answered.apply(answered, signature, now);
            if (hdr.tcp.ack == 1 && hdr.tcp.rst == 0)
                acknowledge.apply(hdr, meta, now, answered, signature);
            /* last: this very acknowledgement shall not take what the flow leaves */
            if (of_flows && hdr.tcp.fin == 1) {
                holder_of.read(holder, flow_index);
                if (holder == flow_signature)
                    closing_of.write(flow_index, 1);
            }
        }

        decides.apply();
        if (law.law == NOT_ENQUEUED)
            return;
        index = (bit<32>)standard_metadata.egress_spec;
        waiting_of.read(queue, index);
        /* what does not fit is counted, too: more than the buffer is as good as the buffer */
        if (queue < law.buffer) {
            enqueue_decision.apply(law, index, queue, signals);
            if (signals) {
                signal.apply(hdr, meta, standard_metadata.egress_spec, now, drops);
                if (drops) {
                    mark_to_drop(standard_metadata);
                    return;
                }
            }
        }
        waiting_of.write(index, queue + 1);
    }
}

control SchemeEgress(inout headers hdr, inout metadata meta,
                     inout standard_metadata_t standard_metadata)
{
    Codel() codel;
    TofinoCodel() tofino_codel;
    Signal() signal;
    bit<32> target;
    bit<32> interval;
    bit<2> law;

    @name(".law") action law_of_linux(bit<32> target_us, bit<32> interval_us) {
        law = CODEL;
        target = target_us;
        interval = interval_us;
    }

    @name(".tofino_law") action tofino_law(bit<32> target_us, bit<32> interval_us) {
        law = CODEL_TOFINO;
        target = target_us;
        interval = interval_us;
    }

    @name(".at_ingress") action at_ingress() {
        law = DECIDED;
        target = 0;
        interval = 0;
    }

    @name(".codel") table codel_settings {
        key = { standard_metadata.egress_port : exact @name("port"); }
        actions = { law_of_linux; tofino_law; at_ingress; }
        default_action = law_of_linux(5000, 100000);
        size = PORTS;
    }

    apply {
        bit<48> now = standard_metadata.egress_global_timestamp;
        bool signals = false;
        bool drops;

        codel_settings.apply();
        if (law == CODEL)
            codel.apply(standard_metadata, target, interval, signals);
        else if (law == CODEL_TOFINO)
            tofino_codel.apply(standard_metadata, target, interval, signals);
        else
            waiting_of.write((bit<32>)standard_metadata.egress_port,
                             (bit<32>)standard_metadata.deq_qdepth);
        if (!signals)
            return;
        signal.apply(hdr, meta, standard_metadata.egress_port, now, drops);
        if (drops)
            mark_to_drop(standard_metadata);
    }
}

#include "switch.p4"
