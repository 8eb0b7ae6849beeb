/* SPDX-License-Identifier: GPL-2.0-only */
/* State of a link end, and the functions of datapath.c that netdev.c calls. */
#ifndef _QLINK_END_H
#define _QLINK_END_H

#include <linux/netdevice.h>
#include <linux/skbuff.h>

#include <qbed/egress.h>

#include "qlink_wire.h"

/* Type of a deadline: the low bit of its owner pointer. */
enum qlink_deadline_kind {
	QLINK_SERIALIZED = 0,
	QLINK_ARRIVED = 1,
};

#define QLINK_OWNER_MASK (~1ul)

struct qlink_params {
	struct qlink_wire_params wire;
	u64 delay_ns;		/* propagation delay */
	u32 loss;		/* probability x 2^32 */
	u64 jitter_ns;		/* maximum random addition to the delay */
	bool reordering;	/* jitter may reorder frames */
};

struct qlink_stats {
	u64 sent;		/* frames whose transmission began */
	u64 sent_bytes;
	u64 delivered;		/* frames handed to the other end's stack */
	u64 delivered_bytes;
	u64 lost;		/* frames dropped by the loss model or because the peer is down */
};

/* Cache lines of a neighbour lookup: prefetched, never dereferenced. */
struct qlink_hop {
	u32 key;			/* address of the neighbour */
	int neighbours;			/* number of all neighbours when this was learnt */
	const void *list;		/* head of the hash bucket */
	const void *before[2];		/* preceding entries of the bucket */
	const void *neighbour;
};

/* Cached forwarding decision for a destination address. */
struct qlink_route {
	__be32 daddr;
	u32 generation;			/* qlink_generation: `out` still exists if it is unchanged */
	int genid;			/* rt_genid_ipv4() when this was cached */
	struct qlink_end *out;
	struct rtable *rt;		/* with a reference; NULL: not determined by the address alone */
	struct qlink_hop hop;
	const void *lookup[5];		/* without rt: cache lines of the FIB lookup */
} ____cacheline_aligned;

#define QLINK_ROUTES 16u		/* slots, by address */

/* One end: its transmitter and the wire towards the other end. */
struct qlink_end {
	/* a line: of an arrival at this end, and of the end of a transmission */
	struct qbed_link link;		/* must be first */
	struct net_device *dev;
	struct qlink_end *peer;		/* NULL once the link is being deleted */
	struct qlink_border *border;	/* of a stub in a container */
	struct qlink_route *routes;	/* of frames received here; NULL: none was forwarded */
	bool is_cut;			/* the peer is a stub for an end in another part */
	bool is_stub;
	bool reordering;
	u32 loss;

	struct sk_buff *serializing;
	struct sk_buff *flight_head;	/* on the wire, first to arrive first */
	struct sk_buff *flight_tail;
	u64 tail_arrival_ns;		/* of flight_tail, if not NULL */
	u64 last_arrival_ns;
	u64 delay_ns;
	u64 jitter_ns;
	struct inet_ehash_bucket *bucket;	/* socket of the next frame to arrive */
	struct qlink_stats stats;
	struct qlink_wire wire;

	/* not of every deadline */
	u32 part;			/* of the other end, if it is cut */
	u32 link_number;		/* the same in all parts */
	struct qlink_hop local_hop;	/* neighbour of locally generated packets */
};

/* border.c */
void qlink_border_leave(struct qlink_border *border, struct sk_buff *skb);
int qlink_border_open(struct qlink_end *stub, int ifindex);
void qlink_border_close(struct qlink_end *stub);

/* datapath.c */
netdev_tx_t qlink_xmit(struct sk_buff *skb, struct net_device *dev);
netdev_features_t qlink_features_check(struct sk_buff *skb, struct net_device *dev,
				       netdev_features_t features);
void qlink_set_wire(struct qlink_end *end, struct qlink_wire_params params);
void qlink_clear_caches(struct qlink_end *end);
int qlink_cut_end(struct qlink_end *end, u32 part, u32 link_number);
int qlink_add_end(const struct qlink_end *end);
void qlink_remove_end(struct qlink_end *end);
void qlink_clock_init(void);
void qlink_clock_exit(void);

#endif /* _QLINK_END_H */
