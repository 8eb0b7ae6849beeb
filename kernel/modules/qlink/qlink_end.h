/* SPDX-License-Identifier: GPL-2.0-only */
/* One end of a link, and what it waits for. */
#ifndef _QLINK_END_H
#define _QLINK_END_H

#include <qbed/egress.h>

#include "qlink_wire.h"

/* What a deadline means: the low bit of its owner pointer. */
enum qlink_deadline_kind {
	QLINK_SERIALIZED = 0,
	QLINK_ARRIVED = 1,
};

#define QLINK_OWNER_MASK (~1ul)

struct qlink_params {
	struct qlink_wire_params wire;
	u64 delay_ns;		/* of propagation */
	u32 loss;		/* probability x 2^32 */
	u64 jitter_ns;		/* the most that a frame takes longer */
	bool reordering;	/* a frame that takes less long overtakes */
};

struct qlink_stats {
	u64 sent;		/* frames whose transmission began */
	u64 sent_bytes;
	u64 delivered;		/* frames handed to the other end's stack */
	u64 delivered_bytes;
	u64 lost;		/* frames lost by the model or a closed peer */
};

/* What finding a neighbour takes: lines to fetch, not to look into. */
struct qlink_hop {
	const void *list;		/* where its list begins */
	const void *before[2];		/* who is listed before it */
	const void *neighbour;
};

/* How packets to an address are forwarded. */
struct qlink_way {
	__be32 to;
	u32 generation;			/* of the machine's links: out is still there */
	int genid;			/* of the node's routes, when this was learnt */
	struct qlink_end *out;
	struct rtable *route;		/* held; NULL: more than the address decides */
	struct qlink_hop hop;
	const void *lookup[5];		/* without a route: lines that finding it takes */
} ____cacheline_aligned;

#define QLINK_WAYS 16u			/* by address */

/* One end: its transmitter and the wire towards the other end. */
struct qlink_end {
	struct qbed_link link;		/* first: others find it there */
	struct net_device *dev;
	struct qlink_end *peer;		/* NULL once the link is being deleted */
	struct qlink_wire wire;
	struct sk_buff *serializing;
	struct sk_buff *flight_head;	/* on the wire, first to arrive first */
	struct sk_buff *flight_tail;
	u64 tail_arrival_ns;		/* of flight_tail, if there is one */
	u64 last_arrival_ns;
	u64 delay_ns;
	u32 loss;
	bool reordering;
	u64 jitter_ns;
	struct qlink_stats stats;
	struct inet_ehash_bucket *bucket;	/* of the frame that arrives next */
	struct qlink_way *ways;		/* of what arrived here; NULL: none was forwarded */
	struct qlink_hop home;		/* to whom the node's own packets go from here */
	int home_genid;
};

#endif /* _QLINK_END_H */
