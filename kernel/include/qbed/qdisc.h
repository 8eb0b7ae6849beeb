/* SPDX-License-Identifier: GPL-2.0-only */
/* Helpers for the qdiscs of the schemes. */
#ifndef _QBED_QDISC_H
#define _QBED_QDISC_H

#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/gen_stats.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>

/* Module boilerplate for a module that contains one qdisc. */
#define module_qdisc(ops)					\
static int __init ops##_register(void)				\
{								\
	return register_qdisc(&(ops));				\
}								\
module_init(ops##_register);					\
static void __exit ops##_unregister(void)			\
{								\
	unregister_qdisc(&(ops));				\
}								\
module_exit(ops##_unregister)

/*
 * Drops packets that exceed the limits from the head of a FIFO qdisc. Called
 * under sch_tree_lock(). Returns the number of dropped packets.
 */
static inline unsigned int qdisc_fifo_trim(struct Qdisc *sch, u32 limit_bytes, u32 limit_packets)
{
	unsigned int dropped_packets = 0;
	unsigned int dropped_bytes = 0;

	while (sch->q.qlen > limit_packets || sch->qstats.backlog > limit_bytes) {
		struct sk_buff *skb = __qdisc_dequeue_head(&sch->q);

		if (!skb)
			break;		/* the rest are segments of a burst, already dequeued */
		qdisc_qstats_backlog_dec(sch, skb);
		dropped_packets++;
		dropped_bytes += qdisc_pkt_len(skb);
		rtnl_qdisc_drop(skb, sch);
	}
	qdisc_tree_reduce_backlog(sch, dropped_packets, dropped_bytes);
	return dropped_packets;
}

#endif /* _QBED_QDISC_H */
