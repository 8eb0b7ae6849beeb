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

/* What forwarding a packet to an address has used; addresses of lines to fetch, not to look into. */
struct qlink_way {
	__be32 to;
	u32 generation;			/* of the machine's links: out is still there */
	struct qlink_end *out;
	const void *route;
	const void *alias;
	const void *info;
	const void *hop;
	const void *cached;
	const void *neighbour;
};

#define QLINK_WAYS 4u			/* by address, at each end */

/* One end: its transmitter and the wire towards the other end. */
struct qlink_end {
	struct qbed_link link;		/* first: others find it there */
	struct net_device *dev;
	struct qlink_end *peer;		/* NULL once the link is being deleted */
	struct qlink_wire wire;
	struct sk_buff *serializing;
	struct sk_buff *flight_head;	/* on the wire, first to arrive first */
	struct sk_buff *flight_tail;
	u64 last_arrival_ns;
	u64 delay_ns;
	u32 loss;
	bool reordering;
	u64 jitter_ns;
	struct qlink_stats stats;
	struct inet_ehash_bucket *bucket;	/* of the frame that arrives next */
	struct qlink_way ways[QLINK_WAYS];	/* of what arrived from here */
};

#endif /* _QLINK_END_H */
