/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interface of a sender's rate controller: its inputs are time and signals, its
 * output is a rate. A controller uses no kernel function, no clock and no
 * randomness, so the same source is compiled into the module qrate and into the
 * unit tests.
 *
 * schemes/SCHEME/host/NAME.h holds a controller: struct NAME_state, the
 * callbacks below (NULL if unused) and
 *
 *	static const struct rate_controller NAME_controller = { .name = "NAME", ... };
 *
 * struct NAME_params and NAME_parse() are generated from its declaration,
 * schemes/SCHEME/host/NAME.yml. All numbers are integers, since the kernel has
 * no floating point.
 */
#ifndef _QBED_CONTROLLER_H
#define _QBED_CONTROLLER_H

#include <qbed/types.h>
#include <qbed/signal_header.h>

/* One acknowledged data packet. */
struct rate_ack {
	u64 now_ns;
	u64 rtt_ns;	/* of this packet, including queueing and receiver time */
	u64 signal;	/* of the path, in the sender's unit; for SUM_SQU its square root; U64_MAX
			 * on overflow
			 */
	u32 bytes;	/* length of the IP packet */
	bool has_signal;	/* at least one switch added to it */
	u8 kind;	/* requested signal, enum qsignal_kind; QSIGNAL_NONE: no signal */
	u8 unit;	/* enum qsignal_unit */
	u8 bits;	/* of a queue's length in the vector */
	u8 queues;	/* QSIGNAL_VECTOR: number of lengths in the vector; `signal` is their maximum */
	struct qsignal_value vector;
};

/* QCN feedback from a congestion point or from the receiver. */
struct rate_feedback {
	u64 now_ns;
	u32 magnitude;	/* quantized |Fb|; 0: positive reinforcement */
	u32 max;	/* largest value of the quantizer: 2^bits - 1 */
};

struct rate_controller {
	const char *name;
	unsigned int state_bytes;
	unsigned int params_bytes;
	/* The flow starts, or restarts after an idle period. */
	void (*start)(void *state, const void *params, u64 now_ns);
	void (*on_ack)(void *state, const void *params, const struct rate_ack *ack);
	void (*on_feedback)(void *state, const void *params, const struct rate_feedback *feedback);
	/* A packet is sent; @bytes is the length of the IP packet. */
	void (*on_sent)(void *state, const void *params, u64 now_ns, u32 bytes);
	/* A packet was declared lost, by later acknowledgements or by a timeout. */
	void (*on_loss)(void *state, const void *params, u64 now_ns);
	/* Sending rate in bit/s of IP packets, at least 1. */
	u64 (*rate)(const void *state, const void *params);
};

/*
 * A fraction of 1 (`scale: 1048576` in the declaration). Its product with
 * RATE_MAX fits into 64 bits.
 */
#define RATE_ONE (1ull << 20)
#define RATE_MAX 400000000000ull	/* bit/s, the `max` of all declared rates */

static inline u64 rate_clamp(u64 rate_bps, u64 min_bps, u64 max_bps)
{
	return rate_bps < min_bps ? min_bps : rate_bps > max_bps ? max_bps : rate_bps;
}

/*
 * @share of @rate_bps. The share is in units of 1 / RATE_ONE and is limited to
 * 1; the rate is at most RATE_MAX.
 */
static inline u64 rate_share(u64 rate_bps, u64 share)
{
	return share < RATE_ONE ? rate_bps * share / RATE_ONE : rate_bps;
}

#define RATE_QUEUE_MAX_BYTES (1ull << 31)	/* occupancy of a path; times 8e9 it fits into 64
						 * bits
						 */

/*
 * Time in ns that the occupancy in @ack takes to drain at @rate_bps.
 * @packet_bytes is the size of a packet where the unit is packets. Not for
 * QSIGNAL_IND.
 */
static inline u64 rate_queueing_ns(const struct rate_ack *ack, u32 packet_bytes, u64 rate_bps)
{
	u64 bytes = ack->signal;

	if (ack->unit == QSIGNAL_NS)
		return ack->signal;
	if (ack->unit == QSIGNAL_PACKETS)
		bytes = bytes < RATE_QUEUE_MAX_BYTES ? bytes * packet_bytes : RATE_QUEUE_MAX_BYTES;
	if (bytes > RATE_QUEUE_MAX_BYTES)
		bytes = RATE_QUEUE_MAX_BYTES;
	return bytes * 8 * 1000000000 / rate_bps;
}

#endif /* _QBED_CONTROLLER_H */
