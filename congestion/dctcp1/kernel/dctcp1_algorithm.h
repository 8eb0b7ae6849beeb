/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DCTCP's window (RFC 8257, section 3.3) as in the simulators of the first
 * papers: alpha starts at 0, and the window may fall to one segment. There a
 * window is counted in bytes but sent in whole segments, so a reduction by part
 * of a segment takes effect: after two segments are reduced by 1/32, one
 * segment is sent.
 */
#ifndef _DCTCP1_ALGORITHM_H
#define _DCTCP1_ALGORITHM_H

#include <qbed/types.h>

#define DCTCP1_ALPHA_ONE (1u << 20)	/* alpha = 1 */
#define DCTCP1_CWND_ONE 1024u		/* fixed-point 1 of a window in segments */
#define DCTCP1_MIN_CWND 1u			/* minimum window after a mark, in segments */
#define DCTCP1_MIN_CWND_AFTER_LOSS 2u	/* minimum window after a loss: RFC 5681, (4) */

struct dctcp1_vars {
	u32 alpha;		/* in 1 / DCTCP1_ALPHA_ONE */
	u32 acked_bytes;	/* in this round */
	u32 marked_bytes;	/* marked part of acked_bytes */
	u32 fraction;		/* fraction of a segment of the window, in 1 / DCTCP1_CWND_ONE */
};

static inline void dctcp1_on_ack(struct dctcp1_vars *vars, u32 bytes, bool marked)
{
	vars->acked_bytes += bytes;
	if (marked)
		vars->marked_bytes += bytes;
}

/* "DCTCP.Alpha = DCTCP.Alpha * (1 - g) + g * M", where g = 1 / 2^gain_shift. */
static inline void dctcp1_on_round(struct dctcp1_vars *vars, u32 gain_shift)
{
	u64 share = (u64)vars->marked_bytes * DCTCP1_ALPHA_ONE;

	if (!vars->acked_bytes)
		return;
	share /= vars->acked_bytes;
	vars->alpha -= vars->alpha >> gain_shift;
	vars->alpha += (u32)share >> gain_shift;
	vars->acked_bytes = 0;
	vars->marked_bytes = 0;
}

/* "cwnd = cwnd * (1 - DCTCP.Alpha / 2)", in whole segments. */
static inline u32 dctcp1_cut(struct dctcp1_vars *vars, u32 segments)
{
	u64 window = (u64)segments * DCTCP1_CWND_ONE + vars->fraction;

	window -= (window * vars->alpha) / (2 * DCTCP1_ALPHA_ONE);
	if (window < DCTCP1_MIN_CWND * DCTCP1_CWND_ONE)
		window = DCTCP1_MIN_CWND * DCTCP1_CWND_ONE;
	vars->fraction = window % DCTCP1_CWND_ONE;
	return window / DCTCP1_CWND_ONE;
}

/* After a loss, "as prescribed by conventional TCP" (RFC 8257, section 3.5). */
static inline u32 dctcp1_halve(struct dctcp1_vars *vars, u32 segments)
{
	vars->fraction = 0;
	return segments / 2 > DCTCP1_MIN_CWND_AFTER_LOSS ? segments / 2 : DCTCP1_MIN_CWND_AFTER_LOSS;
}

#endif /* _DCTCP1_ALGORITHM_H */
