/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The laws that decide other than Linux's CoDel: the steps of
 * schemes/rpm/kernel/rpm_decides.h.
 */
#ifndef RPM_DECISIONS_P4
#define RPM_DECISIONS_P4

#include "controlled_delay.p4"

/* P4-CoDel's law for Tofino: one packet below the target ends the excursion, and each one counts from 1. */
control TofinoCodel(in standard_metadata_t standard_metadata, in bit<32> target,
                    in bit<32> interval, out bool signals)
{
    /* by egress port; times in us */
    @name(".tofino_due") register<bit<48>>(PORTS) due_of;
    @name(".tofino_count") register<bit<32>>(PORTS) count_of;
    @name(".tofino_inverse_root") register<bit<16>>(PORTS) inverse_root_of;
    @name(".tofino_above") register<bit<1>>(PORTS) above_of;
    NewtonStep() newton_step;
    ControlLaw() control_law;

    apply {
        bit<32> port = (bit<32>)standard_metadata.egress_port;
        bit<48> now = standard_metadata.egress_global_timestamp;
        bit<48> due;
        bit<32> count;
        bit<16> inverse_root;
        bit<1> above;

        signals = false;
        above_of.read(above, port);
        if (standard_metadata.deq_timedelta < target) {
            above_of.write(port, 0);
            return;
        }
        if (above == 0) {
            above_of.write(port, 1);
            due_of.write(port, now + (bit<48>)interval);
            count_of.write(port, 1);
            inverse_root_of.write(port, CODEL_ONE);
            return;
        }
        due_of.read(due, port);
        if (now <= due)
            return;
        count_of.read(count, port);
        inverse_root_of.read(inverse_root, port);
        count = count + 1;
        newton_step.apply(count, inverse_root);
        newton_step.apply(count, inverse_root);
        newton_step.apply(count, inverse_root);
        newton_step.apply(count, inverse_root);
        control_law.apply(due, interval, inverse_root, due);
        due_of.write(port, due);
        count_of.write(port, count);
        inverse_root_of.write(port, inverse_root);
        signals = true;
    }
}

/* The laws that decide at egress, and none of them. */
const bit<2> CODEL = 0;
const bit<2> CODEL_TOFINO = 1;
const bit<2> DECIDED = 2;

/* The laws that decide at ingress, as the packet is enqueued. */
const bit<2> NOT_ENQUEUED = 0;	/* the port's law decides at egress */
const bit<2> RED = 1;
const bit<2> STEP = 2;
const bit<2> LINEAR = 3;

struct enqueue_law {
    bit<2> law;
    bit<32> buffer;		/* packets */
    bit<32> minimum;		/* packets: RED's min, or the threshold */
    bit<32> maximum;		/* RED's max */
    bit<64> slope;		/* probability for each packet above `minimum`, in 10^-12 */
    bit<8> wlog;		/* RED's average has so many bits behind the point */
}

/* A random share of 10^12, which is 2^12 * 5^12. */
control RandomShare(out bit<64> share)
{
    apply {
        bit<32> random_bits;

        random(random_bits, 32w0, 32w0xffffffff);
        share = ((bit<64>)random_bits * 64w244140625) >> 20;
    }
}

control RedDecision(in enqueue_law port, in bit<32> index, in bit<32> queue, out bool signals)
{
    RandomShare() random_share;

    /* by egress port */
    @name(".red_average") register<bit<64>>(PORTS) average_of;
    @name(".red_random") register<bit<64>>(PORTS) random_of;
    @name(".red_count") register<bit<32>>(PORTS) count_of;

    apply {
        bit<64> average;
        bit<64> share;
        bit<64> drawn;
        bit<32> count;
        bit<64> scaled_minimum = (bit<64>)port.minimum << port.wlog;

        signals = false;
        random_share.apply(share);
        average_of.read(average, index);
        average = average + (bit<64>)queue - (average >> port.wlog);
        average_of.write(index, average);
        if (average < scaled_minimum) {
            count_of.write(index, 0);
            return;
        }
        if (average < ((bit<64>)port.maximum << port.wlog)) {
            count_of.read(count, index);
            random_of.read(drawn, index);
            if (count == 0) {
                drawn = share;
                random_of.write(index, drawn);
            }
            if (count < 0x800000)
                count = count + 1;
            if (drawn >= (bit<64>)count * (((average - scaled_minimum) * port.slope) >> port.wlog)) {
                count_of.write(index, count);
                return;
            }
        }
        count_of.write(index, 0);
        signals = true;
    }
}

/* A packet that fits is enqueued behind `queue` packets. */
control EnqueueDecision(in enqueue_law port, in bit<32> index, in bit<32> queue, out bool signals)
{
    RedDecision() red_decision;
    RandomShare() random_share;

    apply {
        bit<64> share;

        signals = false;
        if (port.law == RED) {
            red_decision.apply(port, index, queue, signals);
        } else if (port.law == STEP) {
            if (queue > port.minimum)
                signals = true;
        } else if (port.law == LINEAR) {
            random_share.apply(share);
            if (queue > port.minimum && share < (bit<64>)(queue - port.minimum) * port.slope)
                signals = true;
        }
    }
}

#endif
