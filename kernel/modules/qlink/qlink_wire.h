/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How long a frame occupies the wire.
 *
 * Frame k of a busy period that began at t0 leaves at
 * t0 + round(8e9 * (bytes of frames 1..k, with overhead) / rate): every end is
 * the exact end rounded to the nearest nanosecond, however long the period.
 * The fraction is carried as a numerator over the rate, so nothing is lost.
 */
#ifndef _QLINK_WIRE_H
#define _QLINK_WIRE_H

#include <qbed/types.h>

#define QLINK_BITS_PER_BYTE 8ull
#define QLINK_NS_PER_SECOND 1000000000ull

struct qlink_wire_params {
	u64 rate_bps;		/* at least 1 */
	u32 overhead_bytes;	/* added to each frame */
};

struct qlink_wire {
	struct qlink_wire_params params;
	u64 carry;		/* fraction of a ns, in units of 1 / rate_bps ns */
	u64 free_ns;		/* when the last frame's serialization ends */
	/* quotient and remainder of the last length: most frames have the same */
	u32 length;
	u64 length_ns;
	u64 length_rest;
};

static inline void qlink_wire_set(struct qlink_wire *wire,
				  struct qlink_wire_params params)
{
	wire->params = params;
	wire->carry = params.rate_bps / 2;
	wire->length = 0;
	wire->length_ns = 0;
	wire->length_rest = 0;
}

/* The time at which a frame of @length bytes, begun at @now_ns, has left. */
static inline u64 qlink_wire_send(struct qlink_wire *wire, u64 now_ns, u32 length)
{
	u64 rate = wire->params.rate_bps;
	u64 duration_ns;

	length += wire->params.overhead_bytes;
	if (unlikely(length != wire->length)) {
		u64 scaled = length * QLINK_BITS_PER_BYTE * QLINK_NS_PER_SECOND;

		wire->length = length;
		wire->length_ns = scaled / rate;
		wire->length_rest = scaled % rate;
	}
	/* An idle wire starts a new period; half a unit makes the floor round. */
	if (now_ns != wire->free_ns)
		wire->carry = rate / 2;
	duration_ns = wire->length_ns;
	/* carry, rest < rate: compare so that their sum cannot overflow */
	if (wire->carry >= rate - wire->length_rest) {
		wire->carry -= rate - wire->length_rest;
		duration_ns++;
	} else {
		wire->carry += wire->length_rest;
	}
	wire->free_ns = now_ns + duration_ns;
	return wire->free_ns;
}

/*
 * Other params from @now_ns on. What is left of the frame that is being sent is
 * sent at the new rate: returns when it has left, to the nanosecond below.
 */
static inline u64 qlink_wire_turn(struct qlink_wire *wire, u64 now_ns,
				  struct qlink_wire_params params)
{
	u64 left_ns = wire->free_ns > now_ns ? wire->free_ns - now_ns : 0;
	/* bits x 1e9 of one frame, and less than a unit more: far below 2^64 */
	u64 scaled = left_ns * wire->params.rate_bps;

	qlink_wire_set(wire, params);
	wire->free_ns = now_ns + scaled / params.rate_bps;
	return wire->free_ns;
}

#endif /* _QLINK_WIRE_H */
