/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DCTCP's algorithm for rates, driven by the extent of congestion that switches report.
 *
 * Alizadeh et al., Data Center TCP (SIGCOMM 2010), section 3.1, once in a round
 * trip, F the share of packets that were marked in it:
 *
 *	alpha <- (1 - g) x alpha + g x F
 *	cwnd <- cwnd x (1 - alpha / 2)	if any was marked, else it grows by one
 *
 * Here F is the mean of the packets' extents of congestion: 0 below q_low, 1
 * above q_high, linear in between. With one bit (QSIGNAL_IND) that is DCTCP.
 *
 * With a vector of the queues' lengths (QSIGNAL_VECTOR) each queue has its
 * extent. The path's is the largest, or, with `any_queue`, the probability
 * that at least one of the queues marks a packet if each marks with its extent.
 */
#ifndef _EXTENT_H
#define _EXTENT_H

#include "extent_controller.h"

struct extent_state {
	u64 rate_bps;
	u64 begun_ns;	/* start of the round trip */
	u64 sum;	/* of its packets' extents, in 1 / RATE_ONE */
	u64 packets;
	u64 smoothed;	/* alpha */
};

/* Like DCTCP's alpha, `smoothed` starts with 1: the first congestion halves the rate. */
static inline void extent_start(void *state, const void *params, u64 now_ns)
{
	*(struct extent_state *)state = (struct extent_state) {
		.rate_bps = ((const struct extent_params *)params)->start_rate_bps,
		.begun_ns = now_ns,
		.smoothed = RATE_ONE,
	};
}

static inline u64 extent_of_queue(const struct extent_params *params, const struct rate_ack *ack)
{
	u64 queueing_ns, range_ns = params->q_high_ns - params->q_low_ns;

	if (ack->kind == QSIGNAL_IND)
		return ack->signal ? RATE_ONE : 0;
	if (ack->kind != QSIGNAL_NONE)
		queueing_ns = rate_queueing_ns(ack, params->packet_bytes, params->queue_rate_bps);
	else
		queueing_ns = ack->rtt_ns > params->min_rtt_ns ? ack->rtt_ns - params->min_rtt_ns : 0;
	if (queueing_ns <= params->q_low_ns)
		return 0;
	if (queueing_ns >= params->q_high_ns)
		return RATE_ONE;
	return (queueing_ns - params->q_low_ns) * RATE_ONE / range_ns;
}

static inline u64 extent_of(const struct extent_params *params, const struct rate_ack *ack)
{
	struct rate_ack one = *ack;
	u64 unmarked = RATE_ONE;
	u32 i;

	if (ack->kind != QSIGNAL_VECTOR || !params->any_queue)
		return extent_of_queue(params, ack);
	for (i = 0; i < ack->queues; i++) {
		one.signal = qsignal_entry(ack->vector, ack->bits, i);
		unmarked = unmarked * (RATE_ONE - extent_of_queue(params, &one)) / RATE_ONE;
	}
	return RATE_ONE - unmarked;
}

static inline void extent_on_ack(void *state, const void *params, const struct rate_ack *ack)
{
	const struct extent_params *p = params;
	struct extent_state *vars = state;
	u64 mean;

	/* Without a signal from any switch the rate does not change. */
	if (ack->kind != QSIGNAL_NONE && !ack->has_signal)
		return;
	vars->sum += extent_of(p, ack);
	vars->packets++;
	if (ack->now_ns - vars->begun_ns < ack->rtt_ns)
		return;
	mean = vars->sum / vars->packets;
	vars->smoothed += ((s64)mean - (s64)vars->smoothed) * p->gain / (s64)RATE_ONE;
	if (mean)
		vars->rate_bps -= rate_share(vars->rate_bps, vars->smoothed / 2);
	else
		vars->rate_bps += p->step_bps;
	vars->rate_bps = rate_clamp(vars->rate_bps, p->min_rate_bps, p->max_rate_bps);
	vars->begun_ns = ack->now_ns;
	vars->sum = 0;
	vars->packets = 0;
}

static inline u64 extent_rate(const void *state, const void *params)
{
	return ((const struct extent_state *)state)->rate_bps;
}

static const struct rate_controller extent_controller = {
	.name = "extent",
	.state_bytes = sizeof(struct extent_state),
	.params_bytes = sizeof(struct extent_params),
	.start = extent_start,
	.on_ack = extent_on_ack,
	.rate = extent_rate,
};

#endif /* _EXTENT_H */
