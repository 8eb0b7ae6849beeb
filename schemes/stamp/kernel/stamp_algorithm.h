/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Quantized queue length as the signal of a queue.
 *
 * Arslan and McKeown, Switches Know the Exact Amount of Congestion (BS '19),
 * 4.2: "The quantized value represents which equal sized bin the queue occupancy
 * lies in between zero and the full buffer size of 200 packets. We could
 * alternatively use a non-linear quantization, to give preference to a longer
 * bottleneck queue". README.md lists further choices.
 */
#ifndef _STAMP_ALGORITHM_H
#define _STAMP_ALGORITHM_H

#include <qbed/signal_header.h>

#include "stamp_scheme.h"

#define STAMP_UNITS 3			/* enum qsignal_unit */
#define STAMP_NS_PER_SECOND 1000000000ull
#define STAMP_MAX_BYTES (1ull << 31)	/* maximum for conversion to time: 2^34 bits times 10^9 fits
					 * into 64 bits
					 */

/* Values derived from the device and the parameters. */
struct stamp_vars {
	u64 rate_bps;			/* 0: unknown */
	u64 full[STAMP_UNITS];		/* a full buffer in each unit; 0: unknown */
};

/* The queue around a packet, without the packet. */
struct stamp_queue {
	u32 packets;
	u32 bytes;
	u64 sojourn_ns;			/* sojourn time of the packet, at dequeue */
};

/* Serialization time of @bytes, limited to that of 2 GiB. */
static inline u64 stamp_wire_ns(u64 bytes, u64 rate_bps)
{
	u64 bits = 8 * (bytes < STAMP_MAX_BYTES ? bytes : STAMP_MAX_BYTES);

	return bits / rate_bps * STAMP_NS_PER_SECOND +
	       bits % rate_bps * STAMP_NS_PER_SECOND / rate_bps;
}

/* @frame_bytes: maximum frame size, the conversion factor between packets and bytes */
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
	u64 counted_bytes = params->count_itself ? packet_bytes : 0;

	switch (unit) {
	case QSIGNAL_PACKETS:
		return (u64)queue->packets + !!params->count_itself;
	case QSIGNAL_BYTES:
		return queue->bytes + counted_bytes;
	default:
		if (params->at_enqueue)
			return stamp_wire_ns(queue->bytes + counted_bytes, vars->rate_bps);
		return queue->sojourn_ns + stamp_wire_ns(counted_bytes, vars->rate_bps);
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

/* Lower bound of @bin of 2^@bits; of the bin behind the last: @full. */
static inline u64 stamp_edge(const struct stamp_params *params, u64 full, u32 bits, u64 bin)
{
	if (params->fine_at_full)
		return full - stamp_power(params, full, bits, (1ull << bits) - bin, false);
	return stamp_power(params, full, bits, bin, true);
}

/* Bin of @length, of 2^@bits bins. */
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

/* Bin of @length in a compact header: its bins are equal. */
static inline u64 stamp_share(u64 full, u32 bits, u64 length)
{
	static const struct stamp_params equal = { .exponent = 1 };

	return stamp_bin(&equal, full, bits, length < full ? length : full);
}

/*
 * Quantizes @length to @bits: the representative of its bin, in the same unit.
 * Lengths beyond the buffer are in the last bin.
 */
static inline u64 stamp_quantized(const struct stamp_params *params, u64 full, u32 bits, u64 length)
{
	u64 bin, first, last;

	if (length > full)
		length = full;
	if (params->exponent == 1 && full >> bits == 0)
		return length;		/* bins are narrower than a unit */
	bin = stamp_bin(params, full, bits, length);
	first = stamp_edge(params, full, bits, bin);
	if (!params->middle)
		return first;
	last = bin + 1 == 1ull << bits ? full : stamp_edge(params, full, bits, bin + 1) - 1;
	return first + (last - first) / 2;
}

enum stamp_verdict {
	STAMP_FOLD,		/* add `part` to the signal */
	STAMP_LEAVE,		/* leave the header unchanged */
	STAMP_NO_RATE,		/* time requested, but the link rate is unknown */
};

/* Computes the value that this queue adds to a valid @header. */
static inline enum stamp_verdict stamp_part(const struct stamp_params *params,
					    const struct stamp_vars *vars,
					    const struct stamp_queue *queue,
					    const struct qsignal_header *header,
					    u32 packet_bytes, u64 *part)
{
	u32 counted = !!params->count_itself;

	bool compact = header->version == QSIGNAL_COMPACT;
	bool forward = compact && header->flags & QSIGNAL_FORWARD;
	u64 length;

	if (header->kind == QSIGNAL_NONE || header->type == QSIGNAL_FEEDBACK ||
	    (header->type == QSIGNAL_ACK && (!params->reverse || forward)))
		return STAMP_LEAVE;
	if (header->kind == QSIGNAL_IND) {
		*part = (u64)queue->packets + counted > params->threshold_packets ||
			(u64)queue->bytes + counted * packet_bytes > params->threshold_bytes;
		return STAMP_FOLD;
	}
	if (!vars->full[header->unit])
		return STAMP_NO_RATE;
	length = stamp_length(params, vars, queue, header->unit, packet_bytes);
	if (header->kind == QSIGNAL_VECTOR)
		*part = length;
	else if (compact)
		*part = stamp_share(vars->full[header->unit], header->bits, length);
	else
		*part = stamp_quantized(params, vars->full[header->unit], header->bits, length);
	return STAMP_FOLD;
}

#endif /* _STAMP_ALGORITHM_H */
