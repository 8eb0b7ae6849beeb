/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Step marking, the switch side of DCTCP.
 *
 * Alizadeh et al., Data Center TCP (SIGCOMM 2010), section 3.1: "An arriving
 * packet is marked with the CE codepoint if the queue occupancy is greater
 * than K upon its arrival. Otherwise, it is not marked." (RFC 8257, 3.1, leaves
 * the rule to the switch.) So the occupancy is the instantaneous one, without
 * the arriving packet, and equality does not mark.
 */
#ifndef _ECN_ALGORITHM_H
#define _ECN_ALGORITHM_H

#include <qbed/types.h>

#define ECN_NO_BOUND U32_MAX

struct ecn_params {
	u32 limit_bytes;	/* of the queue, with the arriving packet */
	u32 limit_packets;
	u32 threshold_bytes;	/* K */
	u32 threshold_packets;
};

struct ecn_vars {
	u32 queue_bytes;	/* occupancy, without the arriving packet */
	u32 queue_packets;
};

struct ecn_stats {
	u64 marked;		/* packets whose CE was set here */
	u64 unmarked;		/* packets above the threshold that are not ECN-capable */
	u64 dropped;		/* packets that did not fit */
};

enum ecn_verdict { ECN_ENQUEUE, ECN_MARK, ECN_DROP };

static inline enum ecn_verdict ecn_on_arrival(const struct ecn_params *params,
					      const struct ecn_vars *vars, u32 packet_bytes)
{
	if (vars->queue_packets >= params->limit_packets ||
	    (u64)vars->queue_bytes + packet_bytes > params->limit_bytes)
		return ECN_DROP;
	if (vars->queue_packets > params->threshold_packets ||
	    vars->queue_bytes > params->threshold_bytes)
		return ECN_MARK;
	return ECN_ENQUEUE;
}

#endif /* _ECN_ALGORITHM_H */
