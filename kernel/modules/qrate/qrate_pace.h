/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pacing: when the next packet may be sent.
 *
 * At a constant rate, packet k is sent at
 * t0 + round(8e9 * (bytes of packets 0..k-1) / rate). The fraction of a
 * nanosecond is carried as a numerator over the rate, so no rounding error
 * accumulates over the flow.
 */
#ifndef _QRATE_PACE_H
#define _QRATE_PACE_H

#include <qbed/types.h>

#ifdef __KERNEL__
#include <linux/math64.h>
#else
static inline u64 mul_u64_u64_div_u64(u64 a, u64 b, u64 c)
{
	return (__uint128_t)a * b / c;
}
#endif

#define QRATE_BIT_NS_PER_BYTE 8000000000ull
#define QRATE_MAX_BPS (1ull << 60)

struct qrate_pace {
	u64 next_ns;		/* no packet is sent before */
	u64 rate_bps;		/* rate used for next_ns; 0: none yet */
	u64 carry;		/* fraction of a ns, in units of 1 / rate_bps ns */
};

static inline void qrate_pace_set_rate(struct qrate_pace *pace, u64 rate_bps)
{
	if (rate_bps > QRATE_MAX_BPS)
		rate_bps = QRATE_MAX_BPS;
	if (unlikely(!rate_bps))
		rate_bps = 1;
	if (likely(rate_bps == pace->rate_bps))
		return;
	/* Keep the fraction. It starts with half a unit, which turns the floor into rounding. */
	pace->carry = pace->rate_bps ?
		mul_u64_u64_div_u64(pace->carry, rate_bps, pace->rate_bps) : rate_bps / 2;
	pace->rate_bps = rate_bps;
}

/* A packet of @bytes is sent at next_ns. */
static inline void qrate_pace_sent(struct qrate_pace *pace, u32 bytes, u64 rate_bps)
{
	u64 scaled = bytes * QRATE_BIT_NS_PER_BYTE;
	u64 rest;

	qrate_pace_set_rate(pace, rate_bps);
	pace->next_ns += scaled / pace->rate_bps;
	rest = scaled % pace->rate_bps;
	pace->carry += rest;	/* both are below 2^60 */
	if (pace->carry >= pace->rate_bps) {
		pace->carry -= pace->rate_bps;
		pace->next_ns++;
	}
}

/* The rate increased while a packet waits: shorten the rest of the wait. */
static inline void qrate_pace_speed_up(struct qrate_pace *pace, u64 now_ns, u64 rate_bps)
{
	u64 before_bps = pace->rate_bps;

	if (pace->next_ns <= now_ns || rate_bps <= before_bps || !before_bps)
		return;
	qrate_pace_set_rate(pace, rate_bps);
	pace->next_ns = now_ns + mul_u64_u64_div_u64(pace->next_ns - now_ns, before_bps,
						     pace->rate_bps);
}

#endif /* _QRATE_PACE_H */
