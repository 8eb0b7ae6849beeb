/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The congestion header, which follows UDP and carries signals between hosts
 * and switches. docs/formats.md section 6 describes the protocol;
 * tests/wire/vectors.json holds test vectors for all implementations.
 *
 * Network byte order. A packet has this header if it is UDP, one of its ports
 * is QSIGNAL_PORT and the header fits into it. A switch forwards packets of an
 * unknown version unchanged and counts them.
 */
#ifndef _UAPI_QBED_SIGNAL_H
#define _UAPI_QBED_SIGNAL_H

#include <linux/types.h>

#define QSIGNAL_PORT 6190	/* port of the receiver of data */
#define QSIGNAL_VERSION 1
#define QSIGNAL_COMPACT 2	/* version of the compact header */

enum qsignal_type {
	QSIGNAL_DATA = 1,	/* payload follows */
	QSIGNAL_ACK = 2,	/* acknowledges one data packet */
	QSIGNAL_FEEDBACK = 3,	/* QCN: feedback on one sampled data packet, to its sender */
};

enum qsignal_kind {
	QSIGNAL_NONE = 0,	/* switches add nothing */
	QSIGNAL_SUM = 1,
	QSIGNAL_SUM_SQU = 2,	/* sum of squares: the host takes the square root */
	QSIGNAL_MAX = 3,
	QSIGNAL_IND = 4,	/* 1 if any queue exceeded its threshold */
	QSIGNAL_VECTOR = 5,	/* each queue's length, the last one in the lowest bits */
};

enum qsignal_unit {
	QSIGNAL_PACKETS = 0,
	QSIGNAL_BYTES = 1,
	QSIGNAL_NS = 2,		/* queueing time */
};

/* flags */
#define QSIGNAL_REFLECTED 0x01	/* QCN: a congestion point sent feedback on this packet */
#define QSIGNAL_LAST 0x02	/* data: the payload ends the flow */
#define QSIGNAL_FORWARD 0x04	/* compact header only: the signal is that of the forward path */

struct qsignal_header {
	__u8	version;
	__u8	type;
	__u8	flags;
	__u8	kind;		/* requested signal, enum qsignal_kind */
	__u8	unit;		/* its unit, enum qsignal_unit */
	__u8	bits;		/* resolution of a queue's value in bits, 1 to 32 */
	__u8	hops;		/* number of queues that added to the signal; at most 255 */
	__u8	echo_hops;	/* ack: `hops` of the data packet on arrival */
	__be32	flow;		/* flow id, chosen by the sender; copied to acks and feedback */
	__be16	feedback;	/* QCN: quantized -Fb of the most congested queue so far; 0: no
				 * congestion
				 */
	__u8	feedback_bits;	/* QCN: bits of the quantizer; 0: not written by any congestion
				 * point
				 */
	__u8	reserved;	/* 0 */
	__be64	sequence;	/* data: packet number, never reused; ack, feedback: that of the
				 * data packet
				 */
	__be64	offset;		/* data: offset of the payload in the flow; ack: bytes of the flow
				 * received, without duplicates
				 */
	__be64	window;		/* ack: bit i is set if packet sequence - 1 - i was received; else 0
				 */
	__be64	time;		/* CLOCK_MONOTONIC of the packet's sender, ns */
	__be64	echo_time;	/* ack, feedback: `time` of the data packet */
	__be64	signal[2];	/* accumulated signal, 128 bits; an ack starts with that of its data
				 * packet
				 */
	__be64	echo_signal[2];	/* ack: signal of the data packet on arrival: forward path only */
};

#define QSIGNAL_HEADER_BYTES 88

/*
 * The compact header. Instead of lengths of queues it carries shares of a
 * buffer: a queue of b bits adds the number of its bin, of 2^b equal ones.
 */
struct qsignal_compact {
	__u8	version;	/* QSIGNAL_COMPACT */
	__u8	type;		/* enum qsignal_type << 6 | QSIGNAL_COMPACT_* | enum qsignal_kind */
	__u8	format;		/* enum qsignal_unit << 6 | bits - 1 */
	__u8	flow[4];	/* this and the next fields: as in the full header, network byte order */
	__u8	sequence[6];
	__u8	position[7];	/* data: `offset`; ack: `window` */
	__u8	signal[];	/* 0, 1, 2, 4 or 8 bytes: as many as its bits need */
};

#define QSIGNAL_COMPACT_LAST 0x20	/* QSIGNAL_LAST */
#define QSIGNAL_COMPACT_FORWARD 0x10	/* QSIGNAL_FORWARD */
#define QSIGNAL_COMPACT_STAMPED 0x08	/* at least one queue added to the signal */
#define QSIGNAL_COMPACT_BYTES 20	/* without the signal */

#endif /* _UAPI_QBED_SIGNAL_H */
