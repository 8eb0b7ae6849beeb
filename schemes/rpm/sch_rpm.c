// SPDX-License-Identifier: GPL-2.0-only
/*
 * rpm: reverse path congestion marking. CoDel decides, and acknowledgements
 * carry its decisions to the senders.
 *
 * This is the output side, a FIFO under the kernel's own control law,
 * <net/codel_impl.h>, as in qcodel. Where CoDel marks CE, the mark is taken back
 * and registered; sch_rpm_registers.h has the input side, rpm_algorithm.h the
 * rules. CoDel's clock has a resolution of 1024 ns, so targets and intervals are
 * rounded down to that.
 */
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/codel.h>
#include <net/codel_impl.h>
#include <net/codel_qdisc.h>
#include <net/inet_ecn.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>

#include "queue_note.h"
#include "sch_rpm.h"
#include "sch_rpm_registers.h"

#define RPM_NO_LIMIT U32_MAX
#define RPM_MIN_NS (1ull << CODEL_SHIFT)
/* codel_time_t is compared as s32, and codel_impl.h multiplies intervals by 16 */
#define RPM_MAX_NS (100ull * NSEC_PER_SEC)
#define RPM_DEFAULT_REGISTERS (1u << 16)
#define RPM_MAX_REGISTERS (1u << 24)

struct rpm_queue_params {
	struct codel_params codel;
	u32 limit_bytes;
	u32 limit_packets;
};

struct rpm_queue_stats {
	struct codel_stats codel;
	u64 dropped;		/* the sum of what codel counts in one dequeue */
	u64 overlimit;		/* packets that did not fit */
};

struct rpm_sched_data {
	struct rpm_queue_params params;
	struct codel_vars vars;
	struct rpm_queue_stats stats;
	int head_dsfield;	/* of the packet that was dequeued last, before CoDel saw it */
	u32 registers;		/* how many */
	struct rpm_port port;
};

static int rpm_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct rpm_sched_data *q = qdisc_priv(sch);

	if (sch->q.qlen >= q->params.limit_packets ||
	    (u64)sch->qstats.backlog + qdisc_pkt_len(skb) > q->params.limit_bytes) {
		q->stats.overlimit++;
		return qdisc_drop(skb, sch, to_free);
	}
	codel_set_enqueue_time(skb);
	return qdisc_enqueue_tail(skb, sch);
}

static struct sk_buff *rpm_head(struct codel_vars *vars, void *context)
{
	struct Qdisc *sch = context;
	struct rpm_sched_data *q = qdisc_priv(sch);
	struct sk_buff *skb = __qdisc_dequeue_head(&sch->q);

	if (skb) {
		qdisc_qstats_backlog_dec(sch, skb);
		q->head_dsfield = skb_get_dsfield(skb);
	}
	return skb;
}

static void rpm_drop(struct sk_buff *skb, void *context)
{
	kfree_skb(skb);
	qdisc_qstats_drop(context);
}

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
	struct codel_stats *stats = &q->stats.codel;
	struct sk_buff *skb;

	skb = codel_dequeue(sch, &sch->qstats.backlog, &q->params.codel, &q->vars, stats,
			    qdisc_pkt_len, codel_get_enqueue_time, rpm_drop, rpm_head);
	if (unlikely(stats->drop_count)) {
		qdisc_tree_reduce_backlog(sch, stats->drop_count, stats->drop_len);
		q->stats.dropped += stats->drop_count;
		stats->drop_count = 0;
		stats->drop_len = 0;
	}
	/* codel_dequeue() marks no packet but the one that it returns */
	if (unlikely(stats->ecn_mark)) {
		stats->ecn_mark = 0;
		if (rpm_decided(&q->port, skb, INET_ECN_is_ce(q->head_dsfield))) {
			rpm_restore_dsfield(skb, q->head_dsfield);
			queue_note(skb)->signalled = true;
		}
	}
	if (skb)
		qdisc_bstats_update(sch, skb);
	return skb;
}

/* not const: policies of Linux 6.1 point to what they could change */
static struct netlink_range_validation rpm_codel_range = {
	.min = RPM_MIN_NS,
	.max = RPM_MAX_NS,
};

static struct netlink_range_validation rpm_registers_range = {
	.min = 1,
	.max = RPM_MAX_REGISTERS,
};

static const struct nla_policy rpm_policy[TCA_RPM_MAX + 1] = {
	[TCA_RPM_LIMIT_BYTES] = NLA_POLICY_MIN(NLA_U32, 1),
	[TCA_RPM_LIMIT_PACKETS] = NLA_POLICY_MIN(NLA_U32, 1),
	[TCA_RPM_TARGET_NS] = NLA_POLICY_FULL_RANGE(NLA_U64, &rpm_codel_range),
	[TCA_RPM_INTERVAL_NS] = NLA_POLICY_FULL_RANGE(NLA_U64, &rpm_codel_range),
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

static void rpm_read_params(struct nlattr **tb, struct net_device *dev,
			    struct rpm_queue_params *queue, struct rpm_params *params)
{
	codel_params_init(&queue->codel);
	queue->codel.ecn = true;
	queue->codel.mtu = psched_mtu(dev);
	queue->limit_bytes = RPM_NO_LIMIT;
	queue->limit_packets = RPM_NO_LIMIT;
	params->reverse_timeout_ns = NSEC_PER_SEC;
	if (tb[TCA_RPM_LIMIT_BYTES])
		queue->limit_bytes = nla_get_u32(tb[TCA_RPM_LIMIT_BYTES]);
	if (tb[TCA_RPM_LIMIT_PACKETS])
		queue->limit_packets = nla_get_u32(tb[TCA_RPM_LIMIT_PACKETS]);
	if (tb[TCA_RPM_TARGET_NS])
		queue->codel.target = nla_get_u64(tb[TCA_RPM_TARGET_NS]) >> CODEL_SHIFT;
	if (tb[TCA_RPM_INTERVAL_NS])
		queue->codel.interval = nla_get_u64(tb[TCA_RPM_INTERVAL_NS]) >> CODEL_SHIFT;
	if (tb[TCA_RPM_REVERSE_TIMEOUT_NS])
		params->reverse_timeout_ns = nla_get_u64(tb[TCA_RPM_REVERSE_TIMEOUT_NS]);
}

static void rpm_set_params(struct Qdisc *sch, struct nlattr **tb)
{
	struct rpm_sched_data *q = qdisc_priv(sch);
	unsigned int dropped_packets = 0;
	unsigned int dropped_bytes = 0;

	sch_tree_lock(sch);
	spin_lock_bh(&q->port.on->lock);
	rpm_read_params(tb, qdisc_dev(sch), &q->params, &q->port.params);
	if (!q->port.per_port)
		q->port.on->params = q->port.params;
	spin_unlock_bh(&q->port.on->lock);
	while (sch->q.qlen > q->params.limit_packets ||
	       sch->qstats.backlog > q->params.limit_bytes) {
		struct sk_buff *skb = rpm_head(&q->vars, sch);

		dropped_packets++;
		dropped_bytes += qdisc_pkt_len(skb);
		q->stats.overlimit++;
		rtnl_qdisc_drop(skb, sch);
	}
	qdisc_tree_reduce_backlog(sch, dropped_packets, dropped_bytes);
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
	codel_vars_init(&q->vars);
	codel_stats_init(&q->stats.codel);
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

	qdisc_reset_queue(sch);
	codel_vars_init(&q->vars);
	rpm_port_clear(&q->port);
}

static void rpm_destroy(struct Qdisc *sch)
{
	struct rpm_sched_data *q = qdisc_priv(sch);

	rpm_port_leave(&q->port);
}

static u64 rpm_codel_to_ns(codel_time_t time)
{
	return (u64)time << CODEL_SHIFT;
}

static int rpm_put_limit(struct sk_buff *skb, int attribute, u32 limit)
{
	return limit == RPM_NO_LIMIT ? 0 : nla_put_u32(skb, attribute, limit);
}

static int rpm_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	const struct rpm_sched_data *q = qdisc_priv(sch);
	const struct rpm_queue_params *params = &q->params;
	struct nlattr *opts = nla_nest_start_noflag(skb, TCA_OPTIONS);

	if (!opts)
		return -EMSGSIZE;
	if (rpm_put_limit(skb, TCA_RPM_LIMIT_BYTES, params->limit_bytes) ||
	    rpm_put_limit(skb, TCA_RPM_LIMIT_PACKETS, params->limit_packets) ||
	    nla_put_u64_64bit(skb, TCA_RPM_TARGET_NS, rpm_codel_to_ns(params->codel.target),
			      TCA_RPM_PAD) ||
	    nla_put_u64_64bit(skb, TCA_RPM_INTERVAL_NS, rpm_codel_to_ns(params->codel.interval),
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
	struct tc_rpm_xstats xstats = {
		.dropped = q->stats.dropped,
		.overlimit = q->stats.overlimit,
		.ldelay_ns = rpm_codel_to_ns(q->vars.ldelay),
		.count = q->vars.count,
		.lastcount = q->vars.lastcount,
		.dropping = q->vars.dropping,
		.maxpacket = q->stats.codel.maxpacket,
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
	.enqueue = rpm_enqueue,
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
