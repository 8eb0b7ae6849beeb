/* SPDX-License-Identifier: Apache-2.0 */
/* Packets that find more than a threshold in the queue are marked CE. */
#include "headers.p4"

struct scheme_metadata {
}

#include "step_marking.p4"

control SchemeIngress(inout headers hdr, inout metadata meta,
                      inout standard_metadata_t standard_metadata)
{
    apply {
    }
}

control SchemeEgress(inout headers hdr, inout metadata meta,
                     inout standard_metadata_t standard_metadata)
{
    StepMarking(65) step_marking;

    apply {
        step_marking.apply(hdr, standard_metadata);
    }
}

#include "switch.p4"
