/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hooks of a link device between its root qdisc and its wire. A P4 switch (qp4)
 * changes packets there after their queue; the queue tap (qtap) observes the
 * result.
 */
#ifndef _QBED_EGRESS_H
#define _QBED_EGRESS_H

#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/rtnetlink.h>

#include <qbed/qlink.h>

struct qbed_egress {
	/*
	 * Called for each packet that left the queue. Consumes it and returns the packet to
	 * transmit, or NULL.
	 */
	struct sk_buff *(*egress)(struct qbed_egress *egress, struct sk_buff *skb);
};

struct qbed_observer {
	/* The egress hook returned a packet for transmission. */
	void (*sent)(struct qbed_observer *observer, struct sk_buff *skb);
	/* The egress hook drops a packet that just left the queue. */
	void (*dropped)(struct qbed_observer *observer, struct sk_buff *skb);
	/*
	 * Prefetch what the next dequeue accesses; in the second step, the lines to which those
	 * of the first step point.
	 */
	void (*prefetch_dequeue)(struct qbed_observer *observer, bool second);
};

/*
 * First member of a link device's private data. Changed under RTNL with bottom
 * halves disabled.
 */
struct qbed_link {
	struct qbed_egress *egress;	/* NULL: none */
	struct qbed_observer *observer;	/* NULL: none */
};

/* Returns NULL if @dev is not a qlink. */
static inline struct qbed_link *qbed_link(struct net_device *dev)
{
	if (!dev->rtnl_link_ops || strcmp(dev->rtnl_link_ops->kind, QLINK_KIND))
		return NULL;
	return netdev_priv(dev);
}

#endif /* _QBED_EGRESS_H */
