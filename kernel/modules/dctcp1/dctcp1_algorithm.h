/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DCTCP's window (RFC 8257, section 3.3) as the simulators of the first papers have
 * it: alpha begins at 0, and the window may fall to one segment. There a window
 * is counted in bytes and whole segments of it are sent, so what a cut takes off
 * counts to a part of a segment: two segments cut by a thirty-second send one.
 */
#ifndef _DCTCP1_ALGORITHM_H
#define _DCTCP1_ALGORITHM_H

#include <qbed/types.h>

#define DCTCP1_ALPHA_ONE (1u << 20)	/* an alpha of 1 */
#define DCTCP1_SEGMENT 1024u		/* parts of a segment */
#define DCTCP1_G_SHIFT 4		/* g = 1/16 */
#define DCTCP1_LEAST 1u			/* segments that a mark leaves */
#define DCTCP1_LEAST_AFTER_LOSS 2u	/* segments that a loss leaves: RFC 5681, (4) */

struct dctcp1_vars {
	u32 alpha;		/* of DCTCP1_ALPHA_ONE */
	u32 acked_bytes;	/* in this round */
	u32 marked_bytes;	/* of these */
	u32 rest;		/* what the window is above whole segments, of DCTCP1_SEGMENT */
};

static inline void dctcp1_on_ack(struct dctcp1_vars *vars, u32 bytes, bool marked)
{
	vars->acked_bytes += bytes;
	if (marked)
		vars->marked_bytes += bytes;
}

/* "DCTCP.Alpha = DCTCP.Alpha * (1 - g) + g * M" */
static inline void dctcp1_on_round(struct dctcp1_vars *vars)
{
	u64 share = (u64)vars->marked_bytes * DCTCP1_ALPHA_ONE;

	if (!vars->acked_bytes)
		return;
	share /= vars->acked_bytes;
	vars->alpha -= vars->alpha >> DCTCP1_G_SHIFT;
	vars->alpha += (u32)share >> DCTCP1_G_SHIFT;
	vars->acked_bytes = 0;
	vars->marked_bytes = 0;
}

/* "cwnd = cwnd * (1 - DCTCP.Alpha / 2)", in whole segments. */
static inline u32 dctcp1_cut(struct dctcp1_vars *vars, u32 segments)
{
	u64 window = (u64)segments * DCTCP1_SEGMENT + vars->rest;

	window -= (window * vars->alpha) / (2 * DCTCP1_ALPHA_ONE);
	if (window < DCTCP1_LEAST * DCTCP1_SEGMENT)
		window = DCTCP1_LEAST * DCTCP1_SEGMENT;
	vars->rest = window % DCTCP1_SEGMENT;
	return window / DCTCP1_SEGMENT;
}

/* After a loss, "as prescribed by conventional TCP" (RFC 8257, section 3.5). */
static inline u32 dctcp1_halve(struct dctcp1_vars *vars, u32 segments)
{
	vars->rest = 0;
	return segments / 2 > DCTCP1_LEAST_AFTER_LOSS ? segments / 2 : DCTCP1_LEAST_AFTER_LOSS;
}

#endif /* _DCTCP1_ALGORITHM_H */
