// SPDX-License-Identifier: GPL-2.0-only
/*
 * rpm: reverse path congestion marking. CoDel decides, and acknowledgements
 * carry its decisions to the senders.
 *
 * This is the output side, the FIFO under CoDel of codel_fifo.h, as in qcodel.
 * Where CoDel marks CE, the mark is taken back and registered;
 * sch_rpm_registers.h has the input side, rpm_algorithm.h the rules.
 */
#include <linux/log2.h>
#include <linux/module.h>
#include <net/inet_ecn.h>

#include <qbed/codel_fifo.h>
#include <qbed/queue_note.h>

#include "sch_rpm.h"
#include "sch_rpm_registers.h"

#define RPM_DEFAULT_REGISTERS (1u << 16)
#define RPM_MAX_REGISTERS (1u << 24)

struct rpm_sched_data {
	struct codel_fifo fifo;
	u32 registers;		/* how many */
	struct rpm_port port;
};

/* The reverse of INET_ECN_set_ce(), which has just changed the packet. */
static void rpm_restore_dsfield(struct sk_buff *skb, u8 dsfield)
{
	__be32 *word, marked;

	if (skb_protocol(skb, true) == htons(ETH_P_IP)) {
		ipv4_change_dsfield(ip_hdr(skb), 0, dsfield);
		return;
	}
	word = (__be32 *)ipv6_hdr(skb);
	marked = *word;
	ipv6_change_dsfield(ipv6_hdr(skb), 0, dsfield);
	if (skb->ip_summed == CHECKSUM_COMPLETE)
		skb->csum = csum_add(csum_sub(skb->csum, (__force __wsum)marked),
				     (__force __wsum)*word);
}

static struct sk_buff *rpm_dequeue(struct Qdisc *sch)
{
	struct rpm_sched_data *q = qdisc_priv(sch);
	struct sk_buff *skb;
	bool marked;
	int dsfield;

	skb = codel_fifo_dequeue(sch, &marked);
	if (likely(!marked))
		return skb;
	dsfield = q->fifo.vars.head_dsfield;
	if (rpm_decided(&q->port, skb, INET_ECN_is_ce(dsfield))) {
		rpm_restore_dsfield(skb, dsfield);
		queue_note(skb)->signalled = true;
	}
	return skb;
}

/* not const: policies of Linux 6.1 point to what they could change */
static struct netlink_range_validation rpm_registers_range = {
	.min = 1,
	.max = RPM_MAX_REGISTERS,
};

static const struct nla_policy rpm_policy[TCA_RPM_MAX + 1] = {
	[TCA_RPM_LIMIT_BYTES] = NLA_POLICY_MIN(NLA_U32, 1),
	[TCA_RPM_LIMIT_PACKETS] = NLA_POLICY_MIN(NLA_U32, 1),
	[TCA_RPM_TARGET_NS] = NLA_POLICY_FULL_RANGE(NLA_U64, &codel_fifo_range_ns),
	[TCA_RPM_INTERVAL_NS] = NLA_POLICY_FULL_RANGE(NLA_U64, &codel_fifo_range_ns),
	[TCA_RPM_PER_PORT] = NLA_POLICY_MAX(NLA_U32, 1),
	[TCA_RPM_REGISTERS] = NLA_POLICY_FULL_RANGE(NLA_U32, &rpm_registers_range),
	[TCA_RPM_REVERSE_TIMEOUT_NS] = NLA_POLICY_MIN(NLA_U64, 1),
};

static int rpm_parse(struct nlattr *opt, struct nlattr **tb, struct netlink_ext_ack *extack)
{
	int err;

	if (opt) {
		err = nla_parse(tb, TCA_RPM_MAX, nla_data(opt), nla_len(opt), rpm_policy, extack);
		if (err)
			return err;
	}
	if (!tb[TCA_RPM_LIMIT_BYTES] && !tb[TCA_RPM_LIMIT_PACKETS]) {
		NL_SET_ERR_MSG(extack, "rpm needs a limit");
		return -EINVAL;
	}
	if (tb[TCA_RPM_REGISTERS] && !is_power_of_2(nla_get_u32(tb[TCA_RPM_REGISTERS]))) {
		NL_SET_ERR_MSG_ATTR(extack, tb[TCA_RPM_REGISTERS],
				    "the number of registers is a power of two");
		return -EINVAL;
	}
	return 0;
}

static void rpm_set_params(struct Qdisc *sch, struct nlattr **tb)
{
	struct rpm_sched_data *q = qdisc_priv(sch);
	struct rpm_params params = { .reverse_timeout_ns = NSEC_PER_SEC };
	struct codel_fifo_params fifo_params;

	if (tb[TCA_RPM_REVERSE_TIMEOUT_NS])
		params.reverse_timeout_ns = nla_get_u64(tb[TCA_RPM_REVERSE_TIMEOUT_NS]);
	codel_fifo_read_params(&fifo_params, qdisc_dev(sch), tb[TCA_RPM_LIMIT_BYTES],
			       tb[TCA_RPM_LIMIT_PACKETS], tb[TCA_RPM_TARGET_NS],
			       tb[TCA_RPM_INTERVAL_NS]);
	fifo_params.codel.ecn = true;

	sch_tree_lock(sch);
	spin_lock_bh(&q->port.on->lock);
	q->port.params = params;
	if (!q->port.per_port)
		q->port.on->params = params;
	spin_unlock_bh(&q->port.on->lock);
	codel_fifo_set_params(sch, &fifo_params);
	sch_tree_unlock(sch);
}

static int rpm_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct rpm_sched_data *q = qdisc_priv(sch);
	struct nlattr *tb[TCA_RPM_MAX + 1] = {};
	int err;

	err = rpm_parse(opt, tb, extack);
	if (err)
		return err;
	if ((tb[TCA_RPM_PER_PORT] && nla_get_u32(tb[TCA_RPM_PER_PORT]) != q->port.per_port) ||
	    (tb[TCA_RPM_REGISTERS] && nla_get_u32(tb[TCA_RPM_REGISTERS]) != q->registers)) {
		NL_SET_ERR_MSG(extack, "per_port and registers are chosen at creation");
		return -EOPNOTSUPP;
	}
	rpm_set_params(sch, tb);
	return 0;
}

static int rpm_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct rpm_sched_data *q = qdisc_priv(sch);
	struct nlattr *tb[TCA_RPM_MAX + 1] = {};
	int err;

	INIT_LIST_HEAD(&q->port.list);
	codel_fifo_init(sch);
	err = rpm_parse(opt, tb, extack);
	if (err)
		return err;
	q->registers = RPM_DEFAULT_REGISTERS;
	if (tb[TCA_RPM_REGISTERS])
		q->registers = nla_get_u32(tb[TCA_RPM_REGISTERS]);
	if (tb[TCA_RPM_PER_PORT])
		q->port.per_port = nla_get_u32(tb[TCA_RPM_PER_PORT]);
	q->port.dev = qdisc_dev(sch);
	err = rpm_port_join(&q->port, q->registers, extack);
	if (err)
		return err;
	rpm_set_params(sch, tb);
	return 0;
}

static void rpm_reset(struct Qdisc *sch)
{
	struct rpm_sched_data *q = qdisc_priv(sch);

	codel_fifo_reset(sch);
	rpm_port_clear(&q->port);
}

static void rpm_destroy(struct Qdisc *sch)
{
	struct rpm_sched_data *q = qdisc_priv(sch);

	rpm_port_leave(&q->port);
}

static int rpm_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	const struct rpm_sched_data *q = qdisc_priv(sch);
	const struct codel_fifo_params *params = &q->fifo.params;
	struct nlattr *opts = nla_nest_start_noflag(skb, TCA_OPTIONS);

	if (!opts)
		return -EMSGSIZE;
	if (codel_fifo_put_limit(skb, TCA_RPM_LIMIT_BYTES, params->limit_bytes) ||
	    codel_fifo_put_limit(skb, TCA_RPM_LIMIT_PACKETS, params->limit_packets) ||
	    nla_put_u64_64bit(skb, TCA_RPM_TARGET_NS, codel_fifo_to_ns(params->codel.target),
			      TCA_RPM_PAD) ||
	    nla_put_u64_64bit(skb, TCA_RPM_INTERVAL_NS, codel_fifo_to_ns(params->codel.interval),
			      TCA_RPM_PAD) ||
	    nla_put_u32(skb, TCA_RPM_PER_PORT, q->port.per_port) ||
	    nla_put_u32(skb, TCA_RPM_REGISTERS, q->registers) ||
	    nla_put_u64_64bit(skb, TCA_RPM_REVERSE_TIMEOUT_NS,
			      q->port.params.reverse_timeout_ns, TCA_RPM_PAD)) {
		nla_nest_cancel(skb, opts);
		return -EMSGSIZE;
	}
	return nla_nest_end(skb, opts);
}

static int rpm_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct rpm_sched_data *q = qdisc_priv(sch);
	const struct codel_fifo *fifo = &q->fifo;
	const struct codel_vars *vars = &fifo->vars.codel;
	struct tc_rpm_xstats xstats = {
		.dropped = fifo->stats.dropped,
		.overlimit = fifo->stats.overlimit,
		.ldelay_ns = codel_fifo_to_ns(vars->ldelay),
		.count = vars->count,
		.lastcount = vars->lastcount,
		.dropping = vars->dropping,
		.maxpacket = fifo->stats.codel.maxpacket,
	};
	struct rpm_stats *stats = &q->port.stats;

	spin_lock_bh(&q->port.on->lock);
	rpm_stats_advance(stats, ktime_get_ns());
	xstats.marked = stats->marked;
	xstats.reverse_marks = stats->reverse_marks;
	xstats.forward_marks = stats->forward_marks;
	xstats.ce_arrived = stats->ce_arrived;
	xstats.ece_already_set = stats->ece_already_set;
	xstats.cleared = stats->cleared;
	xstats.pending = stats->pending;
	xstats.collisions = stats->collisions;
	xstats.pending_ns = stats->pending_ns;
	spin_unlock_bh(&q->port.on->lock);
	return gnet_stats_copy_app(d, &xstats, sizeof(xstats));
}

static struct Qdisc_ops rpm_qdisc_ops __read_mostly = {
	.id = "rpm",
	.priv_size = sizeof(struct rpm_sched_data),
	.enqueue = codel_fifo_enqueue,
	.dequeue = rpm_dequeue,
	.peek = qdisc_peek_dequeued,
	.init = rpm_init,
	.reset = rpm_reset,
	.destroy = rpm_destroy,
	.change = rpm_change,
	.dump = rpm_dump,
	.dump_stats = rpm_dump_stats,
	.owner = THIS_MODULE,
};

static int __init rpm_module_init(void)
{
	int err = register_pernet_subsys(&rpm_net_ops);

	if (err)
		return err;
	err = register_qdisc(&rpm_qdisc_ops);
	if (err)
		unregister_pernet_subsys(&rpm_net_ops);
	return err;
}

static void __exit rpm_module_exit(void)
{
	unregister_qdisc(&rpm_qdisc_ops);
	unregister_pernet_subsys(&rpm_net_ops);
}

module_init(rpm_module_init);
module_exit(rpm_module_exit);

MODULE_DESCRIPTION("Reverse path congestion marking");
MODULE_LICENSE("GPL");
MODULE_ALIAS("sch_rpm");
