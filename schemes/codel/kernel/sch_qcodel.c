// SPDX-License-Identifier: GPL-2.0-only
/*
 * qcodel: CoDel (RFC 8289) over a FIFO with a buffer in bytes or packets.
 *
 * FIFO and control law: codel_fifo.h.
 */
#include <qbed/codel_fifo.h>
#include <qbed/qdisc.h>

#include "qcodel_netlink.h"

struct qcodel_sched_data {
	struct codel_fifo fifo;
	struct qcodel_params params;
	u64 marked;		/* CoDel marked, including packets that already had CE */
};

static struct sk_buff *qcodel_dequeue(struct Qdisc *sch)
{
	struct qcodel_sched_data *q = qdisc_priv(sch);
	struct sk_buff *skb;
	bool marked;

	skb = codel_fifo_dequeue(sch, &marked);
	q->marked += marked;
	return skb;
}

static int qcodel_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct qcodel_sched_data *q = qdisc_priv(sch);
	struct qcodel_params params;
	int err;

	err = qcodel_parse(&params, opt, extack);
	if (err)
		return err;
	params.target_ns = codel_fifo_rounded_ns(params.target_ns);
	params.interval_ns = codel_fifo_rounded_ns(params.interval_ns);
	if (!params.mtu)
		params.mtu = psched_mtu(qdisc_dev(sch));
	sch_tree_lock(sch);
	q->params = params;
	codel_fifo_set_params(sch, params.target_ns, params.interval_ns, params.ecn, params.mtu);
	codel_fifo_set_limits(sch, params.buffer_bytes, params.buffer_packets);
	sch_tree_unlock(sch);
	return 0;
}

static int qcodel_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	codel_fifo_init(sch);
	return qcodel_change(sch, opt, extack);
}

static int qcodel_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	const struct qcodel_sched_data *q = qdisc_priv(sch);

	return qcodel_dump_params(skb, &q->params);
}

static int qcodel_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	const struct qcodel_sched_data *q = qdisc_priv(sch);
	const struct codel_fifo_stats *stats = &q->fifo.stats;
	const struct codel_vars *vars = &q->fifo.vars.codel;
	struct qcodel_stats shown = {
		.marked = q->marked,
		.dropped = stats->dropped,
		.overlimit = stats->overlimit,
		.last_delay_ns = codel_fifo_to_ns(vars->ldelay),
		.count = vars->count,
		.last_count = vars->lastcount,
		.dropping = vars->dropping,
		.largest_packet = stats->codel.maxpacket,
	};

	return gnet_stats_copy_app(d, &shown, sizeof(shown));
}

static struct Qdisc_ops qcodel_qdisc_ops __read_mostly = {
	.id = "qcodel",
	.priv_size = sizeof(struct qcodel_sched_data),
	.enqueue = codel_fifo_enqueue,
	.dequeue = qcodel_dequeue,
	.peek = qdisc_peek_dequeued,
	.init = qcodel_init,
	.reset = codel_fifo_reset,
	.change = qcodel_change,
	.dump = qcodel_dump,
	.dump_stats = qcodel_dump_stats,
	.owner = THIS_MODULE,
};

module_qdisc(qcodel_qdisc_ops);

MODULE_DESCRIPTION("CoDel with a buffer in bytes or packets");
MODULE_LICENSE("GPL");
MODULE_ALIAS("sch_qcodel");
