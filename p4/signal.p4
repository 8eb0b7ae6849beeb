/* SPDX-License-Identifier: Apache-2.0 */
/* A queue's update of the congestion header, and of UDP's checksum after it: docs/formats.md section 6. */
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
        bit<16> check = ~hdr.udp.checksum;

        if (hdr.udp.checksum != 0) {
            hash(hdr.udp.checksum, HashAlgorithm.csum16, 16w0, { check, change }, 17w0x10000);
            if (hdr.udp.checksum == 0)
                hdr.udp.checksum = 0xffff;
        }
    }
}

/*
 * One more queue: `part` is its length, of IND whether it is above the threshold.
 * VECTOR has each queue's, the last one in the lowest bits.
 * The checksum is changed by one hash over what was there and what is there: p4c
 * would write out a sum that is folded step by step again and again.
 */
control Fold(inout headers hdr, in bit<64> part)
{
    apply {
        bit<64> high = hdr.signal.signal_high;
        bit<64> low = hdr.signal.signal_low;
        bit<64> more = part;
        bit<64> largest;
        bit<128> vector;
        bit<16> check = ~hdr.udp.checksum;
        bit<16> old_hops = ~(hdr.signal.hops ++ hdr.signal.echo_hops);
        bit<64> old_high = ~hdr.signal.signal_high;
        bit<64> old_low = ~hdr.signal.signal_low;

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
                hdr.signal.signal_high = high;
            }
        } else if (hdr.signal.kind == SIGNAL_VECTOR) {
            largest = (64w1 << hdr.signal.bits) - 1;
            if (more > largest)
                more = largest;
            vector = ((high ++ low) << hdr.signal.bits) | (bit<128>)more;
            low = vector[63:0];
            hdr.signal.signal_high = vector[127:64];
        } else if (high == 0 && more > low) {
            low = more;
        }
        hdr.signal.signal_low = low;
        if (hdr.signal.hops != 255)
            hdr.signal.hops = hdr.signal.hops + 1;
        if (hdr.udp.checksum != 0) {
            hash(hdr.udp.checksum, HashAlgorithm.csum16, 16w0, {
                check, old_hops, old_high, old_low, hdr.signal.hops, hdr.signal.echo_hops,
                hdr.signal.signal_high, hdr.signal.signal_low
            }, 17w0x10000);
            if (hdr.udp.checksum == 0)
                hdr.udp.checksum = 0xffff;
        }
    }
}

/* Adds a queue to a compact header: `part` is the number of the queue's bin, or 0 or 1 of IND. */
control FoldCompact(inout headers hdr, in bit<64> part)
{
    apply {
        bit<64> value = 0;
        bit<64> largest = ((64w1 << COMPACT_SUM_BITS) << hdr.compact.bits_less_one << 1) - 1;
        bit<64> old_value;
        bit<64> new_value;
        bit<16> check = ~hdr.udp.checksum;
        /* `stamped` is the only bit that changes in its word */
        bit<16> old_stamped = ~(15w0 ++ hdr.compact.stamped << 3);

        if (hdr.compact8.isValid())
            value = (bit<64>)hdr.compact8.value;
        else if (hdr.compact16.isValid())
            value = (bit<64>)hdr.compact16.value;
        else if (hdr.compact32.isValid())
            value = (bit<64>)hdr.compact32.value;
        else
            value = hdr.compact64.value;
        old_value = value;
        if (hdr.compact.kind == SIGNAL_SUM[2:0]) {
            value = value + part;
            if (value > largest)
                value = largest;
        } else if (part > value) {
            value = part;
        }
        new_value = value;
        if (hdr.compact8.isValid()) {
            hdr.compact8.value = value[7:0];
            old_value = old_value << 8;		/* the upper half of a word */
            new_value = new_value << 8;
        } else if (hdr.compact16.isValid()) {
            hdr.compact16.value = value[15:0];
        } else if (hdr.compact32.isValid()) {
            hdr.compact32.value = value[31:0];
        } else {
            hdr.compact64.value = value;
        }
        hdr.compact.stamped = 1;
        if (hdr.udp.checksum != 0) {
            old_value = ~old_value;
            hash(hdr.udp.checksum, HashAlgorithm.csum16, 16w0,
                 { check, old_stamped, old_value, 16w8, new_value }, 17w0x10000);
            if (hdr.udp.checksum == 0)
                hdr.udp.checksum = 0xffff;
        }
    }
}

#endif
