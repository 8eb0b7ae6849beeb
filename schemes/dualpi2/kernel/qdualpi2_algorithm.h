/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DualPI2, an AQM for two coupled queues.
 *
 * De Schepper, Briscoe, White: Dual-Queue Coupled Active Queue Management (RFC
 * 9332), appendix A. The names there: p' is `p` here, p_C its square, p_CL the
 * coupled probability k p', p'_L the ramp's. README.md says what was decided
 * where the RFC leaves it open.
 */
#ifndef _QDUALPI2_ALGORITHM_H
#define _QDUALPI2_ALGORITHM_H

#include "qdualpi2_scheme.h"

#define QDUALPI2_ONE (1ull << 32)	/* the probability 1 */
#define QDUALPI2_SHARE_ONE 1000		/* all bytes */

struct qdualpi2_vars {
	u64 p;			/* of QDUALPI2_ONE, below it */
	u64 prior_ns;		/* the queues' delay at the last update */
	u64 due_ns;		/* when the next one is due */
	u64 classic_signals;	/* signals that are owed to either queue, of QDUALPI2_ONE */
	u64 l4s_signals;
	s64 owed;		/* bytes that are owed to the classic queue, of QDUALPI2_SHARE_ONE */
};

enum qdualpi2_verdict {
	QDUALPI2_PASS,
	QDUALPI2_SIGNAL,	/* classic: CE, or a drop where that cannot be */
	QDUALPI2_MARK_BY_RAMP,
	QDUALPI2_MARK_BY_COUPLING,
	QDUALPI2_DROP,
};

static inline bool qdualpi2_fits(const struct qdualpi2_params *params, u32 queue_packets,
				 u32 queue_bytes, u32 packet_bytes)
{
	return queue_packets < params->buffer_packets &&
	       (u64)queue_bytes + packet_bytes <= params->buffer_bytes;
}

/* "Tupdate = min(target, RTT_max/3)" */
static inline u64 qdualpi2_interval_ns(const struct qdualpi2_params *params)
{
	u64 third = params->rtt_max_ns / 3;

	return params->target_ns < third ? params->target_ns : third;
}

/* @ns in round trips of 2^24 parts; eight are enough for p to run from one end to the other. */
static inline s64 qdualpi2_in_rtts(const struct qdualpi2_params *params, s64 ns)
{
	s64 rtt = params->rtt_max_ns, most = 8 * rtt;

	if (ns > most)
		ns = most;
	if (ns < -most)
		ns = -most;
	return ns * (1 << 24) / rtt;
}

/*
 * "alpha = 0.1 * Tupdate / RTT_max^2", "beta = 0.3 / RTT_max": p' grows by alpha
 * times what the delay is above the target, and beta times what it has grown.
 */
static inline void qdualpi2_update(const struct qdualpi2_params *params,
				   struct qdualpi2_vars *vars, u64 delay_ns)
{
	s64 rtt = params->rtt_max_ns, interval = qdualpi2_interval_ns(params);
	s64 above = qdualpi2_in_rtts(params, (s64)delay_ns - (s64)params->target_ns);
	s64 grown = qdualpi2_in_rtts(params, (s64)delay_ns - (s64)vars->prior_ns);
	s64 p = (s64)vars->p + above * interval / (rtt * 10 / 256) + grown * 256 * 3 / 10;

	if (p < 0)
		p = 0;
	if (p >= (s64)QDUALPI2_ONE)
		p = QDUALPI2_ONE - 1;
	vars->p = p;
	vars->prior_ns = delay_ns;
}

/*
 * All updates that are due by @now_ns. Until then nothing has come or gone, so
 * "max(cq.time(), lq.time())" was the older head's delay: since @head_ns, if
 * @waits. (The L4S queue's counts where its senders do not answer its marks.)
 */
static inline void qdualpi2_catch_up(const struct qdualpi2_params *params,
				     struct qdualpi2_vars *vars, u64 now_ns, bool waits, u64 head_ns)
{
	u64 interval = qdualpi2_interval_ns(params), before, delay;

	while (vars->due_ns <= now_ns) {
		before = vars->p;
		delay = waits && vars->due_ns > head_ns ? vars->due_ns - head_ns : 0;
		qdualpi2_update(params, vars, delay);
		vars->due_ns += interval;
		/* an empty queue, or one that stands, ends at a bound: the rest is the same again */
		if (before == vars->p && (waits ? delay > params->target_ns : !vars->prior_ns) &&
		    vars->due_ns <= now_ns) {
			vars->due_ns += (now_ns - vars->due_ns) / interval * interval;
			vars->prior_ns = waits ? vars->due_ns - interval - head_ns : 0;
		}
	}
}

/* "recur()": signals at equal distances, as many as the likelihood says. */
static inline bool qdualpi2_recur(u64 *signals, u64 likelihood)
{
	*signals += likelihood;
	if (*signals < QDUALPI2_ONE)
		return false;
	*signals -= QDUALPI2_ONE;
	return true;
}

/* "p_C = p'^2" */
static inline u64 qdualpi2_classic(const struct qdualpi2_vars *vars)
{
	return (vars->p * vars->p) >> 32;
}

/* "p_CL = k * p'"; QDUALPI2_ONE: overload, in which more cannot be said by marks. */
static inline u64 qdualpi2_coupled(const struct qdualpi2_params *params,
				   const struct qdualpi2_vars *vars)
{
	u64 coupled = params->coupling * vars->p;

	return coupled < QDUALPI2_ONE ? coupled : QDUALPI2_ONE;
}

/* The L4S queue's own AQM. */
static inline u64 qdualpi2_ramp(const struct qdualpi2_params *params, u64 delay_ns)
{
	if (delay_ns >= params->ramp_most_ns)
		return QDUALPI2_ONE;
	if (delay_ns <= params->ramp_least_ns)
		return 0;
	return (delay_ns - params->ramp_least_ns) * QDUALPI2_ONE /
	       (params->ramp_most_ns - params->ramp_least_ns);
}

/* A packet has left the L4S queue after @delay_ns, and @alone: none is behind it. */
static inline enum qdualpi2_verdict qdualpi2_on_l4s(const struct qdualpi2_params *params,
						    struct qdualpi2_vars *vars, u64 delay_ns,
						    bool alone)
{
	u64 coupled = qdualpi2_coupled(params, vars);
	u64 ramp = alone ? 0 : qdualpi2_ramp(params, delay_ns);

	if (coupled == QDUALPI2_ONE) {
		if (qdualpi2_recur(&vars->l4s_signals, qdualpi2_classic(vars)))
			return QDUALPI2_DROP;
		return QDUALPI2_MARK_BY_COUPLING;
	}
	if (!qdualpi2_recur(&vars->l4s_signals, ramp > coupled ? ramp : coupled))
		return QDUALPI2_PASS;
	return ramp > coupled ? QDUALPI2_MARK_BY_RAMP : QDUALPI2_MARK_BY_COUPLING;
}

/* A packet has left the classic queue. In overload, drops only: "p_C >= p_Cmax". */
static inline enum qdualpi2_verdict qdualpi2_on_classic(const struct qdualpi2_params *params,
							struct qdualpi2_vars *vars)
{
	if (!qdualpi2_recur(&vars->classic_signals, qdualpi2_classic(vars)))
		return QDUALPI2_PASS;
	return qdualpi2_coupled(params, vars) == QDUALPI2_ONE ? QDUALPI2_DROP : QDUALPI2_SIGNAL;
}

/*
 * Weighted round robin: while packets wait in both, the classic queue has its
 * share of the bytes, and otherwise the L4S queue goes first.
 */
static inline bool qdualpi2_is_classic_next(const struct qdualpi2_vars *vars, bool classic_waits,
					    bool l4s_waits)
{
	return classic_waits && (!l4s_waits || vars->owed > 0);
}

/*
 * @bytes have left. What the classic queue has beyond its share while the L4S
 * queue is empty is forgotten, but for one packet.
 */
static inline void qdualpi2_left(const struct qdualpi2_params *params, struct qdualpi2_vars *vars,
				 bool classic, bool other_waits, u32 bytes)
{
	s64 rest = (s64)bytes * (QDUALPI2_SHARE_ONE - params->protection);

	if (!classic) {
		if (other_waits)
			vars->owed += (s64)bytes * params->protection;
		return;
	}
	vars->owed -= rest;
	if (!other_waits && vars->owed < -rest)
		vars->owed = -rest;
}

#endif /* _QDUALPI2_ALGORITHM_H */
