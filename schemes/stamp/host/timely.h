/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Timely, driven by round-trip times or by the occupancy that switches report.
 *
 * Mittal et al., TIMELY: RTT-based Congestion Control for the Datacenter
 * (SIGCOMM 2015), Algorithm 1, at each completion event:
 *
 *    1: new_rtt_diff = new_rtt - prev_rtt
 *    2: prev_rtt = new_rtt
 *    3: rtt_diff = (1 - alpha) * rtt_diff + alpha * new_rtt_diff
 *    4: normalized_gradient = rtt_diff / minRTT
 *    5: if new_rtt < T_low then
 *    6:     rate <- rate + delta; return
 *    7: if new_rtt > T_high then
 *    8:     rate <- rate * (1 - beta * (1 - T_high / new_rtt)); return
 *    9: if normalized_gradient <= 0 then      (N = 5 after five such events in
 *   10:     rate <- rate + N * delta           a row, HAI mode, otherwise 1)
 *   11: else
 *   12:     rate <- rate * (1 - beta * normalized_gradient)
 *
 * Arslan and McKeown (BS 2019), section 4, use the occupancy of the path's
 * queues in place of new_rtt and do not specify thresholds. Here an occupancy of
 * any unit is converted to the time that the queue takes to drain at queue_rate,
 * so one pair of thresholds serves all signals: an occupancy has no propagation
 * delay, so its T_low is q_low; that of an RTT is min_rtt + q_low.
 */
#ifndef _TIMELY_H
#define _TIMELY_H

#include "timely_controller.h"

#define TIMELY_MAX_NS (1ull << 33)	/* limit of a sample: 8.6 s */
#define TIMELY_FINE 256			/* parts of a nanosecond in averages */

struct timely_state {
	u64 rate_bps;
	u64 acked_bytes;	/* since the last event */
	u64 last_ns;		/* prev_rtt */
	u64 decreased_ns;	/* when the rate last fell */
	s64 change_fine;	/* rtt_diff, in 1/TIMELY_FINE ns */
	u32 falling;		/* events in a row whose gradient was not positive */
	bool begun;		/* last_ns is valid */
};

static inline void timely_start(void *state, const void *params, u64 now_ns)
{
	*(struct timely_state *)state = (struct timely_state) {
		.rate_bps = ((const struct timely_params *)params)->start_rate_bps,
	};
}

static inline u64 timely_queueing_ns(const struct timely_params *params, const struct rate_ack *ack)
{
	if (ack->kind == QSIGNAL_IND)
		return ack->signal ? params->q_marked_ns : 0;
	return rate_queueing_ns(ack, params->packet_bytes, params->queue_rate_bps);
}

/*
 * Line 3. The weight of the difference is at most 1, so the average is bounded
 * by the differences.
 */
static inline void timely_average(struct timely_state *vars, u32 alpha, u64 sample_ns)
{
	s64 change_fine = 0;

	if (vars->begun)
		change_fine = ((s64)sample_ns - (s64)vars->last_ns) * TIMELY_FINE;
	vars->change_fine += (change_fine - vars->change_fine) * alpha / (s64)RATE_ONE;
	vars->last_ns = sample_ns;
	vars->begun = true;
}

/* Lines 5 to 12. The result may be below min_rate. */
static inline u64 timely_next(struct timely_state *vars, const struct timely_params *params,
			      u64 sample_ns, u64 low_ns, u64 high_ns)
{
	u64 rate_bps = vars->rate_bps;
	u32 falling = vars->falling;
	u64 excess;

	vars->falling = 0;
	if (sample_ns < low_ns)
		return rate_bps + params->delta_bps;
	if (sample_ns > high_ns) {
		excess = (sample_ns - high_ns) * RATE_ONE / sample_ns;
		return rate_bps - rate_share(rate_bps, params->beta * excess / RATE_ONE);
	}
	if (vars->change_fine <= 0) {
		vars->falling = falling < params->hai ? falling + 1 : falling;
		return rate_bps + (vars->falling < params->hai ? 1 : params->hai) * params->delta_bps;
	}
	excess = params->beta * (u64)vars->change_fine / (params->min_rtt_ns * TIMELY_FINE);
	return rate_bps - rate_share(rate_bps, excess);
}

static inline void timely_on_ack(void *state, const void *params, const struct rate_ack *ack)
{
	const struct timely_params *p = params;
	bool by_rtt = ack->kind == QSIGNAL_NONE;
	u64 base_ns = by_rtt ? p->min_rtt_ns : 0;
	struct timely_state *vars = state;
	u64 sample_ns, next_bps;

	/* Without a signal from any switch the rate does not change. */
	if (!by_rtt && !ack->has_signal)
		return;
	vars->acked_bytes += ack->bytes;
	if (vars->acked_bytes < p->segment_bytes)
		return;
	vars->acked_bytes %= p->segment_bytes;
	sample_ns = by_rtt ? ack->rtt_ns : timely_queueing_ns(p, ack);
	if (sample_ns > TIMELY_MAX_NS)
		sample_ns = TIMELY_MAX_NS;
	timely_average(vars, p->alpha, sample_ns);
	next_bps = timely_next(vars, p, sample_ns, base_ns + p->q_low_ns, base_ns + p->q_high_ns);
	if (next_bps < vars->rate_bps) {
		/* The packet was sent before the last decrease and does not reflect it. */
		if (p->fresh && vars->decreased_ns && ack->now_ns - vars->decreased_ns < ack->rtt_ns)
			return;
		vars->decreased_ns = ack->now_ns;
	}
	vars->rate_bps = rate_clamp(next_bps, p->min_rate_bps, p->max_rate_bps);
}

static inline u64 timely_rate(const void *state, const void *params)
{
	return ((const struct timely_state *)state)->rate_bps;
}

static const struct rate_controller timely_controller = {
	.name = "timely",
	.state_bytes = sizeof(struct timely_state),
	.params_bytes = sizeof(struct timely_params),
	.start = timely_start,
	.on_ack = timely_on_ack,
	.rate = timely_rate,
};

#endif /* _TIMELY_H */
