// SPDX-License-Identifier: GPL-2.0-only
/*
 * qdualpi2: two coupled queues, for classic traffic and for L4S (RFC 9332). The
 * algorithm: qdualpi2_algorithm.h. The controller needs no timer: updates that
 * are due are performed before each enqueue and dequeue.
 */
#include <net/inet_ecn.h>

#include <qbed/qdisc.h>

#include "qdualpi2_algorithm.h"
#include "qdualpi2_netlink.h"

struct qdualpi2_sched_data {
	struct qdualpi2_params params;
	struct qdualpi2_vars vars;
	struct qdualpi2_stats stats;
	struct qdisc_skb_head classic;
	struct qdisc_skb_head l4s;
};

/* Time of enqueue. */
static u64 *qdualpi2_enqueue_ns(const struct sk_buff *skb)
{
	qdisc_cb_private_validate(skb, sizeof(u64));
	return (u64 *)qdisc_skb_cb(skb)->data;
}

static void qdualpi2_update_due(struct qdualpi2_sched_data *q, u64 now_ns)
{
	const struct sk_buff *classic = q->classic.head, *l4s = q->l4s.head;
	u64 oldest_ns = U64_MAX;

	if (classic)
		oldest_ns = *qdualpi2_enqueue_ns(classic);
	if (l4s)
		oldest_ns = min(oldest_ns, *qdualpi2_enqueue_ns(l4s));
	qdualpi2_catch_up(&q->params, &q->vars, now_ns, classic || l4s, oldest_ns);
}

/* "The LSB of the ECN field": ECT(1) and CE. */
static bool qdualpi2_is_l4s(struct sk_buff *skb)
{
	int dsfield = skb_get_dsfield(skb);

	return dsfield >= 0 && (dsfield & INET_ECN_ECT_1);
}

static int qdualpi2_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct qdualpi2_sched_data *q = qdisc_priv(sch);
	u64 now_ns = ktime_get_ns();

	if (!qdualpi2_fits(&q->params, sch->q.qlen, sch->qstats.backlog, qdisc_pkt_len(skb))) {
		q->stats.overlimit++;
		return qdisc_drop(skb, sch, to_free);
	}
	qdualpi2_update_due(q, now_ns);
	*qdualpi2_enqueue_ns(skb) = now_ns;
	if (qdualpi2_is_l4s(skb)) {
		q->stats.enqueued_l4s++;
		__qdisc_enqueue_tail(skb, &q->l4s);
	} else {
		q->stats.enqueued_classic++;
		__qdisc_enqueue_tail(skb, &q->classic);
	}
	sch->q.qlen++;
	qdisc_qstats_backlog_inc(sch, skb);
	return NET_XMIT_SUCCESS;
}

static struct sk_buff *qdualpi2_dequeue_head(struct Qdisc *sch, struct qdisc_skb_head *queue)
{
	struct sk_buff *skb = __qdisc_dequeue_head(queue);

	if (skb) {
		sch->q.qlen--;
		qdisc_qstats_backlog_dec(sch, skb);
	}
	return skb;
}

/* Applies the verdict. Returns false if the packet is to be dropped. */
static bool qdualpi2_signal_l4s(struct qdualpi2_sched_data *q, struct sk_buff *skb)
{
	switch (qdualpi2_on_l4s(&q->params, &q->vars, q->stats.delay_l4s_ns, !q->l4s.head)) {
	case QDUALPI2_DROP:
		q->stats.dropped_l4s++;
		return false;
	case QDUALPI2_MARK_BY_RAMP:
		q->stats.marked_by_ramp += INET_ECN_set_ce(skb);
		break;
	case QDUALPI2_MARK_BY_COUPLING:
		q->stats.marked_by_coupling += INET_ECN_set_ce(skb);
		break;
	default:
		break;
	}
	return true;
}

static bool qdualpi2_signal_classic(struct qdualpi2_sched_data *q, struct sk_buff *skb)
{
	switch (qdualpi2_on_classic(&q->params, &q->vars)) {
	case QDUALPI2_PASS:
		return true;
	case QDUALPI2_SIGNAL:
		if (INET_ECN_set_ce(skb)) {
			q->stats.marked_classic++;
			return true;
		}
		break;
	default:
		break;
	}
	q->stats.dropped_classic++;
	return false;
}

static struct sk_buff *qdualpi2_dequeue(struct Qdisc *sch)
{
	struct qdualpi2_sched_data *q = qdisc_priv(sch);
	unsigned int dropped_packets = 0, dropped_bytes = 0;
	u64 now_ns = ktime_get_ns();
	struct sk_buff *skb;

	qdualpi2_update_due(q, now_ns);
	for (;;) {
		bool classic = qdualpi2_is_classic_next(&q->vars, q->classic.head, q->l4s.head);

		skb = qdualpi2_dequeue_head(sch, classic ? &q->classic : &q->l4s);
		if (!skb)
			break;
		if (classic)
			q->stats.delay_classic_ns = now_ns - *qdualpi2_enqueue_ns(skb);
		else
			q->stats.delay_l4s_ns = now_ns - *qdualpi2_enqueue_ns(skb);
		if (classic ? qdualpi2_signal_classic(q, skb) : qdualpi2_signal_l4s(q, skb)) {
			qdualpi2_account(&q->params, &q->vars, classic,
				      classic ? q->l4s.head : q->classic.head, qdisc_pkt_len(skb));
			qdisc_bstats_update(sch, skb);
			break;
		}
		dropped_packets++;
		dropped_bytes += qdisc_pkt_len(skb);
		qdisc_qstats_drop(sch);
		kfree_skb(skb);
	}
	if (dropped_packets)
		qdisc_tree_reduce_backlog(sch, dropped_packets, dropped_bytes);
	return skb;
}

/* Drops packets that exceed the limit from the heads, classic packets first. */
static void qdualpi2_trim(struct Qdisc *sch)
{
	struct qdualpi2_sched_data *q = qdisc_priv(sch);
	unsigned int dropped_packets = 0, dropped_bytes = 0;

	while (!qdualpi2_fits(&q->params, sch->q.qlen - 1, sch->qstats.backlog, 0) && sch->q.qlen) {
		struct sk_buff *skb = qdualpi2_dequeue_head(sch, q->classic.head ? &q->classic : &q->l4s);

		if (!skb)
			break;		/* the rest are segments of a burst, already dequeued */
		dropped_packets++;
		dropped_bytes += qdisc_pkt_len(skb);
		q->stats.overlimit++;
		rtnl_qdisc_drop(skb, sch);
	}
	qdisc_tree_reduce_backlog(sch, dropped_packets, dropped_bytes);
}

static int qdualpi2_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct qdualpi2_sched_data *q = qdisc_priv(sch);
	u64 now_ns = ktime_get_ns();
	struct qdualpi2_params params;
	int err;

	err = qdualpi2_parse(&params, opt, extack);
	if (err)
		return err;
	if (params.min_threshold_ns > params.max_threshold_ns) {
		NL_SET_ERR_MSG(extack, "qdualpi2: min_threshold is more than max_threshold");
		return -EINVAL;
	}
	sch_tree_lock(sch);
	if (q->params.target_ns)
		qdualpi2_update_due(q, now_ns);
	q->params = params;
	q->vars.due_ns = now_ns + qdualpi2_interval_ns(&params);
	qdualpi2_trim(sch);
	sch_tree_unlock(sch);
	return 0;
}

static void qdualpi2_reset(struct Qdisc *sch)
{
	struct qdualpi2_sched_data *q = qdisc_priv(sch);

	__qdisc_reset_queue(&q->classic);
	__qdisc_reset_queue(&q->l4s);
	q->vars = (struct qdualpi2_vars) {
		.due_ns = ktime_get_ns() + qdualpi2_interval_ns(&q->params),
	};
}

static int qdualpi2_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	const struct qdualpi2_sched_data *q = qdisc_priv(sch);

	return qdualpi2_dump_params(skb, &q->params);
}

static int qdualpi2_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct qdualpi2_sched_data *q = qdisc_priv(sch);

	sch_tree_lock(sch);
	qdualpi2_update_due(q, ktime_get_ns());
	q->stats.probability = (q->vars.p * NSEC_PER_SEC) >> 32;
	sch_tree_unlock(sch);
	return gnet_stats_copy_app(d, &q->stats, sizeof(q->stats));
}

static struct Qdisc_ops qdualpi2_qdisc_ops __read_mostly = {
	.id = "qdualpi2",
	.priv_size = sizeof(struct qdualpi2_sched_data),
	.enqueue = qdualpi2_enqueue,
	.dequeue = qdualpi2_dequeue,
	.peek = qdisc_peek_dequeued,
	.init = qdualpi2_change,
	.reset = qdualpi2_reset,
	.change = qdualpi2_change,
	.dump = qdualpi2_dump,
	.dump_stats = qdualpi2_dump_stats,
	.owner = THIS_MODULE,
};

module_qdisc(qdualpi2_qdisc_ops);

MODULE_DESCRIPTION("Two coupled queues for classic and L4S traffic, by PI2");
MODULE_LICENSE("GPL");
MODULE_ALIAS("sch_qdualpi2");
