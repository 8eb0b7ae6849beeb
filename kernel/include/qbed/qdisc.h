/* SPDX-License-Identifier: GPL-2.0-only */
/* What schemes' qdiscs share. */
#ifndef _QBED_QDISC_H
#define _QBED_QDISC_H

#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/gen_stats.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>

/* A module that is one qdisc, and nothing else. */
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
 * Of a qdisc that is one FIFO, under sch_tree_lock(): what has no room any more
 * is dropped, from the head. Returns how many packets.
 */
static inline unsigned int qdisc_fifo_trim(struct Qdisc *sch, u32 limit_bytes, u32 limit_packets)
{
	unsigned int dropped_packets = 0;
	unsigned int dropped_bytes = 0;

	while (sch->q.qlen > limit_packets || sch->qstats.backlog > limit_bytes) {
		struct sk_buff *skb = qdisc_dequeue_head(sch);

		if (!skb)
			break;		/* the rest is on its way out: segments of a burst */
		dropped_packets++;
		dropped_bytes += qdisc_pkt_len(skb);
		rtnl_qdisc_drop(skb, sch);
	}
	qdisc_tree_reduce_backlog(sch, dropped_packets, dropped_bytes);
	return dropped_packets;
}

#endif /* _QBED_QDISC_H */
