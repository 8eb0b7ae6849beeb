/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DualPI2, an AQM for two coupled queues.
 *
 * De Schepper, Briscoe, White: Dual-Queue Coupled Active Queue Management (RFC
 * 9332), appendix A. Names: its p' is `p` here, p_C the square of p', p_CL the
 * coupled probability k p', p'_L the ramp. README.md lists the choices that the
 * RFC leaves open.
 */
#ifndef _QDUALPI2_ALGORITHM_H
#define _QDUALPI2_ALGORITHM_H

#include "qdualpi2_scheme.h"

#define QDUALPI2_ONE (1ull << 32)	/* the probability 1 */
#define QDUALPI2_SHARE_ONE 1000		/* a share of 1 */

struct qdualpi2_vars {
	u64 p;			/* p', in 1 / QDUALPI2_ONE, less than 1 */
	u64 prior_ns;		/* the queues' delay at the last update */
	u64 due_ns;		/* when the next update is due */
	u64 classic_signals;	/* accumulated signals of each queue, in 1 / QDUALPI2_ONE */
	u64 l4s_signals;
	s64 classic_credit;		/* bytes that the classic queue may send, in 1 /
					 * QDUALPI2_SHARE_ONE
					 */
};

enum qdualpi2_verdict {
	QDUALPI2_PASS,
	QDUALPI2_SIGNAL,	/* classic: CE, or a drop if not ECN-capable */
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

/*
 * Converts @ns to units of 2^-24 RTTs, limited to 8 RTTs, which are enough for
 * p to change from 0 to 1.
 */
static inline s64 qdualpi2_in_rtts(const struct qdualpi2_params *params, s64 ns)
{
	s64 rtt = params->rtt_max_ns, max = 8 * rtt;

	if (ns > max)
		ns = max;
	if (ns < -max)
		ns = -max;
	return ns * (1 << 24) / rtt;
}

/*
 * "alpha = 0.1 * Tupdate / RTT_max^2", "beta = 0.3 / RTT_max": p' increases by
 * alpha times the excess of the delay over the target, and beta times the
 * increase of the delay.
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
 * Performs all updates that are due by @now_ns. No packet was enqueued or
 * dequeued since the last one, so "max(cq.time(), lq.time())" was the delay of
 * the older head, enqueued at @head_ns if @waits. (The delay of the L4S queue
 * matters if its senders do not respond to marks.)
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
		/* p has reached a bound: the remaining updates have no effect */
		if (before == vars->p && (waits ? delay > params->target_ns : !vars->prior_ns) &&
		    vars->due_ns <= now_ns) {
			vars->due_ns += (now_ns - vars->due_ns) / interval * interval;
			vars->prior_ns = waits ? vars->due_ns - interval - head_ns : 0;
		}
	}
}

/* "recur()": signals at equal distances, with the given likelihood. */
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

/* "p_CL = k * p'". QDUALPI2_ONE is overload: marking is saturated. */
static inline u64 qdualpi2_coupled(const struct qdualpi2_params *params,
				   const struct qdualpi2_vars *vars)
{
	u64 coupled = params->coupling * vars->p;

	return coupled < QDUALPI2_ONE ? coupled : QDUALPI2_ONE;
}

/* The native AQM of the L4S queue. */
static inline u64 qdualpi2_ramp(const struct qdualpi2_params *params, u64 delay_ns)
{
	if (delay_ns >= params->max_threshold_ns)
		return QDUALPI2_ONE;
	if (delay_ns <= params->min_threshold_ns)
		return 0;
	return (delay_ns - params->min_threshold_ns) * QDUALPI2_ONE /
	       (params->max_threshold_ns - params->min_threshold_ns);
}

/*
 * Verdict for a packet dequeued from the L4S queue after @delay_ns. @alone: the
 * queue is empty now
 */
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

/*
 * Verdict for a packet dequeued from the classic queue. In overload it only
 * drops: "p_C >= p_Cmax".
 */
static inline enum qdualpi2_verdict qdualpi2_on_classic(const struct qdualpi2_params *params,
							struct qdualpi2_vars *vars)
{
	if (!qdualpi2_recur(&vars->classic_signals, qdualpi2_classic(vars)))
		return QDUALPI2_PASS;
	return qdualpi2_coupled(params, vars) == QDUALPI2_ONE ? QDUALPI2_DROP : QDUALPI2_SIGNAL;
}

/*
 * Weighted round robin: if both queues are non-empty, the classic queue gets
 * its share of the bytes; otherwise the L4S queue has priority.
 */
static inline bool qdualpi2_is_classic_next(const struct qdualpi2_vars *vars, bool classic_waits,
					    bool l4s_waits)
{
	return classic_waits && (!l4s_waits || vars->classic_credit > 0);
}

/*
 * Accounts @bytes sent. Service of the classic queue while the L4S queue is
 * empty counts for at most one packet.
 */
static inline void qdualpi2_account(const struct qdualpi2_params *params, struct qdualpi2_vars *vars,
				 bool classic, bool other_waits, u32 bytes)
{
	s64 rest = (s64)bytes * (QDUALPI2_SHARE_ONE - params->protection);

	if (!classic) {
		if (other_waits)
			vars->classic_credit += (s64)bytes * params->protection;
		return;
	}
	vars->classic_credit -= rest;
	if (!other_waits && vars->classic_credit < -rest)
		vars->classic_credit = -rest;
}

#endif /* _QDUALPI2_ALGORITHM_H */
