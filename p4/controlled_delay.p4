/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CoDel (RFC 8289), one packet at a time as it leaves its queue: whether this
 * one signals congestion. The steps and the control law are those of Linux
 * (include/net/codel_impl.h): 1 / sqrt(count) by one step of Newton's method
 * for each signal, by multiplications and shifts alone.
 */
#ifndef QBED_CONTROLLED_DELAY_P4
#define QBED_CONTROLLED_DELAY_P4

#include "metadata.p4"

/* rec_inv_sqrt of 1, in 16 bits behind the point */
#define CODEL_ONE 0xffff

/* drop_next = t + interval / sqrt(count) */
control ControlLaw(in bit<48> t, in bit<32> interval, in bit<16> inverse_root,
                   out bit<48> drop_next)
{
    apply {
        drop_next = t + (bit<48>)(((bit<64>)interval * (bit<64>)inverse_root) >> 16);
    }
}

/* inverse_root = inverse_root / 2 * (3 - count * inverse_root^2) */
control NewtonStep(in bit<32> count, inout bit<16> inverse_root)
{
    apply {
        bit<64> root = (bit<64>)inverse_root << 16;
        bit<64> square = (root * root) >> 32;
        bit<64> value = (64w3 << 32) - (bit<64>)count * square;

        inverse_root = (bit<16>)((((value >> 2) * root) >> 31) >> 16);
    }
}

control Codel(in standard_metadata_t standard_metadata, in bit<32> target, in bit<32> interval,
              out bool signals)
{
    /* by egress port; times in us */
    @name(".codel_first_above") register<bit<48>>(PORTS) first_above_of;
    @name(".codel_drop_next") register<bit<48>>(PORTS) drop_next_of;
    @name(".codel_count") register<bit<32>>(PORTS) count_of;
    @name(".codel_last_count") register<bit<32>>(PORTS) last_count_of;
    @name(".codel_inverse_root") register<bit<16>>(PORTS) inverse_root_of;
    @name(".codel_dropping") register<bit<1>>(PORTS) dropping_of;
    NewtonStep() newton_step;
    ControlLaw() control_law;

    apply {
        bit<32> port = (bit<32>)standard_metadata.egress_port;
        bit<48> now = standard_metadata.egress_global_timestamp;
        bit<48> first_above;
        bit<48> drop_next;
        bit<32> count;
        bit<32> last_count;
        bit<16> inverse_root;
        bit<1> dropping;
        bool above = false;

        signals = false;
        first_above_of.read(first_above, port);
        dropping_of.read(dropping, port);

        /* codel_should_drop(): one frame in the queue is never too many */
        if (standard_metadata.deq_timedelta < target || standard_metadata.deq_qdepth <= 1) {
            if (first_above != 0)
                first_above_of.write(port, 0);
        } else if (first_above == 0) {
            first_above_of.write(port, now + (bit<48>)interval);
        } else if (now > first_above) {
            above = true;
        }

        if (!above) {
            if (dropping == 1)
                dropping_of.write(port, 0);
            return;
        }
        drop_next_of.read(drop_next, port);
        count_of.read(count, port);
        inverse_root_of.read(inverse_root, port);
        if (dropping == 1) {
            if (now < drop_next)
                return;
            count = count + 1;
            newton_step.apply(count, inverse_root);
            control_law.apply(drop_next, interval, inverse_root, drop_next);
        } else {
            last_count_of.read(last_count, port);
            /* where it was a short while ago, it goes on */
            if (count - last_count > 1 &&
                now < drop_next + ((bit<48>)interval << 4)) {
                count = count - last_count;
                newton_step.apply(count, inverse_root);
            } else {
                count = 1;
                inverse_root = CODEL_ONE;
            }
            last_count_of.write(port, count);
            dropping_of.write(port, 1);
            control_law.apply(now, interval, inverse_root, drop_next);
        }
        signals = true;
        drop_next_of.write(port, drop_next);
        count_of.write(port, count);
        inverse_root_of.write(port, inverse_root);
    }
}

#endif
