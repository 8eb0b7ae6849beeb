// SPDX-License-Identifier: GPL-2.0-only
/*
 * qcodel: CoDel (RFC 8289) over one FIFO whose buffer is in bytes or packets.
 *
 * The control law is the kernel's own, <net/codel_impl.h>; this is the queue
 * around it. Its clock has a resolution of 1024 ns, so targets and intervals
 * are rounded down to that.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/codel.h>
#include <net/codel_impl.h>
#include <net/codel_qdisc.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>

#include "sch_qcodel.h"

#define QCODEL_NO_LIMIT U32_MAX
#define QCODEL_MIN_NS (1ull << CODEL_SHIFT)
/* codel_time_t is compared as s32, and codel_impl.h multiplies intervals by 16 */
#define QCODEL_MAX_NS (100ull * NSEC_PER_SEC)

struct qcodel_params {
	struct codel_params codel;
	u32 limit_bytes;
	u32 limit_packets;
};

struct qcodel_stats {
	struct codel_stats codel;
	u64 marked;		/* sums of what codel counts in one dequeue */
	u64 dropped;
	u64 overlimit;		/* packets that did not fit */
};

struct qcodel_sched_data {
	struct qcodel_params params;
	struct codel_vars vars;
	struct qcodel_stats stats;
};

static int qcodel_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct qcodel_sched_data *q = qdisc_priv(sch);

	if (sch->q.qlen >= q->params.limit_packets ||
	    (u64)sch->qstats.backlog + qdisc_pkt_len(skb) > q->params.limit_bytes) {
		q->stats.overlimit++;
		return qdisc_drop(skb, sch, to_free);
	}
	codel_set_enqueue_time(skb);
	return qdisc_enqueue_tail(skb, sch);
}

static struct sk_buff *qcodel_head(struct codel_vars *vars, void *context)
{
	struct Qdisc *sch = context;
	struct sk_buff *skb = __qdisc_dequeue_head(&sch->q);

	if (skb)
		qdisc_qstats_backlog_dec(sch, skb);
	return skb;
}

static void qcodel_drop(struct sk_buff *skb, void *context)
{
	kfree_skb(skb);
	qdisc_qstats_drop(context);
}

static struct sk_buff *qcodel_dequeue(struct Qdisc *sch)
{
	struct qcodel_sched_data *q = qdisc_priv(sch);
	struct codel_stats *stats = &q->stats.codel;
	struct sk_buff *skb;

	skb = codel_dequeue(sch, &sch->qstats.backlog, &q->params.codel, &q->vars, stats,
			    qdisc_pkt_len, codel_get_enqueue_time, qcodel_drop, qcodel_head);
	if (unlikely(stats->drop_count || stats->ecn_mark)) {
		if (stats->drop_count)
			qdisc_tree_reduce_backlog(sch, stats->drop_count, stats->drop_len);
		q->stats.dropped += stats->drop_count;
		q->stats.marked += stats->ecn_mark;
		stats->drop_count = 0;
		stats->drop_len = 0;
		stats->ecn_mark = 0;
	}
	if (skb)
		qdisc_bstats_update(sch, skb);
	return skb;
}

/* not const: policies of Linux 6.1 point to what they could change */
static struct netlink_range_validation qcodel_ns_range = {
	.min = QCODEL_MIN_NS,
	.max = QCODEL_MAX_NS,
};

static const struct nla_policy qcodel_policy[TCA_QCODEL_MAX + 1] = {
	[TCA_QCODEL_LIMIT_BYTES] = NLA_POLICY_MIN(NLA_U32, 1),
	[TCA_QCODEL_LIMIT_PACKETS] = NLA_POLICY_MIN(NLA_U32, 1),
	[TCA_QCODEL_TARGET_NS] = NLA_POLICY_FULL_RANGE(NLA_U64, &qcodel_ns_range),
	[TCA_QCODEL_INTERVAL_NS] = NLA_POLICY_FULL_RANGE(NLA_U64, &qcodel_ns_range),
	[TCA_QCODEL_ECN] = NLA_POLICY_MAX(NLA_U32, 1),
	[TCA_QCODEL_MTU] = NLA_POLICY_MIN(NLA_U32, 1),
};

static int qcodel_parse(struct Qdisc *sch, struct nlattr *opt, struct qcodel_params *params,
			struct netlink_ext_ack *extack)
{
	struct nlattr *tb[TCA_QCODEL_MAX + 1] = {};
	int err;

	if (opt) {
		err = nla_parse(tb, TCA_QCODEL_MAX, nla_data(opt), nla_len(opt), qcodel_policy,
				extack);
		if (err)
			return err;
	}
	if (!tb[TCA_QCODEL_LIMIT_BYTES] && !tb[TCA_QCODEL_LIMIT_PACKETS]) {
		NL_SET_ERR_MSG(extack, "qcodel needs a limit");
		return -EINVAL;
	}
	codel_params_init(&params->codel);
	params->codel.mtu = psched_mtu(qdisc_dev(sch));
	params->limit_bytes = QCODEL_NO_LIMIT;
	params->limit_packets = QCODEL_NO_LIMIT;
	if (tb[TCA_QCODEL_LIMIT_BYTES])
		params->limit_bytes = nla_get_u32(tb[TCA_QCODEL_LIMIT_BYTES]);
	if (tb[TCA_QCODEL_LIMIT_PACKETS])
		params->limit_packets = nla_get_u32(tb[TCA_QCODEL_LIMIT_PACKETS]);
	if (tb[TCA_QCODEL_TARGET_NS])
		params->codel.target = nla_get_u64(tb[TCA_QCODEL_TARGET_NS]) >> CODEL_SHIFT;
	if (tb[TCA_QCODEL_INTERVAL_NS])
		params->codel.interval = nla_get_u64(tb[TCA_QCODEL_INTERVAL_NS]) >> CODEL_SHIFT;
	if (tb[TCA_QCODEL_ECN])
		params->codel.ecn = nla_get_u32(tb[TCA_QCODEL_ECN]);
	if (tb[TCA_QCODEL_MTU])
		params->codel.mtu = nla_get_u32(tb[TCA_QCODEL_MTU]);
	return 0;
}

static int qcodel_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct qcodel_sched_data *q = qdisc_priv(sch);
	unsigned int dropped_packets = 0;
	unsigned int dropped_bytes = 0;
	struct qcodel_params params;
	int err;

	err = qcodel_parse(sch, opt, &params, extack);
	if (err)
		return err;

	sch_tree_lock(sch);
	q->params = params;
	while (sch->q.qlen > params.limit_packets || sch->qstats.backlog > params.limit_bytes) {
		struct sk_buff *skb = qcodel_head(&q->vars, sch);

		dropped_packets++;
		dropped_bytes += qdisc_pkt_len(skb);
		q->stats.overlimit++;
		rtnl_qdisc_drop(skb, sch);
	}
	qdisc_tree_reduce_backlog(sch, dropped_packets, dropped_bytes);
	sch_tree_unlock(sch);
	return 0;
}

static int qcodel_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct qcodel_sched_data *q = qdisc_priv(sch);

	codel_vars_init(&q->vars);
	codel_stats_init(&q->stats.codel);
	return qcodel_change(sch, opt, extack);
}

static void qcodel_reset(struct Qdisc *sch)
{
	struct qcodel_sched_data *q = qdisc_priv(sch);

	qdisc_reset_queue(sch);
	codel_vars_init(&q->vars);
}

static u64 qcodel_to_ns(codel_time_t time)
{
	return (u64)time << CODEL_SHIFT;
}

static int qcodel_put_limit(struct sk_buff *skb, int attribute, u32 limit)
{
	return limit == QCODEL_NO_LIMIT ? 0 : nla_put_u32(skb, attribute, limit);
}

static int qcodel_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	const struct qcodel_sched_data *q = qdisc_priv(sch);
	const struct qcodel_params *params = &q->params;
	struct nlattr *opts = nla_nest_start_noflag(skb, TCA_OPTIONS);

	if (!opts)
		return -EMSGSIZE;
	if (qcodel_put_limit(skb, TCA_QCODEL_LIMIT_BYTES, params->limit_bytes) ||
	    qcodel_put_limit(skb, TCA_QCODEL_LIMIT_PACKETS, params->limit_packets) ||
	    nla_put_u64_64bit(skb, TCA_QCODEL_TARGET_NS, qcodel_to_ns(params->codel.target),
			      TCA_QCODEL_PAD) ||
	    nla_put_u64_64bit(skb, TCA_QCODEL_INTERVAL_NS,
			      qcodel_to_ns(params->codel.interval), TCA_QCODEL_PAD) ||
	    nla_put_u32(skb, TCA_QCODEL_ECN, params->codel.ecn) ||
	    nla_put_u32(skb, TCA_QCODEL_MTU, params->codel.mtu)) {
		nla_nest_cancel(skb, opts);
		return -EMSGSIZE;
	}
	return nla_nest_end(skb, opts);
}

static int qcodel_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	const struct qcodel_sched_data *q = qdisc_priv(sch);
	struct tc_qcodel_xstats xstats = {
		.marked = q->stats.marked,
		.dropped = q->stats.dropped,
		.overlimit = q->stats.overlimit,
		.ldelay_ns = qcodel_to_ns(q->vars.ldelay),
		.count = q->vars.count,
		.lastcount = q->vars.lastcount,
		.dropping = q->vars.dropping,
		.maxpacket = q->stats.codel.maxpacket,
	};

	return gnet_stats_copy_app(d, &xstats, sizeof(xstats));
}

static struct Qdisc_ops qcodel_qdisc_ops __read_mostly = {
	.id = "qcodel",
	.priv_size = sizeof(struct qcodel_sched_data),
	.enqueue = qcodel_enqueue,
	.dequeue = qcodel_dequeue,
	.peek = qdisc_peek_dequeued,
	.init = qcodel_init,
	.reset = qcodel_reset,
	.change = qcodel_change,
	.dump = qcodel_dump,
	.dump_stats = qcodel_dump_stats,
	.owner = THIS_MODULE,
};

static int __init qcodel_module_init(void)
{
	return register_qdisc(&qcodel_qdisc_ops);
}

static void __exit qcodel_module_exit(void)
{
	unregister_qdisc(&qcodel_qdisc_ops);
}

module_init(qcodel_module_init);
module_exit(qcodel_module_exit);

MODULE_DESCRIPTION("CoDel with a buffer in bytes or packets");
MODULE_LICENSE("GPL");
MODULE_ALIAS("sch_qcodel");
