/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Decisions of rpm other than Linux's CoDel: "the switch can use an arbitrary
 * AQM". CODEL_TOFINO decides when a packet is dequeued; RED, STEP and LINEAR
 * when it is enqueued, so that the signal does not wait in the queue either.
 *
 * README.md has the sources. p4/decisions.p4 has the same steps.
 */
#ifndef _RPM_DECIDES_H
#define _RPM_DECIDES_H

#include "rpm_scheme.h"

#define RPM_ONE 1000000000000ull	/* of eta and probability: 2^12 * 5^12 */
#define RPM_INVERSE_ROOT_ONE 0xffffu	/* 1 / sqrt(1), in 1 / 2^16 */
#define RPM_EXCESS_MAX (1u << 23)	/* times a probability it fits 64 bits */

/* CODEL_TOFINO. Times are in any unit, the same for all. */
struct rpm_tofino_vars {
	u64 due;		/* when the next signal is due */
	u32 count;		/* signals of this excursion above the target, plus one */
	u16 inverse_root;	/* 1 / sqrt(count) */
	bool above;		/* the last packet had waited for the target */
};

struct rpm_red_vars {
	u64 average;		/* queue in packets, times 2^wlog */
	u64 random;		/* drawn for the first packet behind a mark, in 1 / RPM_ONE */
	u32 count;		/* packets since the last mark, or since the average reached min */
};

/* State of the port's law; only one of the two is used. */
struct rpm_decides_vars {
	struct rpm_tofino_vars tofino;
	struct rpm_red_vars red;
};

static inline bool rpm_decides_at_enqueue(const struct rpm_params *params)
{
	return params->decides == RPM_DECIDES_RED || params->decides == RPM_DECIDES_STEP ||
	       params->decides == RPM_DECIDES_LINEAR;
}

/*
 * Four steps of Newton's method from 1 / sqrt(count - 1). One step, as in Linux,
 * gives 1/2 for a count of 2, and the first signal here has that count.
 */
static inline u16 rpm_inverse_root(u16 inverse_root, u32 count)
{
	int step;

	for (step = 0; step < 4; step++) {
		u64 root = (u64)inverse_root << 16;
		u64 square = root * root >> 32;
		u64 value = ((3ull << 32) - count * square) >> 2;

		inverse_root = (value * root >> 31) >> 16;
	}
	return inverse_root;
}

/*
 * A packet that has @waited is dequeued. Returns true if it signals congestion.
 * The first packet of an excursion starts the interval and the count, and one
 * packet below the target ends the excursion.
 */
static inline bool rpm_tofino_on_dequeue(struct rpm_tofino_vars *vars, u64 target, u64 interval,
					 u64 waited, u64 now)
{
	if (waited < target) {
		vars->above = false;
		return false;
	}
	if (!vars->above) {
		vars->above = true;
		vars->count = 1;
		vars->inverse_root = RPM_INVERSE_ROOT_ONE;
		vars->due = now + interval;
		return false;
	}
	if (now <= vars->due)
		return false;
	vars->count++;
	vars->inverse_root = rpm_inverse_root(vars->inverse_root, vars->count);
	vars->due += interval * vars->inverse_root >> 16;
	return true;
}

/* Converts a random 32-bit integer to a share of RPM_ONE. */
static inline u64 rpm_random_share(u32 random)
{
	return (u64)random * (RPM_ONE >> 12) >> 20;
}

/* RED: the probability at an average between the thresholds, in 1 / RPM_ONE. */
static inline u64 rpm_red_probability(const struct rpm_params *params, u64 average)
{
	u64 slope = params->probability / (params->max_packets - params->min_packets);

	return (average - ((u64)params->min_packets << params->wlog)) * slope >> params->wlog;
}

/* RED marks with a uniformly distributed distance between marks. */
static inline bool rpm_red_on_enqueue(const struct rpm_params *params, struct rpm_red_vars *vars,
				      u32 queue_packets, u32 random)
{
	vars->average += queue_packets - (vars->average >> params->wlog);
	if (vars->average < (u64)params->min_packets << params->wlog) {
		vars->count = 0;
		return false;
	}
	if (vars->average < (u64)params->max_packets << params->wlog) {
		if (!vars->count)
			vars->random = rpm_random_share(random);
		if (vars->count < RPM_EXCESS_MAX)
			vars->count++;
		if (vars->random >= vars->count * rpm_red_probability(params, vars->average))
			return false;
	}
	vars->count = 0;
	return true;
}

/* "eta (q - q_0)", q_0 being the threshold. */
static inline bool rpm_linear_on_enqueue(const struct rpm_params *params, u32 queue_packets,
					 u32 random)
{
	u64 excess;

	if (queue_packets <= params->threshold_packets)
		return false;
	excess = queue_packets - params->threshold_packets;
	if (excess > RPM_EXCESS_MAX)
		excess = RPM_EXCESS_MAX;
	return rpm_random_share(random) < params->eta * excess;
}

/*
 * A packet that fits is enqueued behind @queue_packets. Returns true if it
 * signals congestion. @random: a random 32-bit integer
 */
static inline bool rpm_decides_on_enqueue(const struct rpm_params *params,
					  struct rpm_decides_vars *vars, u32 queue_packets,
					  u32 random)
{
	switch (params->decides) {
	case RPM_DECIDES_RED:
		return rpm_red_on_enqueue(params, &vars->red, queue_packets, random);
	case RPM_DECIDES_STEP:
		return queue_packets > params->threshold_packets;
	case RPM_DECIDES_LINEAR:
		return rpm_linear_on_enqueue(params, queue_packets, random);
	default:
		return false;
	}
}

#endif /* _RPM_DECIDES_H */
