// SPDX-License-Identifier: GPL-2.0-only
/*
 * rpm: reverse path congestion marking. CoDel or another law decides, and
 * acknowledgements carry its decisions to the senders.
 *
 * This is the output side, the FIFO of codel_fifo.h, as in qcodel. Where the
 * law marks CE, the mark is reverted and counted in a register. The input side
 * is sch_rpm_registers.h, the algorithm rpm_algorithm.h; the laws other than
 * CoDel are in rpm_decides.h.
 */
#include <linux/random.h>
#include <net/inet_ecn.h>

#include <qbed/codel_fifo.h>
#include <qbed/qdisc.h>
#include <qbed/tap_skb_cb.h>

#include "rpm_decides.h"
#include "rpm_netlink.h"
#include "sch_rpm_registers.h"

struct rpm_sched_data {
	struct codel_fifo fifo;
	struct rpm_port port;
	struct rpm_decides_vars decides;
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

/* @skb has just been marked CE; @dsfield is its value before. */
static void rpm_signal(struct rpm_sched_data *q, struct sk_buff *skb, int dsfield)
{
	if (rpm_register_decision(&q->port, skb, INET_ECN_is_ce(dsfield))) {
		rpm_restore_dsfield(skb, dsfield);
		tap_skb_cb(skb)->signalled = true;
	}
}

/* Returns false if the law signals congestion with @skb and it is not ECN-capable. */
static bool rpm_signal_enqueued(struct Qdisc *sch, struct sk_buff *skb)
{
	struct rpm_sched_data *q = qdisc_priv(sch);
	const struct rpm_params *params = &q->port.params;
	int dsfield;

	/* as in P4, a step draws no random number */
	if (!rpm_decides_on_enqueue(params, &q->decides, sch->q.qlen,
				    params->decides == RPM_DECIDES_STEP ? 0 : get_random_u32()))
		return true;
	dsfield = skb_get_dsfield(skb);
	if (!INET_ECN_set_ce(skb))
		return false;
	rpm_signal(q, skb, dsfield);
	return true;
}

static int rpm_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct rpm_sched_data *q = qdisc_priv(sch);

	if (rpm_decides_at_enqueue(&q->port.params) && codel_fifo_fits(sch, &q->fifo, skb) &&
	    !rpm_signal_enqueued(sch, skb)) {
		q->fifo.stats.dropped++;
		return qdisc_drop(skb, sch, to_free);
	}
	return codel_fifo_enqueue(skb, sch, to_free);
}

static struct sk_buff *rpm_dequeue_codel(struct Qdisc *sch)
{
	struct rpm_sched_data *q = qdisc_priv(sch);
	struct sk_buff *skb;
	bool marked;

	skb = codel_fifo_dequeue(sch, &marked);
	if (unlikely(marked))
		rpm_signal(q, skb, q->fifo.vars.head_dsfield);
	return skb;
}

/* Returns true if the law signals congestion with @skb, which is dequeued. */
static bool rpm_decides_on_dequeue(struct rpm_sched_data *q, const struct sk_buff *skb)
{
	const struct codel_params *times = &q->fifo.params.codel;
	struct codel_vars *vars = &q->fifo.vars.codel;
	u64 now = ktime_get_ns() >> CODEL_SHIFT;

	vars->ldelay = (codel_time_t)now - codel_get_enqueue_time(skb);
	return q->port.params.decides == RPM_DECIDES_CODEL_TOFINO &&
	       rpm_tofino_on_dequeue(&q->decides.tofino, times->target, times->interval,
				     vars->ldelay, now);
}

static struct sk_buff *rpm_dequeue_fifo(struct Qdisc *sch)
{
	struct rpm_sched_data *q = qdisc_priv(sch);
	struct codel_fifo *fifo = &q->fifo;
	struct sk_buff *skb;

	while ((skb = codel_fifo_head(&fifo->vars.codel, sch))) {
		unsigned int bytes = qdisc_pkt_len(skb);

		fifo->stats.codel.maxpacket = max(fifo->stats.codel.maxpacket, bytes);
		if (likely(!rpm_decides_on_dequeue(q, skb)))
			break;
		if (INET_ECN_set_ce(skb)) {
			rpm_signal(q, skb, fifo->vars.head_dsfield);
			break;
		}
		codel_fifo_drop(skb, sch);
		fifo->stats.dropped++;
		qdisc_tree_reduce_backlog(sch, 1, bytes);
	}
	if (skb)
		qdisc_bstats_update(sch, skb);
	return skb;
}

static struct sk_buff *rpm_dequeue(struct Qdisc *sch)
{
	const struct rpm_sched_data *q = qdisc_priv(sch);

	if (likely(q->port.params.decides == RPM_DECIDES_CODEL))
		return rpm_dequeue_codel(sch);
	return rpm_dequeue_fifo(sch);
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
	q->decides = (struct rpm_decides_vars) {};
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
	if (port->params.decides == RPM_DECIDES_CODEL_TOFINO) {
		shown.count = q->decides.tofino.count;
		shown.dropping = q->decides.tofino.above;
	}
	shown.largest_packet = fifo->stats.codel.maxpacket;
	return gnet_stats_copy_app(d, &shown, sizeof(shown));
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
