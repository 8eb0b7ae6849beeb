/* SPDX-License-Identifier: Apache-2.0 */
/* The queue drops what does not fit; the program only forwards. */
#include "headers.p4"

struct scheme_metadata {
}

#include "metadata.p4"

control SchemeIngress(inout headers hdr, inout metadata meta,
                      inout standard_metadata_t standard_metadata)
{
    apply {
    }
}

control SchemeEgress(inout headers hdr, inout metadata meta,
                     inout standard_metadata_t standard_metadata)
{
    apply {
    }
}

#include "switch.p4"
