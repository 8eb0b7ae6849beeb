// SPDX-License-Identifier: GPL-2.0-only
/* ecn: a FIFO that marks CE above a threshold. The rule: ecn_algorithm.h. */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/inet_ecn.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>

#include "ecn_algorithm.h"
#include "sch_ecn.h"

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

static const struct nla_policy ecn_policy[TCA_ECN_MAX + 1] = {
	[TCA_ECN_LIMIT_BYTES] = NLA_POLICY_MIN(NLA_U32, 1),
	[TCA_ECN_LIMIT_PACKETS] = NLA_POLICY_MIN(NLA_U32, 1),
	[TCA_ECN_THRESHOLD_BYTES] = { .type = NLA_U32 },
	[TCA_ECN_THRESHOLD_PACKETS] = { .type = NLA_U32 },
};

static u32 ecn_bound(struct nlattr *attribute)
{
	return attribute ? nla_get_u32(attribute) : ECN_NO_BOUND;
}

static int ecn_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct ecn_sched_data *q = qdisc_priv(sch);
	struct nlattr *tb[TCA_ECN_MAX + 1];
	unsigned int dropped_packets = 0;
	unsigned int dropped_bytes = 0;
	struct ecn_params params;
	int err;

	if (!opt) {
		NL_SET_ERR_MSG(extack, "ecn needs a limit");
		return -EINVAL;
	}
	err = nla_parse(tb, TCA_ECN_MAX, nla_data(opt), nla_len(opt), ecn_policy, extack);
	if (err)
		return err;
	if (!tb[TCA_ECN_LIMIT_BYTES] && !tb[TCA_ECN_LIMIT_PACKETS]) {
		NL_SET_ERR_MSG(extack, "ecn needs a limit");
		return -EINVAL;
	}
	params = (struct ecn_params) {
		.limit_bytes = ecn_bound(tb[TCA_ECN_LIMIT_BYTES]),
		.limit_packets = ecn_bound(tb[TCA_ECN_LIMIT_PACKETS]),
		.threshold_bytes = ecn_bound(tb[TCA_ECN_THRESHOLD_BYTES]),
		.threshold_packets = ecn_bound(tb[TCA_ECN_THRESHOLD_PACKETS]),
	};

	sch_tree_lock(sch);
	q->params = params;
	while (sch->q.qlen > params.limit_packets || sch->qstats.backlog > params.limit_bytes) {
		struct sk_buff *skb = qdisc_dequeue_head(sch);

		dropped_packets++;
		dropped_bytes += qdisc_pkt_len(skb);
		q->stats.dropped++;
		rtnl_qdisc_drop(skb, sch);
	}
	qdisc_tree_reduce_backlog(sch, dropped_packets, dropped_bytes);
	sch_tree_unlock(sch);
	return 0;
}

static int ecn_put_bound(struct sk_buff *skb, int attribute, u32 bound)
{
	return bound == ECN_NO_BOUND ? 0 : nla_put_u32(skb, attribute, bound);
}

static int ecn_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	const struct ecn_sched_data *q = qdisc_priv(sch);
	const struct ecn_params *params = &q->params;
	struct nlattr *opts = nla_nest_start_noflag(skb, TCA_OPTIONS);

	if (!opts)
		return -EMSGSIZE;
	if (ecn_put_bound(skb, TCA_ECN_LIMIT_BYTES, params->limit_bytes) ||
	    ecn_put_bound(skb, TCA_ECN_LIMIT_PACKETS, params->limit_packets) ||
	    ecn_put_bound(skb, TCA_ECN_THRESHOLD_BYTES, params->threshold_bytes) ||
	    ecn_put_bound(skb, TCA_ECN_THRESHOLD_PACKETS, params->threshold_packets)) {
		nla_nest_cancel(skb, opts);
		return -EMSGSIZE;
	}
	return nla_nest_end(skb, opts);
}

static int ecn_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	const struct ecn_sched_data *q = qdisc_priv(sch);
	struct tc_ecn_xstats xstats = {
		.marked = q->stats.marked,
		.unmarked = q->stats.unmarked,
		.dropped = q->stats.dropped,
	};

	return gnet_stats_copy_app(d, &xstats, sizeof(xstats));
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

static int __init ecn_module_init(void)
{
	return register_qdisc(&ecn_qdisc_ops);
}

static void __exit ecn_module_exit(void)
{
	unregister_qdisc(&ecn_qdisc_ops);
}

module_init(ecn_module_init);
module_exit(ecn_module_exit);

MODULE_DESCRIPTION("FIFO with step marking of ECN CE");
MODULE_LICENSE("GPL");
MODULE_ALIAS("sch_ecn");
