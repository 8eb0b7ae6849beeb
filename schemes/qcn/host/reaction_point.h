/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * QCN's reaction point.
 *
 * Pan, Prabhakar, Laxmikantha, QCN: Quantized Congestion Notification (slides):
 * "Decrease rate from R to Rnew = R(1 - |Fb| x Gd) [...] Let Rd = R |Fb| Gd be
 * the amount of rate decrease. Fast recovery proceeds in cycles, clocked by the
 * fast recovery timer [which] resets upon receipt of negative Fb message,
 * increments for every transmitted byte. [...] Cycles numbered 0, 1, 2, 3, 4, 5
 * [...] The transmission rate during cycle k equals Rnew + Rd/2 + Rd/4 + ... +
 * Rd/2^k as long as no further QCN messages are received. [...] At the end of
 * fast recovery, the source moves to Active Probing [which] is clocked by the
 * same byte counting time. When timer expires, the current rate is changed to
 * R + Ri."
 *
 * And the refinements: "Extra-fast recovery: [...] Using Rd1 + Rd2 + Rd3 (or
 * even max(Rd1, Rd2, Rd3)) improves performance. This is done only during the
 * first cycle (cycle 0) [...] Positive reinforcement: If a Reaction Point
 * receives an Fb = 0 message, it immediately advances to the next cycle of Fast
 * Recovery or Active Probing."
 */
#ifndef _REACTION_POINT_H
#define _REACTION_POINT_H

#include "reaction_point_controller.h"

#define REACTION_LARGEST 63	/* largest |Fb| of 6 bits, for which Gd is defined: 63/128 with Gd =
				 * 1/128
				 */
#define REACTION_LAST_CYCLE 5
#define REACTION_PROBING (REACTION_LAST_CYCLE + 1)

struct reaction_point_state {
	u64 rate_bps;
	u64 cut_bps;		/* Rd */
	u64 sent_bytes;		/* byte counter of the current cycle */
	u32 cycle;		/* cycle of fast recovery, or REACTION_PROBING */
};

/* Without a previous message there is nothing to recover: the flow starts in active probing. */
static inline void reaction_point_start(void *state, const void *params, u64 now_ns)
{
	*(struct reaction_point_state *)state = (struct reaction_point_state) {
		.rate_bps = ((const struct reaction_point_params *)params)->start_rate_bps,
		.cycle = REACTION_PROBING,
	};
}

/*
 * End of a cycle. The end of the last cycle of fast recovery is the first
 * expiry in active probing: the rate increases at the end of every cycle.
 */
static inline void reaction_point_advance(struct reaction_point_state *vars,
					  const struct reaction_point_params *params)
{
	u64 increase_bps = params->step_bps;

	if (vars->cycle < REACTION_PROBING)
		vars->cycle++;
	if (vars->cycle < REACTION_PROBING)
		increase_bps = vars->cut_bps >> vars->cycle;
	vars->rate_bps = rate_clamp(vars->rate_bps + increase_bps, params->min_rate_bps,
				     params->max_rate_bps);
	vars->sent_bytes = 0;
}

/*
 * |Fb| Gd, in 1 / RATE_ONE. The largest value of any quantizer has the effect
 * of that of 6 bits.
 */
static inline u64 reaction_point_share(u32 gd, const struct rate_feedback *feedback)
{
	u64 magnitude = feedback->magnitude < feedback->max ? feedback->magnitude : feedback->max;

	return magnitude * REACTION_LARGEST * gd / feedback->max;
}

static inline void reaction_point_cut(struct reaction_point_state *vars,
				      const struct reaction_point_params *params, u64 share)
{
	u64 before_bps = vars->rate_bps;
	u64 cut_bps;

	vars->rate_bps = rate_clamp(before_bps - rate_share(before_bps, share),
				     params->min_rate_bps, params->max_rate_bps);
	cut_bps = before_bps - vars->rate_bps;
	if (vars->cycle == 0 && params->extra_fast) {
		if (!params->extra_fast_largest)
			cut_bps += vars->cut_bps;
		else if (cut_bps < vars->cut_bps)
			cut_bps = vars->cut_bps;
	}
	vars->cut_bps = cut_bps;
	vars->cycle = params->fast_recovery ? 0 : REACTION_PROBING;
	vars->sent_bytes = 0;
}

static inline void reaction_point_on_feedback(void *state, const void *params,
					      const struct rate_feedback *feedback)
{
	const struct reaction_point_params *p = params;

	if (feedback->magnitude && feedback->max)
		reaction_point_cut(state, p, reaction_point_share(p->gd, feedback));
	else if (!feedback->magnitude && p->reinforcement)
		reaction_point_advance(state, p);
}

static inline void reaction_point_on_sent(void *state, const void *params, u64 now_ns, u32 bytes)
{
	const struct reaction_point_params *p = params;
	struct reaction_point_state *vars = state;

	vars->sent_bytes += bytes;
	if (vars->sent_bytes >= p->cycle_bytes)
		reaction_point_advance(vars, p);
}

static inline u64 reaction_point_rate(const void *state, const void *params)
{
	return ((const struct reaction_point_state *)state)->rate_bps;
}

static const struct rate_controller reaction_point_controller = {
	.name = "reaction_point",
	.state_bytes = sizeof(struct reaction_point_state),
	.params_bytes = sizeof(struct reaction_point_params),
	.start = reaction_point_start,
	.on_feedback = reaction_point_on_feedback,
	.on_sent = reaction_point_on_sent,
	.rate = reaction_point_rate,
};

#endif /* _REACTION_POINT_H */
