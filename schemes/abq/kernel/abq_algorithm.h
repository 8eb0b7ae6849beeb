/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Active Buffer Queueing (IEEE Network, March/April 2020): when acknowledgements
 * are held back, and when all of them leave. Numbers in quotes are the paper's
 * sections; README.md says where it contradicts itself and what is followed.
 */
#ifndef _ABQ_ALGORITHM_H
#define _ABQ_ALGORITHM_H

#include "abq_scheme.h"

#define ABQ_SMALLEST_X_MTUS 4

/* The numbers are in the statistics, too. */
enum abq_state {
	ABQ_US,		/* uncongested: acknowledgements pass */
	ABQ_CS,		/* congested: they are held */
	ABQ_LCS,	/* lightly congested: held, and released when the queue falls to X */
};

/* Queue lengths are in one unit: bytes or packets, that of the threshold. */
struct abq_lengths {
	u32 limit;		/* Qmax, the longest output queue; ABQ_NO_BOUND: none */
	u32 threshold;		/* K */
	u32 mtu;		/* one frame of the largest size, in that unit */
};

struct abq_vars {
	enum abq_state state;
	u32 x;			/* X: falling to it releases; 0 in US */
};

enum abq_action { ABQ_NOTHING, ABQ_HOLD, ABQ_RELEASE };

static inline void abq_enter(struct abq_vars *vars, struct abq_stats *stats, enum abq_state state)
{
	if (vars->state == state)
		return;
	vars->state = state;
	switch (state) {
	case ABQ_US:
		stats->entries_us++;
		break;
	case ABQ_CS:
		stats->entries_cs++;
		break;
	case ABQ_LCS:
		stats->entries_lcs++;
		break;
	}
}

/* "Once in congestion state (CS), X = min(Qmax - K, K)." */
static inline u32 abq_first_x(const struct abq_lengths *lengths)
{
	u32 room = lengths->limit > lengths->threshold ? lengths->limit - lengths->threshold : 0;

	return room < lengths->threshold ? room : lengths->threshold;
}

/* "If X is less than the size of four maximum transmission units (MTUs), X is set as zero" */
static inline u32 abq_halved(const struct abq_lengths *lengths, u32 x)
{
	x /= 2;
	return x < (u64)ABQ_SMALLEST_X_MTUS * lengths->mtu ? 0 : x;
}

/*
 * The output queue's length is now @queue: call after each change of it. After
 * ABQ_HOLD acknowledgements are held; at ABQ_RELEASE all that are held leave,
 * and later ones are held unless the state is US.
 *
 * CS and LCS imply @queue > X >= 0: a queue that drains releases, always.
 */
static inline enum abq_action abq_on_queue(const struct abq_lengths *lengths, struct abq_vars *vars,
					   struct abq_stats *stats, u32 queue)
{
	if (queue > lengths->threshold) {
		if (vars->state == ABQ_CS)
			return ABQ_NOTHING;
		abq_enter(vars, stats, ABQ_CS);
		vars->x = abq_first_x(lengths);
		return ABQ_HOLD;
	}
	if (vars->state == ABQ_US || queue > vars->x)
		return ABQ_NOTHING;
	/*
	 * "when the length of Qout decreases to X, X is halved". One step may pass
	 * several X (drops in the queue): they are one release.
	 */
	do {
		vars->x = abq_halved(lengths, vars->x);
	} while (vars->x && queue <= vars->x);
	abq_enter(vars, stats, vars->x ? ABQ_LCS : ABQ_US);
	stats->releases++;
	return ABQ_RELEASE;
}

/* Occupancy of the input queue. */
struct abq_input {
	u32 held;		/* packets */
	u64 changed_ns;		/* integrated up to here */
};

/* Call before each change, and before held_packet_ns is read. */
static inline void abq_input_advance(struct abq_input *input, struct abq_stats *stats, u64 now_ns)
{
	stats->held_packet_ns += (now_ns - input->changed_ns) * input->held;
	input->changed_ns = now_ns;
}

static inline void abq_input_set(struct abq_input *input, struct abq_stats *stats, u64 now_ns,
				 u32 held)
{
	abq_input_advance(input, stats, now_ns);
	input->held = held;
	if (held > stats->max_held)
		stats->max_held = held;
}

#endif /* _ABQ_ALGORITHM_H */
