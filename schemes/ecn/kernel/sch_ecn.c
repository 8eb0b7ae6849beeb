// SPDX-License-Identifier: GPL-2.0-only
/* ecn: a FIFO that marks CE above a threshold. The algorithm: ecn_algorithm.h. */
#include <net/inet_ecn.h>

#include <qbed/qdisc.h>

#include "ecn_algorithm.h"
#include "ecn_netlink.h"

struct ecn_sched_data {
	struct ecn_params params;
	struct ecn_stats stats;
};

static void ecn_mark(struct sk_buff *skb, struct ecn_stats *stats)
{
	int dsfield = skb_get_dsfield(skb);

	if (dsfield >= 0 && INET_ECN_is_ce(dsfield))
		return;		/* marked upstream */
	if (INET_ECN_set_ce(skb))
		stats->marked++;
	else
		stats->unmarked++;
}

static int ecn_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct ecn_sched_data *q = qdisc_priv(sch);
	const struct ecn_vars vars = {
		.queue_bytes = sch->qstats.backlog,
		.queue_packets = sch->q.qlen,
	};

	switch (ecn_on_arrival(&q->params, &vars, qdisc_pkt_len(skb))) {
	case ECN_DROP:
		q->stats.dropped++;
		return qdisc_drop(skb, sch, to_free);
	case ECN_MARK:
		ecn_mark(skb, &q->stats);
		break;
	case ECN_ENQUEUE:
		break;
	}
	return qdisc_enqueue_tail(skb, sch);
}

static int ecn_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct ecn_sched_data *q = qdisc_priv(sch);
	struct ecn_params params;
	int err;

	err = ecn_parse(&params, opt, extack);
	if (err)
		return err;
	sch_tree_lock(sch);
	q->params = params;
	q->stats.dropped += qdisc_fifo_trim(sch, params.buffer_bytes, params.buffer_packets);
	sch_tree_unlock(sch);
	return 0;
}

static int ecn_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	const struct ecn_sched_data *q = qdisc_priv(sch);

	return ecn_dump_params(skb, &q->params);
}

static int ecn_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct ecn_sched_data *q = qdisc_priv(sch);

	return gnet_stats_copy_app(d, &q->stats, sizeof(q->stats));
}

static struct Qdisc_ops ecn_qdisc_ops __read_mostly = {
	.id = "ecn",
	.priv_size = sizeof(struct ecn_sched_data),
	.enqueue = ecn_enqueue,
	.dequeue = qdisc_dequeue_head,
	.peek = qdisc_peek_head,
	.init = ecn_change,
	.reset = qdisc_reset_queue,
	.change = ecn_change,
	.dump = ecn_dump,
	.dump_stats = ecn_dump_stats,
	.owner = THIS_MODULE,
};

module_qdisc(ecn_qdisc_ops);

MODULE_DESCRIPTION("FIFO with step marking of ECN CE");
MODULE_LICENSE("GPL");
MODULE_ALIAS("sch_ecn");
