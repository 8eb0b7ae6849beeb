/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Serialization time of a frame.
 *
 * Frame k of a busy period that began at t0 is sent completely at
 * t0 + round(8e9 * (bytes of frames 1..k, with overhead) / rate): every end is
 * the exact end rounded to the nearest nanosecond, for a period of any length.
 * The fraction is carried as a numerator over the rate, so no rounding error
 * accumulates.
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
	u64 free_ns;		/* end of the last frame's serialization */
	/* cached quotient and remainder of the last length */
	u32 length;
	u64 length_ns;
	u64 length_remainder;
};

static inline void qlink_wire_set(struct qlink_wire *wire,
				  struct qlink_wire_params params)
{
	wire->params = params;
	wire->carry = params.rate_bps / 2;
	wire->length = 0;
	wire->length_ns = 0;
	wire->length_remainder = 0;
}

/* Returns the end of the serialization of a frame of @length bytes that starts at @now_ns. */
static inline u64 qlink_wire_send(struct qlink_wire *wire, u64 now_ns, u32 length)
{
	u64 rate = wire->params.rate_bps;
	u64 duration_ns;

	length += wire->params.overhead_bytes;
	if (unlikely(length != wire->length)) {
		u64 scaled = length * QLINK_BITS_PER_BYTE * QLINK_NS_PER_SECOND;

		wire->length = length;
		wire->length_ns = scaled / rate;
		wire->length_remainder = scaled % rate;
	}
	/* An idle wire starts a new period. Half a unit turns the floor into rounding. */
	if (now_ns != wire->free_ns)
		wire->carry = rate / 2;
	duration_ns = wire->length_ns;
	/* carry, rest < rate: compare so that their sum cannot overflow */
	if (wire->carry >= rate - wire->length_remainder) {
		wire->carry -= rate - wire->length_remainder;
		duration_ns++;
	} else {
		wire->carry += wire->length_remainder;
	}
	wire->free_ns = now_ns + duration_ns;
	return wire->free_ns;
}

/*
 * Changes the parameters at @now_ns. The rest of the frame in transmission is
 * sent at the new rate. Returns the end of its serialization, rounded down to a
 * nanosecond.
 */
static inline u64 qlink_wire_change(struct qlink_wire *wire, u64 now_ns,
				  struct qlink_wire_params params)
{
	u64 left_ns = wire->free_ns > now_ns ? wire->free_ns - now_ns : 0;
	/* less than bits x 1e9 of one frame plus one unit: far below 2^64 */
	u64 scaled = left_ns * wire->params.rate_bps;

	qlink_wire_set(wire, params);
	wire->free_ns = now_ns + scaled / params.rate_bps;
	return wire->free_ns;
}

#endif /* _QLINK_WIRE_H */
