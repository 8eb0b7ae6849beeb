/* SPDX-License-Identifier: Apache-2.0 */
/* What a queue adds to the congestion header, and UDP's checksum after that: docs/wire-format.md. */
#ifndef QBED_SIGNAL_P4
#define QBED_SIGNAL_P4

#include "headers.p4"

/*
 * UDP's checksum by what has changed alone (RFC 1624): damage from before stays.
 * 0 says that there is none, and stays; a sum that is 0 is sent as 0xffff.
 * `change` is the sum of the new words and of the old ones' complements, in
 * numbers of 16 bits or in larger ones: 2^16, 2^32 and 2^48 are 1 modulo 0xffff.
 */
control UpdateUdpChecksum(inout headers hdr, in bit<64> change)
{
    apply {
        bit<64> sum = change + (bit<64>)(~hdr.udp.checksum);

        if (hdr.udp.checksum != 0) {
            sum = (sum & 0xffffffff) + (sum >> 32);
            sum = (sum & 0xffff) + (sum >> 16);
            sum = (sum & 0xffff) + (sum >> 16);
            sum = (sum & 0xffff) + (sum >> 16);
            hdr.udp.checksum = ~(bit<16>)sum;
            if (hdr.udp.checksum == 0)
                hdr.udp.checksum = 0xffff;
        }
    }
}

/* What a number of 64 bits adds to `change`, in 33. */
#define FOLDED(number) (((number) & 0xffffffff) + ((number) >> 32))

/* One more queue: `part` is its length, of IND whether it is above the threshold. */
control Fold(inout headers hdr, in bit<64> part)
{
    UpdateUdpChecksum() update_udp_checksum;

    apply {
        bit<64> high = hdr.signal.signal_high;
        bit<64> low = hdr.signal.signal_low;
        bit<64> more = part;
        bit<64> change = 0;

        if (hdr.signal.kind == SIGNAL_SUM || hdr.signal.kind == SIGNAL_SUM_SQU) {
            if (hdr.signal.kind == SIGNAL_SUM_SQU)
                more = part * part;		/* of at most 32 bits each */
            low = low + more;
            if (low < more) {
                high = high + 1;
                if (high == 0) {		/* what has no room is the largest number that has */
                    high = ~64w0;
                    low = ~64w0;
                }
                change = FOLDED(high) + FOLDED(~hdr.signal.signal_high);
                hdr.signal.signal_high = high;
            }
        } else if (high == 0 && more > low) {
            low = more;
        }
        change = change + FOLDED(low) + FOLDED(~hdr.signal.signal_low);
        hdr.signal.signal_low = low;
        if (hdr.signal.hops != 255) {
            hdr.signal.hops = hdr.signal.hops + 1;
            change = change + 0x100;
        }
        update_udp_checksum.apply(hdr, change);
    }
}

#endif
