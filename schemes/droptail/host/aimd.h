/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Additive increase, multiplicative decrease of a rate (Chiu and Jain, 1989),
 * once in a round trip: with a packet that waited longer than the threshold, or
 * with a loss, the rate is cut by a share, otherwise it grows by a step.
 */
#ifndef _AIMD_H
#define _AIMD_H

#include "aimd_controller.h"

struct aimd_state {
	u64 rate_bps;
	u64 begun_ns;	/* start of the round trip */
	bool congested;	/* a packet of this round trip was lost or waited too long */
};

static inline void aimd_start(void *state, const void *params, u64 now_ns)
{
	*(struct aimd_state *)state = (struct aimd_state) {
		.rate_bps = ((const struct aimd_params *)params)->start_rate_bps,
		.begun_ns = now_ns,
	};
}

/* Without a signal the queueing time is what the round trip took beyond the smallest one. */
static inline bool aimd_waited(const struct aimd_params *p, const struct rate_ack *ack)
{
	if (ack->kind == QSIGNAL_IND)
		return ack->signal;
	if (ack->kind != QSIGNAL_NONE)
		return rate_queueing_ns(ack, p->packet_bytes, p->queue_rate_bps) > p->threshold_ns;
	return ack->rtt_ns > p->min_rtt_ns + p->threshold_ns;
}

static inline void aimd_on_ack(void *state, const void *params, const struct rate_ack *ack)
{
	const struct aimd_params *p = params;
	struct aimd_state *vars = state;

	vars->congested |= aimd_waited(p, ack);
	if (ack->now_ns - vars->begun_ns < ack->rtt_ns)
		return;
	if (vars->congested)
		vars->rate_bps -= rate_share(vars->rate_bps, p->cut);
	else
		vars->rate_bps += p->step_bps;
	vars->rate_bps = rate_clamp(vars->rate_bps, p->min_rate_bps, p->max_rate_bps);
	vars->begun_ns = ack->now_ns;
	vars->congested = false;
}

static inline void aimd_on_loss(void *state, const void *params, u64 now_ns)
{
	((struct aimd_state *)state)->congested = true;
}

static inline u64 aimd_rate(const void *state, const void *params)
{
	return ((const struct aimd_state *)state)->rate_bps;
}

static const struct rate_controller aimd_controller = {
	.name = "aimd",
	.state_bytes = sizeof(struct aimd_state),
	.params_bytes = sizeof(struct aimd_params),
	.start = aimd_start,
	.on_ack = aimd_on_ack,
	.on_loss = aimd_on_loss,
	.rate = aimd_rate,
};

#endif /* _AIMD_H */
