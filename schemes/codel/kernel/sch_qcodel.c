// SPDX-License-Identifier: GPL-2.0-only
/*
 * qcodel: CoDel (RFC 8289) over one FIFO whose buffer is in bytes or packets.
 *
 * The FIFO and the control law: codel_fifo.h.
 */
#include <linux/module.h>

#include <qbed/codel_fifo.h>

#include "sch_qcodel.h"

struct qcodel_sched_data {
	struct codel_fifo fifo;
	u64 marked;		/* CE set, or found set where it would have been */
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

static const struct nla_policy qcodel_policy[TCA_QCODEL_MAX + 1] = {
	[TCA_QCODEL_LIMIT_BYTES] = NLA_POLICY_MIN(NLA_U32, 1),
	[TCA_QCODEL_LIMIT_PACKETS] = NLA_POLICY_MIN(NLA_U32, 1),
	[TCA_QCODEL_TARGET_NS] = NLA_POLICY_FULL_RANGE(NLA_U64, &codel_fifo_range_ns),
	[TCA_QCODEL_INTERVAL_NS] = NLA_POLICY_FULL_RANGE(NLA_U64, &codel_fifo_range_ns),
	[TCA_QCODEL_ECN] = NLA_POLICY_MAX(NLA_U32, 1),
	[TCA_QCODEL_MTU] = NLA_POLICY_MIN(NLA_U32, 1),
};

static int qcodel_parse(struct Qdisc *sch, struct nlattr *opt, struct codel_fifo_params *params,
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
	codel_fifo_read_params(params, qdisc_dev(sch), tb[TCA_QCODEL_LIMIT_BYTES],
			       tb[TCA_QCODEL_LIMIT_PACKETS], tb[TCA_QCODEL_TARGET_NS],
			       tb[TCA_QCODEL_INTERVAL_NS]);
	if (tb[TCA_QCODEL_ECN])
		params->codel.ecn = nla_get_u32(tb[TCA_QCODEL_ECN]);
	if (tb[TCA_QCODEL_MTU])
		params->codel.mtu = nla_get_u32(tb[TCA_QCODEL_MTU]);
	return 0;
}

static int qcodel_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct codel_fifo_params params;
	int err;

	err = qcodel_parse(sch, opt, &params, extack);
	if (err)
		return err;
	sch_tree_lock(sch);
	codel_fifo_set_params(sch, &params);
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
	const struct codel_fifo_params *params = &q->fifo.params;
	struct nlattr *opts = nla_nest_start_noflag(skb, TCA_OPTIONS);

	if (!opts)
		return -EMSGSIZE;
	if (codel_fifo_put_limit(skb, TCA_QCODEL_LIMIT_BYTES, params->limit_bytes) ||
	    codel_fifo_put_limit(skb, TCA_QCODEL_LIMIT_PACKETS, params->limit_packets) ||
	    nla_put_u64_64bit(skb, TCA_QCODEL_TARGET_NS, codel_fifo_to_ns(params->codel.target),
			      TCA_QCODEL_PAD) ||
	    nla_put_u64_64bit(skb, TCA_QCODEL_INTERVAL_NS,
			      codel_fifo_to_ns(params->codel.interval), TCA_QCODEL_PAD) ||
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
	const struct codel_fifo_stats *stats = &q->fifo.stats;
	const struct codel_vars *vars = &q->fifo.vars.codel;
	struct tc_qcodel_xstats xstats = {
		.marked = q->marked,
		.dropped = stats->dropped,
		.overlimit = stats->overlimit,
		.ldelay_ns = codel_fifo_to_ns(vars->ldelay),
		.count = vars->count,
		.lastcount = vars->lastcount,
		.dropping = vars->dropping,
		.maxpacket = stats->codel.maxpacket,
	};

	return gnet_stats_copy_app(d, &xstats, sizeof(xstats));
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
