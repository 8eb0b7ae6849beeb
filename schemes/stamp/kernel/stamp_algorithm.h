/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a queue says of itself: its length, in one of a few bins.
 *
 * Arslan and McKeown, Switches Know the Exact Amount of Congestion (BS '19),
 * 4.2: "The quantized value represents which equal sized bin the queue occupancy
 * lies in between zero and the full buffer size of 200 packets. We could
 * alternatively use a non-linear quantization, to give preference to a longer
 * bottleneck queue". README.md says what was decided beyond that.
 */
#ifndef _STAMP_ALGORITHM_H
#define _STAMP_ALGORITHM_H

#include <qbed/signal_header.h>

#include "stamp_scheme.h"

#define STAMP_UNITS 3			/* enum qsignal_unit */
#define STAMP_NS_PER_SECOND 1000000000ull
#define STAMP_MOST_BYTES (1ull << 31)	/* whose time is known: 2^34 bits times 10^9 fit into 64 */

/* What is known of the device, and what follows from it and the parameters. */
struct stamp_vars {
	u64 rate_bps;			/* 0: not known */
	u64 full[STAMP_UNITS];		/* a full buffer in each unit; 0: not known */
};

/* The queue around a packet, without the packet. */
struct stamp_queue {
	u32 packets;
	u32 bytes;
	u64 waited_ns;			/* by the packet, as it leaves */
};

/* The time of @bytes on the wire; of more than 2 GiB, that of 2 GiB. */
static inline u64 stamp_wire_ns(u64 bytes, u64 rate_bps)
{
	u64 bits = 8 * (bytes < STAMP_MOST_BYTES ? bytes : STAMP_MOST_BYTES);

	return bits / rate_bps * STAMP_NS_PER_SECOND +
	       bits % rate_bps * STAMP_NS_PER_SECOND / rate_bps;
}

/* @frame_bytes: the device's largest, which stands for a packet where the buffer has another unit. */
static inline void stamp_vars_set(struct stamp_vars *vars, const struct stamp_params *params,
				  u64 rate_bps, u32 frame_bytes)
{
	u64 bytes = params->buffer_bytes, packets = params->buffer_packets;

	if (params->buffer_packets == STAMP_NO_BOUND)
		packets = bytes < frame_bytes ? 1 : bytes / frame_bytes;
	else if (params->buffer_bytes == STAMP_NO_BOUND || packets * frame_bytes < bytes)
		bytes = packets * frame_bytes;
	vars->rate_bps = rate_bps;
	vars->full[QSIGNAL_PACKETS] = packets;
	vars->full[QSIGNAL_BYTES] = bytes;
	vars->full[QSIGNAL_NS] = rate_bps ? stamp_wire_ns(bytes, rate_bps) : 0;
}

static inline bool stamp_fits(const struct stamp_params *params, const struct stamp_queue *queue,
			      u32 packet_bytes)
{
	return queue->packets < params->buffer_packets &&
	       (u64)queue->bytes + packet_bytes <= params->buffer_bytes;
}

/* The queue's length in @unit, for a packet of @packet_bytes. */
static inline u64 stamp_length(const struct stamp_params *params, const struct stamp_vars *vars,
			       const struct stamp_queue *queue, u8 unit, u32 packet_bytes)
{
	u64 own_bytes = params->count_own ? packet_bytes : 0;

	switch (unit) {
	case QSIGNAL_PACKETS:
		return (u64)queue->packets + !!params->count_own;
	case QSIGNAL_BYTES:
		return queue->bytes + own_bytes;
	default:
		if (params->at_enqueue)
			return stamp_wire_ns(queue->bytes + own_bytes, vars->rate_bps);
		return queue->waited_ns + stamp_wire_ns(own_bytes, vars->rate_bps);
	}
}

/* @full x (@step / 2^@bits)^exponent, rounded @up or down */
static inline u64 stamp_power(const struct stamp_params *params, u64 full, u32 bits, u64 step,
			      bool up)
{
	u32 shift = bits * params->exponent;
	__uint128_t product;

	if (step >> bits)
		return full;
	product = (__uint128_t)full * (params->exponent == 2 ? step * step : step);
	if (up)
		product += ((__uint128_t)1 << shift) - 1;
	return product >> shift;
}

/* The least length in @bin of 2^@bits; of the bin behind the last: @full. */
static inline u64 stamp_edge(const struct stamp_params *params, u64 full, u32 bits, u64 bin)
{
	if (params->fine_at_full)
		return full - stamp_power(params, full, bits, (1ull << bits) - bin, false);
	return stamp_power(params, full, bits, bin, true);
}

/* The last of 2^@bits bins that begins at @length or before. */
static inline u64 stamp_bin(const struct stamp_params *params, u64 full, u32 bits, u64 length)
{
	u64 first = 0, behind = 1ull << bits;

	while (behind - first > 1) {
		u64 middle = first + (behind - first) / 2;

		if (stamp_edge(params, full, bits, middle) <= length)
			first = middle;
		else
			behind = middle;
	}
	return first;
}

/*
 * @length in @bits: what stands for its bin, in the same unit. Lengths beyond
 * the buffer are in the last bin.
 */
static inline u64 stamp_quantized(const struct stamp_params *params, u64 full, u32 bits, u64 length)
{
	u64 bin, first, last;

	if (length > full)
		length = full;
	if (params->exponent == 1 && full >> bits == 0)
		return length;		/* bins are finer than a unit */
	bin = stamp_bin(params, full, bits, length);
	first = stamp_edge(params, full, bits, bin);
	if (!params->middle)
		return first;
	last = bin + 1 == 1ull << bits ? full : stamp_edge(params, full, bits, bin + 1) - 1;
	return first + (last - first) / 2;
}

enum stamp_verdict {
	STAMP_FOLD,		/* the part is this queue's */
	STAMP_LEAVE,		/* the header is not for this queue */
	STAMP_NO_RATE,		/* a queueing time that is not known */
};

/* What this queue adds to a well-formed @header. */
static inline enum stamp_verdict stamp_part(const struct stamp_params *params,
					    const struct stamp_vars *vars,
					    const struct stamp_queue *queue,
					    const struct qsignal_header *header,
					    u32 packet_bytes, u64 *part)
{
	u32 own = !!params->count_own;

	if (header->kind == QSIGNAL_NONE || header->type == QSIGNAL_FEEDBACK ||
	    (header->type == QSIGNAL_ACK && !params->reverse))
		return STAMP_LEAVE;
	if (header->kind == QSIGNAL_IND) {
		*part = (u64)queue->packets + own > params->threshold_packets ||
			(u64)queue->bytes + own * packet_bytes > params->threshold_bytes;
		return STAMP_FOLD;
	}
	if (!vars->full[header->unit])
		return STAMP_NO_RATE;
	*part = stamp_quantized(params, vars->full[header->unit], header->bits,
				stamp_length(params, vars, queue, header->unit, packet_bytes));
	return STAMP_FOLD;
}

#endif /* _STAMP_ALGORITHM_H */
