/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Step marking, the switch side of DCTCP.
 *
 * Alizadeh et al., Data Center TCP (SIGCOMM 2010), section 3.1: "An arriving
 * packet is marked with the CE codepoint if the queue occupancy is greater than
 * K upon its arrival. Otherwise, it is not marked." (RFC 8257, 3.1, leaves the
 * algorithm to the switch.) The occupancy is instantaneous and excludes the
 * arriving packet; equality does not mark.
 */
#ifndef _ECN_ALGORITHM_H
#define _ECN_ALGORITHM_H

#include "ecn_scheme.h"

struct ecn_vars {
	u32 queue_bytes;	/* occupancy, without the arriving packet */
	u32 queue_packets;
};

enum ecn_verdict { ECN_ENQUEUE, ECN_MARK, ECN_DROP };

/* The buffer must have space for the arriving packet. */
static inline enum ecn_verdict ecn_on_arrival(const struct ecn_params *params,
					      const struct ecn_vars *vars, u32 packet_bytes)
{
	if (vars->queue_packets >= params->buffer_packets ||
	    (u64)vars->queue_bytes + packet_bytes > params->buffer_bytes)
		return ECN_DROP;
	if (vars->queue_packets > params->threshold_packets ||
	    vars->queue_bytes > params->threshold_bytes)
		return ECN_MARK;
	return ECN_ENQUEUE;
}

#endif /* _ECN_ALGORITHM_H */
