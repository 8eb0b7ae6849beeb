/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Active Buffer Queueing (IEEE Network, March/April 2020): when
 * acknowledgements are held, and when all held acknowledgements are released.
 * Quoted text is the paper's; README.md lists its contradictions and the
 * choices made here.
 */
#ifndef _ABQ_ALGORITHM_H
#define _ABQ_ALGORITHM_H

#include "abq_scheme.h"

#define ABQ_SMALLEST_X_MTUS 4

/* The values are visible in the statistics. */
enum abq_state {
	ABQ_US,		/* uncongested: acknowledgements pass */
	ABQ_CS,		/* congested: they are held */
	ABQ_LCS,	/* lightly congested: held, and released when the queue falls to X */
};

/* Queue lengths, all in the unit of the threshold: bytes or packets. */
struct abq_lengths {
	u32 limit;		/* Qmax, the capacity of the output queue; ABQ_NO_BOUND: unlimited */
	u32 threshold;		/* K */
	u32 mtu;		/* a frame of maximum size, in that unit */
	u32 x;			/* ABQ_X_BUFFER: as in the paper; ABQ_X_PEAK: as in its published code */
	u32 last;		/* ABQ_LAST_SHORT and ABQ_LAST_EMPTY likewise */
};

struct abq_vars {
	enum abq_state state;
	u32 x;			/* X: queue length at which held ACKs are released; 0 in US */
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

/* min(@longest - K, K) */
static inline u32 abq_initial_x(const struct abq_lengths *lengths, u32 longest)
{
	u32 room = longest > lengths->threshold ? longest - lengths->threshold : 0;

	return room < lengths->threshold ? room : lengths->threshold;
}

/*
 * The queue exceeds K. "Once in congestion state (CS), X = min(Qmax - K, K)".
 * The published code uses the longest queue since it was empty in place of
 * Qmax.
 */
static inline void abq_congested(const struct abq_lengths *lengths, struct abq_vars *vars,
				 u32 queue)
{
	u32 x;

	if (lengths->x == ABQ_X_PEAK) {
		x = abq_initial_x(lengths, queue);
		if (x > vars->x)
			vars->x = x;
	} else if (vars->state != ABQ_CS) {
		vars->x = abq_initial_x(lengths, lengths->limit);
	}
}

/* "If X is less than the size of four maximum transmission units (MTUs), X is set as zero" */
static inline u32 abq_halved(const struct abq_lengths *lengths, u32 x)
{
	x /= 2;
	return x < (u64)ABQ_SMALLEST_X_MTUS * lengths->mtu ? 0 : x;
}

/* Queue length for the next release. The published code halves X after the release. */
static inline u32 abq_release_length(const struct abq_lengths *lengths, const struct abq_vars *vars)
{
	if (lengths->last == ABQ_LAST_EMPTY && vars->state == ABQ_LCS)
		return vars->x / 2;
	return vars->x;
}

/* A release at a non-empty queue: CS changes to LCS with the same X; in LCS X is halved. */
static inline void abq_step_down(const struct abq_lengths *lengths, struct abq_vars *vars,
				 struct abq_stats *stats)
{
	if (vars->state == ABQ_LCS) {
		vars->x /= 2;
		if (vars->x <= (u64)ABQ_SMALLEST_X_MTUS * lengths->mtu)
			vars->x = 0;
	}
	abq_enter(vars, stats, ABQ_LCS);
}

/*
 * Updates the state for output queue length @queue. Call after each change of
 * it. After ABQ_HOLD, acknowledgements are held. ABQ_RELEASE releases all held
 * ACKs; later ones are held unless the state is US.
 *
 * CS and LCS imply @queue > abq_release_length() >= 0, so draining the queue
 * always releases.
 */
static inline enum abq_action abq_on_queue(const struct abq_lengths *lengths, struct abq_vars *vars,
					   struct abq_stats *stats, u32 queue)
{
	if (queue > lengths->threshold) {
		abq_congested(lengths, vars, queue);
		if (vars->state == ABQ_CS)
			return ABQ_NOTHING;
		abq_enter(vars, stats, ABQ_CS);
		return ABQ_HOLD;
	}
	if (vars->state == ABQ_US || queue > abq_release_length(lengths, vars))
		return ABQ_NOTHING;
	stats->releases++;
	/*
	 * "when the length of Qout decreases to X, X is halved". A single step may pass several
	 * values of X (drops in the queue): they are one release.
	 */
	if (lengths->last == ABQ_LAST_EMPTY && queue) {
		do
			abq_step_down(lengths, vars, stats);
		while (queue <= abq_release_length(lengths, vars));
		return ABQ_RELEASE;
	}
	do
		vars->x = queue ? abq_halved(lengths, vars->x) : 0;
	while (vars->x && queue <= vars->x);
	abq_enter(vars, stats, vars->x ? ABQ_LCS : ABQ_US);
	return ABQ_RELEASE;
}

/* True if released ACKs carry ECE (parameter `answer`). */
static inline bool abq_echoes(const struct abq_params *params)
{
	return params->answer != ABQ_ANSWER_WINDOW;
}

/*
 * `answer: window`: advertised window of each of @held ACKs, so that together
 * they allow @k_bytes, but at least one segment each. Never 0.
 */
static inline u32 abq_window(u32 k_bytes, u32 held, u32 segment_bytes)
{
	u32 share = held ? k_bytes / held : k_bytes;

	return share > segment_bytes ? share : segment_bytes;
}

/* `release: window`: number of @held ACKs to release: windows of K in total, plus one. */
static inline u32 abq_batch(u32 k_bytes, u32 held, u32 segment_bytes)
{
	u32 max = k_bytes / abq_window(k_bytes, held, segment_bytes) + 1;

	return held < max ? held : max;
}

/* Occupancy of the input queue. */
struct abq_input {
	u32 held;		/* held ACKs, packets */
	u64 changed_ns;		/* time up to which it is integrated */
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
