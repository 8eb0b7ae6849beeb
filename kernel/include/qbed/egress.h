/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a link device lets others do between its root qdisc and its wire: a
 * switch that changes packets after their queue (qp4) hangs itself in there,
 * and who watches the queue (qtap) sees what became of them.
 */
#ifndef _QBED_EGRESS_H
#define _QBED_EGRESS_H

#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/rtnetlink.h>

#include <qbed/qlink.h>

struct qbed_egress {
	/* Takes a packet that left the queue; returns what goes onto the wire, or NULL. */
	struct sk_buff *(*egress)(struct qbed_egress *egress, struct sk_buff *skb);
};

struct qbed_watch {
	/* A packet goes onto the wire as the egress left it. */
	void (*left)(struct qbed_watch *watch, struct sk_buff *skb);
	/* The egress drops a packet that has just left the queue. */
	void (*dropped)(struct qbed_watch *watch, struct sk_buff *skb);
	/* A packet leaves the queue soon: fetch what that takes, and in the second step what the first one's tells of. */
	void (*soon)(struct qbed_watch *watch, bool second);
};

/* The beginning of a link device's private data. Changed under RTNL, with bottom halves off. */
struct qbed_link {
	struct qbed_egress *egress;	/* NULL: none */
	struct qbed_watch *watch;	/* NULL: none */
};

/* NULL: not such a device */
static inline struct qbed_link *qbed_link(struct net_device *dev)
{
	if (!dev->rtnl_link_ops || strcmp(dev->rtnl_link_ops->kind, QLINK_KIND))
		return NULL;
	return netdev_priv(dev);
}

#endif /* _QBED_EGRESS_H */
