/* SPDX-License-Identifier: Apache-2.0 */
/* What a queue adds to the congestion header, and UDP's checksum after that: docs/wire-format.md. */
#ifndef QBED_SIGNAL_P4
#define QBED_SIGNAL_P4

#include "headers.p4"

/* Of the congestion header, the fields that a switch may change. */
struct signal_words {
    bit<16> flags_kind;
    bit<16> hops;
    bit<16> feedback;
    bit<16> feedback_bits;
    bit<128> signal;
}

control ReadSignal(in headers hdr, out signal_words words)
{
    apply {
        words.flags_kind = hdr.signal.flags ++ hdr.signal.kind;
        words.hops = hdr.signal.hops ++ hdr.signal.echo_hops;
        words.feedback = hdr.signal.feedback;
        words.feedback_bits = hdr.signal.feedback_bits ++ hdr.signal.reserved;
        words.signal = hdr.signal.signal;
    }
}

/*
 * UDP's checksum by what has changed alone (RFC 1624): damage from before stays.
 * 0 says that there is none, and stays; a sum that is 0 is sent as 0xffff.
 */
control UpdateUdpChecksum(inout headers hdr, in signal_words before)
{
    ReadSignal() read_signal;

    apply {
        signal_words after;
        bit<16> check = ~hdr.udp.checksum;
        bit<16> flags_kind = ~before.flags_kind;
        bit<16> hops = ~before.hops;
        bit<16> feedback = ~before.feedback;
        bit<16> feedback_bits = ~before.feedback_bits;
        bit<128> signal = ~before.signal;

        read_signal.apply(hdr, after);
        if (hdr.udp.checksum != 0) {
            hash(hdr.udp.checksum, HashAlgorithm.csum16, 16w0, {
                check, flags_kind, after.flags_kind, hops, after.hops, feedback, after.feedback,
                feedback_bits, after.feedback_bits, signal, after.signal
            }, 17w0x10000);
            if (hdr.udp.checksum == 0)
                hdr.udp.checksum = 0xffff;
        }
    }
}

/* One more queue: `part` is its length, of IND whether it is above the threshold. */
control Fold(inout headers hdr, in bit<64> part)
{
    apply {
        bit<128> sum = hdr.signal.signal;
        bit<128> more = (bit<128>)part;

        if (hdr.signal.kind == SIGNAL_SUM || hdr.signal.kind == SIGNAL_SUM_SQU) {
            if (hdr.signal.kind == SIGNAL_SUM_SQU)
                more = (bit<128>)(part * part);		/* of at most 32 bits each */
            sum = sum + more;
            if (sum < more)
                sum = ~128w0;		/* what has no room is the largest number that has */
        } else if (more > sum) {
            sum = more;
        }
        hdr.signal.signal = sum;
        if (hdr.signal.hops != 255)
            hdr.signal.hops = hdr.signal.hops + 1;
    }
}

#endif
