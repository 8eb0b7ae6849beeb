/* SPDX-License-Identifier: Apache-2.0 */
/* The CE mark, as INET_ECN_set_ce() of Linux. */
#ifndef QBED_MARKING_P4
#define QBED_MARKING_P4

#include "headers.p4"

/* ECN_NOT_CAPABLE for what is not IP, too. */
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
