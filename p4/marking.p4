/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the ECN field, and sets CE, as INET_ECN_set_ce() of Linux does. */
#ifndef QBED_MARKING_P4
#define QBED_MARKING_P4

#include "headers.p4"

/* A packet that is not IP counts as ECN_NOT_CAPABLE. */
control ReadEcn(in headers hdr, out bit<2> ecn)
{
    apply {
        ecn = ECN_NOT_CAPABLE;
        if (hdr.ipv4.isValid())
            ecn = hdr.ipv4.ecn;
        else if (hdr.ipv6.isValid())
            ecn = hdr.ipv6.ecn;
    }
}

control SetCe(inout headers hdr)
{
    apply {
        if (hdr.ipv4.isValid())
            hdr.ipv4.ecn = ECN_CE;
        else if (hdr.ipv6.isValid())
            hdr.ipv6.ecn = ECN_CE;
    }
}

#endif
