/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The switch around a scheme. A program has, in this order:
 *
 *   #include "headers.p4"
 *   struct scheme_metadata { what the scheme remembers of a packet }
 *   #include "metadata.p4"
 *   control SchemeIngress, as a packet has its egress port, and SchemeEgress,
 *   as it leaves the queue: controls of the architecture's kind
 *   #include "switch.p4"
 */
#ifndef QBED_SWITCH_P4
#define QBED_SWITCH_P4

#include "parser.p4"
#include "forwarding.p4"

control SwitchIngress(inout headers hdr, inout metadata meta,
                      inout standard_metadata_t standard_metadata)
{
    Forwarding() forwarding;
    SchemeIngress() scheme;

    apply {
        forwarding.apply(hdr, meta, standard_metadata);
        scheme.apply(hdr, meta, standard_metadata);
    }
}

control SwitchEgress(inout headers hdr, inout metadata meta,
                     inout standard_metadata_t standard_metadata)
{
    SchemeEgress() scheme;

    apply {
        scheme.apply(hdr, meta, standard_metadata);
    }
}

V1Switch(SwitchParser(), SwitchVerifyChecksum(), SwitchIngress(), SwitchEgress(),
         SwitchComputeChecksum(), SwitchDeparser()) main;

#endif
