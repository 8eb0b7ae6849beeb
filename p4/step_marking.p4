/* SPDX-License-Identifier: Apache-2.0 */
/* Step marking, the switch side of DCTCP: the scheme ecn, and the output queue of abq. */
#ifndef QBED_STEP_MARKING_P4
#define QBED_STEP_MARKING_P4

#include "marking.p4"
#include "metadata.p4"

control StepMarking(inout headers hdr, in standard_metadata_t standard_metadata)
                   (bit<19> default_threshold)
{
    ReadEcn() read_ecn;
    SetCe() set_ce;
    bit<19> threshold;

    /* by egress port */
    @name(".marked") counter(PORTS, CounterType.packets) marked;
    @name(".unmarked") counter(PORTS, CounterType.packets) unmarked;

    @name(".mark_above") action mark_above(bit<19> packets) {
        threshold = packets;
    }

    @name(".marking") table marking {
        key = { standard_metadata.egress_port : exact @name("port"); }
        actions = { mark_above; }
        default_action = mark_above(default_threshold);
        size = PORTS;
    }

    apply {
        bit<2> ecn;

        marking.apply();
        /* the queue that the packet found: without itself, as in the kernel's switch */
        if (standard_metadata.enq_qdepth > threshold) {
            read_ecn.apply(hdr, ecn);
            if (ecn == ECN_NOT_CAPABLE) {
                unmarked.count((bit<32>)standard_metadata.egress_port);
            } else if (ecn != ECN_CE) {
                set_ce.apply(hdr);
                marked.count((bit<32>)standard_metadata.egress_port);
            }
        }
    }
}

#endif
