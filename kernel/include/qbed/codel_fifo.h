/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A FIFO under the kernel's CoDel (RFC 8289, <net/codel_impl.h>), with a buffer
 * in bytes or packets. The qdiscs qcodel and rpm share it. CoDel's clock has a
 * resolution of 1024 ns: targets and intervals are rounded down to it.
 */
#ifndef _QBED_CODEL_FIFO_H
#define _QBED_CODEL_FIFO_H

#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/codel.h>
#include <net/codel_impl.h>
#include <net/codel_qdisc.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>

#include <qbed/qdisc.h>

struct codel_fifo_params {
	struct codel_params codel;
	u32 limit_bytes;
	u32 limit_packets;
};

struct codel_fifo_vars {
	struct codel_vars codel;
	int head_dsfield;	/* of the last packet dequeued, before CoDel changed it */
};

struct codel_fifo_stats {
	struct codel_stats codel;	/* per dequeue, except maxpacket */
	u64 dropped;		/* by CoDel */
	u64 overlimit;		/* packets that did not fit */
};

/* The first member of the qdisc's private data. */
struct codel_fifo {
	struct codel_fifo_params params;
	struct codel_fifo_vars vars;
	struct codel_fifo_stats stats;
};

static inline bool codel_fifo_fits(const struct Qdisc *sch, const struct codel_fifo *fifo,
				   const struct sk_buff *skb)
{
	return sch->q.qlen < fifo->params.limit_packets &&
	       (u64)sch->qstats.backlog + qdisc_pkt_len(skb) <= fifo->params.limit_bytes;
}

static int codel_fifo_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct codel_fifo *fifo = qdisc_priv(sch);

	if (!codel_fifo_fits(sch, fifo, skb)) {
		fifo->stats.overlimit++;
		return qdisc_drop(skb, sch, to_free);
	}
	codel_set_enqueue_time(skb);
	return qdisc_enqueue_tail(skb, sch);
}

static struct sk_buff *codel_fifo_head(struct codel_vars *vars, void *context)
{
	struct Qdisc *sch = context;
	struct codel_fifo *fifo = qdisc_priv(sch);
	struct sk_buff *skb = __qdisc_dequeue_head(&sch->q);

	if (skb) {
		qdisc_qstats_backlog_dec(sch, skb);
		fifo->vars.head_dsfield = skb_get_dsfield(skb);
	}
	return skb;
}

static void codel_fifo_drop(struct sk_buff *skb, void *context)
{
	kfree_skb(skb);
	qdisc_qstats_drop(context);
}

/* @marked: set if CoDel marked the returned packet; it marks no other packet. */
static struct sk_buff *codel_fifo_dequeue(struct Qdisc *sch, bool *marked)
{
	struct codel_fifo *fifo = qdisc_priv(sch);
	struct codel_stats *stats = &fifo->stats.codel;
	struct sk_buff *skb;

	skb = codel_dequeue(sch, &sch->qstats.backlog, &fifo->params.codel, &fifo->vars.codel,
			    stats, qdisc_pkt_len, codel_get_enqueue_time, codel_fifo_drop,
			    codel_fifo_head);
	if (unlikely(stats->drop_count)) {
		qdisc_tree_reduce_backlog(sch, stats->drop_count, stats->drop_len);
		fifo->stats.dropped += stats->drop_count;
		stats->drop_count = 0;
		stats->drop_len = 0;
	}
	*marked = stats->ecn_mark;
	stats->ecn_mark = 0;
	if (skb)
		qdisc_bstats_update(sch, skb);
	return skb;
}

static inline u64 codel_fifo_to_ns(codel_time_t time)
{
	return (u64)time << CODEL_SHIFT;
}

/*
 * A time as CoDel represents it. codel_time_t is compared as s32 and intervals
 * are multiplied by 16, so the maximum is 100 s.
 */
static inline u64 codel_fifo_rounded_ns(u64 ns)
{
	return codel_fifo_to_ns(ns >> CODEL_SHIFT);
}

/* Called under sch_tree_lock(). */
static void codel_fifo_set_params(struct Qdisc *sch, u64 target_ns, u64 interval_ns, bool ecn, u32 mtu)
{
	struct codel_fifo *fifo = qdisc_priv(sch);
	struct codel_params *params = &fifo->params.codel;

	codel_params_init(params);
	params->target = target_ns >> CODEL_SHIFT;
	params->interval = interval_ns >> CODEL_SHIFT;
	params->ecn = ecn;
	params->mtu = mtu;
}

/*
 * Packets that exceed the new limits are dropped from the head. Called under
 * sch_tree_lock().
 */
static void codel_fifo_set_limits(struct Qdisc *sch, u32 limit_bytes, u32 limit_packets)
{
	struct codel_fifo *fifo = qdisc_priv(sch);

	fifo->params.limit_bytes = limit_bytes;
	fifo->params.limit_packets = limit_packets;
	fifo->stats.overlimit += qdisc_fifo_trim(sch, limit_bytes, limit_packets);
}

static void codel_fifo_init(struct Qdisc *sch)
{
	struct codel_fifo *fifo = qdisc_priv(sch);

	codel_vars_init(&fifo->vars.codel);
	codel_stats_init(&fifo->stats.codel);
}

static void codel_fifo_reset(struct Qdisc *sch)
{
	struct codel_fifo *fifo = qdisc_priv(sch);

	qdisc_reset_queue(sch);
	codel_vars_init(&fifo->vars.codel);
}

#endif /* _QBED_CODEL_FIFO_H */
