/* SPDX-License-Identifier: GPL-2.0-only */
/* Additive increase, multiplicative decrease of a window in segments. */
#ifndef _AIMD_ALGORITHM_H
#define _AIMD_ALGORITHM_H

#include <qbed/types.h>

#include "aimd_stats.h"

#define AIMD_MIN_CWND 2u		/* minimum window after a reduction, in segments */
#define AIMD_DECREASE_ONE 1024u		/* fixed-point 1 of `decrease` */

struct aimd_vars {
	u64 credit;	/* acknowledged segments, times `increase`, that did not widen the window yet */
	struct aimd_stats stats;
};

/* The window after ACKs of `acked` segments: a full window of them adds `increase` segments. */
static inline u32 aimd_grow(struct aimd_vars *vars, u32 cwnd, u32 acked, u32 increase)
{
	u32 added;

	vars->credit += (u64)acked * increase;
	added = vars->credit / cwnd;
	vars->credit -= (u64)added * cwnd;
	vars->stats.added_segments += added;
	return cwnd + added;
}

/* The window after a loss or a mark. */
static inline u32 aimd_cut(struct aimd_vars *vars, u32 cwnd, u32 decrease)
{
	u32 left = cwnd - (u32)((u64)cwnd * decrease / AIMD_DECREASE_ONE);

	vars->credit = 0;
	vars->stats.reductions++;
	return left > AIMD_MIN_CWND ? left : AIMD_MIN_CWND;
}

#endif /* _AIMD_ALGORITHM_H */
