/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Active Buffer Queueing (IEEE Network, March/April 2020): when acknowledgements
 * are held back, and when all of them leave. Numbers in quotes are the paper's
 * sections; README.md says where it contradicts itself and what is followed.
 */
#ifndef _ABQ_ALGORITHM_H
#define _ABQ_ALGORITHM_H

#include <qbed/types.h>

#define ABQ_NO_BOUND U32_MAX
#define ABQ_SMALLEST_X_MTUS 4

/* The numbers are in struct tc_abq_xstats, too. */
enum abq_state {
	ABQ_US,		/* uncongested: acknowledgements pass */
	ABQ_CS,		/* congested: they are held */
	ABQ_LCS,	/* lightly congested: held, and released when the queue falls to X */
	ABQ_STATES
};

/* Queue lengths are in one unit: bytes or packets, that of the threshold. */
struct abq_params {
	u32 limit;		/* Qmax, the longest output queue; ABQ_NO_BOUND: none */
	u32 threshold;		/* K */
	u32 mtu;		/* one frame of the largest size, in that unit */
	u32 hold_limit;		/* packets held at most, at least 1 */
};

struct abq_vars {
	enum abq_state state;
	u32 x;			/* X: falling to it releases; 0 in US */
};

struct abq_stats {
	u64 entries[ABQ_STATES];	/* from another state; not of one that is left at once */
	u64 releases;			/* times that the queue fell to X */
};

enum abq_action { ABQ_NOTHING, ABQ_HOLD, ABQ_RELEASE };

static inline void abq_enter(struct abq_vars *vars, struct abq_stats *stats, enum abq_state state)
{
	if (vars->state == state)
		return;
	vars->state = state;
	stats->entries[state]++;
}

/* "Once in congestion state (CS), X = min(Qmax - K, K)." */
static inline u32 abq_first_x(const struct abq_params *params)
{
	u32 room = params->limit > params->threshold ? params->limit - params->threshold : 0;

	return room < params->threshold ? room : params->threshold;
}

/* "If X is less than the size of four maximum transmission units (MTUs), X is set as zero" */
static inline u32 abq_halved(const struct abq_params *params, u32 x)
{
	x /= 2;
	return x < (u64)ABQ_SMALLEST_X_MTUS * params->mtu ? 0 : x;
}

/*
 * The output queue's length is now @queue: call after each change of it. After
 * ABQ_HOLD acknowledgements are held; at ABQ_RELEASE all that are held leave,
 * and later ones are held unless the state is US.
 *
 * CS and LCS imply @queue > X >= 0: a queue that drains releases, always.
 */
static inline enum abq_action abq_on_queue(const struct abq_params *params, struct abq_vars *vars,
					   struct abq_stats *stats, u32 queue)
{
	if (queue > params->threshold) {
		if (vars->state == ABQ_CS)
			return ABQ_NOTHING;
		abq_enter(vars, stats, ABQ_CS);
		vars->x = abq_first_x(params);
		return ABQ_HOLD;
	}
	if (vars->state == ABQ_US || queue > vars->x)
		return ABQ_NOTHING;
	/*
	 * "when the length of Qout decreases to X, X is halved". One step may pass
	 * several X (drops in the queue): they are one release.
	 */
	do {
		vars->x = abq_halved(params, vars->x);
	} while (vars->x && queue <= vars->x);
	abq_enter(vars, stats, vars->x ? ABQ_LCS : ABQ_US);
	stats->releases++;
	return ABQ_RELEASE;
}

/* Occupancy of the input queue, and its integral over time. */
struct abq_input {
	u32 held;		/* packets */
	u32 max_held;
	u64 changed_ns;		/* integrated up to here */
	u64 packet_ns;
};

/* Call before each change, and before packet_ns is read. */
static inline void abq_input_advance(struct abq_input *input, u64 now_ns)
{
	input->packet_ns += (now_ns - input->changed_ns) * input->held;
	input->changed_ns = now_ns;
}

static inline void abq_input_set(struct abq_input *input, u64 now_ns, u32 held)
{
	abq_input_advance(input, now_ns);
	input->held = held;
	if (held > input->max_held)
		input->max_held = held;
}

#endif /* _ABQ_ALGORITHM_H */
