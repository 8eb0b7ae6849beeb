/* SPDX-License-Identifier: Apache-2.0 */
/* ECN-Echo in a TCP segment, with its checksum changed by the difference (RFC 1624). */
#ifndef QBED_ACKNOWLEDGEMENTS_P4
#define QBED_ACKNOWLEDGEMENTS_P4

#include "headers.p4"

const bit<16> TCP_ECE = 0x0040;

control SetEce(inout headers hdr)
{
    apply {
        bit<16> check = ~hdr.tcp.checksum;
        bit<16> after = hdr.tcp.words ++ hdr.tcp.reserved ++ hdr.tcp.cwr ++ 1w1 ++ hdr.tcp.urg ++
                        hdr.tcp.ack ++ hdr.tcp.psh ++ hdr.tcp.rst ++ hdr.tcp.syn ++ hdr.tcp.fin;
        bit<16> before = ~(after - TCP_ECE);

        if (hdr.tcp.ece == 0) {
            hdr.tcp.ece = 1;
            hash(hdr.tcp.checksum, HashAlgorithm.csum16, 16w0, { check, before, after },
                 17w0x10000);
        }
    }
}

#endif
