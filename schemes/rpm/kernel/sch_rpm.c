// SPDX-License-Identifier: GPL-2.0-only
/*
 * rpm: reverse path congestion marking. CoDel decides, and acknowledgements
 * carry its decisions to the senders.
 *
 * This is the output side, the FIFO under CoDel of codel_fifo.h, as in qcodel.
 * Where CoDel marks CE, the mark is reverted and counted in a register. The
 * input side is sch_rpm_registers.h, the algorithm rpm_algorithm.h.
 */
#include <net/inet_ecn.h>

#include <qbed/codel_fifo.h>
#include <qbed/qdisc.h>
#include <qbed/tap_skb_cb.h>

#include "rpm_netlink.h"
#include "sch_rpm_registers.h"

struct rpm_sched_data {
	struct codel_fifo fifo;
	struct rpm_port port;
};

/* Reverts INET_ECN_set_ce(), which has just changed the packet. */
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
	if (rpm_register_decision(&q->port, skb, INET_ECN_is_ce(dsfield))) {
		rpm_restore_dsfield(skb, dsfield);
		tap_skb_cb(skb)->signalled = true;
	}
	return skb;
}

static void rpm_set_params(struct Qdisc *sch, struct rpm_params *params)
{
	struct rpm_sched_data *q = qdisc_priv(sch);

	params->target_ns = codel_fifo_rounded_ns(params->target_ns);
	params->interval_ns = codel_fifo_rounded_ns(params->interval_ns);
	sch_tree_lock(sch);
	spin_lock_bh(&q->port.sw->lock);
	q->port.params = *params;
	if (!params->per_port)
		q->port.sw->params = *params;
	spin_unlock_bh(&q->port.sw->lock);
	codel_fifo_set_params(sch, params->target_ns, params->interval_ns, true,
			   psched_mtu(qdisc_dev(sch)));
	codel_fifo_set_limits(sch, params->buffer_bytes, params->buffer_packets);
	sch_tree_unlock(sch);
}

static int rpm_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct rpm_sched_data *q = qdisc_priv(sch);
	struct rpm_params params;
	int err;

	err = rpm_parse(&params, &q->port.params, opt, extack);
	if (err)
		return err;
	rpm_set_params(sch, &params);
	return 0;
}

static int rpm_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct rpm_sched_data *q = qdisc_priv(sch);
	struct rpm_params params;
	int err;

	INIT_LIST_HEAD(&q->port.list);
	codel_fifo_init(sch);
	err = rpm_parse(&params, NULL, opt, extack);
	if (err)
		return err;
	q->port.dev = qdisc_dev(sch);
	q->port.params = params;
	err = rpm_port_join(&q->port, extack);
	if (err)
		return err;
	rpm_set_params(sch, &params);
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

	return rpm_dump_params(skb, &q->port.params);
}

static int rpm_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct rpm_sched_data *q = qdisc_priv(sch);
	const struct codel_fifo *fifo = &q->fifo;
	const struct codel_vars *vars = &fifo->vars.codel;
	struct rpm_port *port = &q->port;
	struct rpm_stats shown;

	spin_lock_bh(&port->sw->lock);
	rpm_stats_advance(&port->stats, &port->changed_ns, ktime_get_ns());
	shown = port->stats;
	spin_unlock_bh(&port->sw->lock);
	shown.dropped = fifo->stats.dropped;
	shown.overlimit = fifo->stats.overlimit;
	shown.last_delay_ns = codel_fifo_to_ns(vars->ldelay);
	shown.count = vars->count;
	shown.last_count = vars->lastcount;
	shown.dropping = vars->dropping;
	shown.largest_packet = fifo->stats.codel.maxpacket;
	return gnet_stats_copy_app(d, &shown, sizeof(shown));
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
