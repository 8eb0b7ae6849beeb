/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The congestion header: what a host, the switches on the way and the other
 * host tell each other, behind UDP. docs/wire-format.md says how it is used;
 * tests/wire/vectors.json holds packets that every reader of it is tested with.
 *
 * Network byte order. A packet is ours if it is UDP, one of its ports is
 * QSIGNAL_PORT and the header fits into it. A switch forwards a version that it
 * does not know untouched, and counts it.
 */
#ifndef _UAPI_QBED_SIGNAL_H
#define _UAPI_QBED_SIGNAL_H

#include <linux/types.h>

#define QSIGNAL_PORT 6190	/* of who receives data */
#define QSIGNAL_VERSION 1

enum qsignal_type {
	QSIGNAL_DATA = 1,	/* payload follows */
	QSIGNAL_ACK = 2,	/* of one data packet, back to its sender */
	QSIGNAL_FEEDBACK = 3,	/* QCN: of one sampled data packet, to its sender */
};

enum qsignal_kind {
	QSIGNAL_NONE = 0,	/* switches add nothing */
	QSIGNAL_SUM = 1,
	QSIGNAL_SUM_SQU = 2,	/* of squares: the host takes the root */
	QSIGNAL_MAX = 3,
	QSIGNAL_IND = 4,	/* 1 if any queue exceeded its switch's threshold */
};

enum qsignal_unit {
	QSIGNAL_PACKETS = 0,
	QSIGNAL_BYTES = 1,
	QSIGNAL_NS = 2,		/* queueing time */
};

/* flags */
#define QSIGNAL_REFLECTED 0x01	/* QCN: a congestion point has sent feedback of this packet */
#define QSIGNAL_LAST 0x02	/* data: its payload ends the flow */

struct qsignal_header {
	__u8	version;
	__u8	type;
	__u8	flags;
	__u8	kind;		/* which signal the sender asks for, ... */
	__u8	unit;		/* ... in which unit, ... */
	__u8	bits;		/* ... in how many bits a switch may say its part: 1 to 32 */
	__u8	hops;		/* queues that added to the signal; at most 255 */
	__u8	echo_hops;	/* ack: hops of the data packet as it arrived */
	__be32	flow;		/* the sender's number of the flow; acks and feedback have it, too */
	__be16	feedback;	/* QCN: -Fb of the worst queue so far, quantized; 0: no congestion */
	__u8	feedback_bits;	/* QCN: the quantizer's; 0: no congestion point has written */
	__u8	reserved;	/* 0 */
	__be64	sequence;	/* data: number of the packet, never used twice; else of the packet that it answers */
	__be64	offset;		/* data: of the payload in the flow; ack: bytes of the flow that have arrived, each counted once */
	__be64	window;		/* ack: bit i: packet sequence - 1 - i has arrived, too; else 0 */
	__be64	time;		/* CLOCK_MONOTONIC of who sent this packet, ns */
	__be64	echo_time;	/* ack, feedback: time of the packet that it answers */
	__be64	signal[2];	/* of the queues so far, 128 bits; an ack starts with what its data packet had */
	__be64	echo_signal[2];	/* ack: signal of the data packet as it arrived: the forward path alone */
};

#define QSIGNAL_HEADER_BYTES 88

#endif /* _UAPI_QBED_SIGNAL_H */
