/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A sender's rate controller: time and signal in, a rate out. It knows no
 * kernel, no clock and no randomness of its own, so that one text runs in the
 * module qrate and in the tests in user space.
 *
 * schemes/SCHEME/host/NAME.h is one: struct NAME_state, the functions below
 * (those that it has nothing to say to are NULL) and
 *
 *	static const struct rate_controller NAME_controller = { .name = "NAME", ... };
 *
 * struct NAME_params and NAME_parse() are generated from its declaration,
 * schemes/SCHEME/host/NAME.yml. All numbers are integers; a kernel has no
 * floating point.
 */
#ifndef _QBED_CONTROLLER_H
#define _QBED_CONTROLLER_H

#include <qbed/types.h>
#include <qbed/signal.h>

/* Of one data packet that was acknowledged. */
struct rate_ack {
	u64 now_ns;
	u64 rtt_ns;	/* of this packet, switches' and receiver's time included */
	u64 signal;	/* of its path, in the sender's unit; of SUM_SQU the root; U64_MAX if it does not fit */
	u32 bytes;	/* of its IP packet */
	bool has_signal;	/* a switch has added to it */
	u8 kind;	/* what the flow asked switches for, enum qsignal_kind: QSIGNAL_NONE: it has no signal */
	u8 unit;	/* enum qsignal_unit */
};

/* QCN: what a congestion point or the receiver reflected. */
struct rate_feedback {
	u64 now_ns;
	u32 magnitude;	/* |Fb| as it was quantized; 0: positive reinforcement */
	u32 most;	/* the largest that the quantizer has: 2^bits - 1 */
};

struct rate_controller {
	const char *name;
	unsigned int state_bytes;
	unsigned int params_bytes;
	/* The flow starts, or starts again after it was idle. */
	void (*start)(void *state, const void *params, u64 now_ns);
	void (*on_ack)(void *state, const void *params, const struct rate_ack *ack);
	void (*on_feedback)(void *state, const void *params, const struct rate_feedback *feedback);
	/* A packet leaves (bytes: of its IP packet). */
	void (*on_sent)(void *state, const void *params, u64 now_ns, u32 bytes);
	/* A packet was found to be lost; a timeout is one, too. */
	void (*on_loss)(void *state, const void *params, u64 now_ns);
	/* bit/s of IP packets, at least 1. */
	u64 (*rate)(const void *state, const void *params);
};

/* The 1 of a fraction (`one: 1048576` of its declaration): times a rate of RATE_MOST it fits 64 bits. */
#define RATE_ONE (1ull << 20)
#define RATE_MOST 400000000000ull	/* bit/s, the `max` of every declared rate */

static inline u64 rate_within(u64 rate_bps, u64 least_bps, u64 most_bps)
{
	return rate_bps < least_bps ? least_bps : rate_bps > most_bps ? most_bps : rate_bps;
}

/* A share of a rate of at most RATE_MOST, of RATE_ONE; more than the whole is the whole. */
static inline u64 rate_share(u64 rate_bps, u64 share)
{
	return share < RATE_ONE ? rate_bps * share / RATE_ONE : rate_bps;
}

#define RATE_QUEUE_MOST (1ull << 31)	/* bytes of a path's queues; times 8e9 it fits 64 bits */

/* What an occupancy needs to drain at a rate, ns; a packet of it is @packet_bytes. Not of QSIGNAL_IND. */
static inline u64 rate_queueing_ns(const struct rate_ack *ack, u32 packet_bytes, u64 rate_bps)
{
	u64 bytes = ack->signal;

	if (ack->unit == QSIGNAL_NS)
		return ack->signal;
	if (ack->unit == QSIGNAL_PACKETS)
		bytes = bytes < RATE_QUEUE_MOST ? bytes * packet_bytes : RATE_QUEUE_MOST;
	if (bytes > RATE_QUEUE_MOST)
		bytes = RATE_QUEUE_MOST;
	return bytes * 8 * 1000000000 / rate_bps;
}

#endif /* _QBED_CONTROLLER_H */
