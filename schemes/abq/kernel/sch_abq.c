// SPDX-License-Identifier: GPL-2.0-only
/*
 * abq: Active Buffer Queueing. The output queue is the only child, any qdisc.
 * While it is long, pure acknowledgements received on the same device are held
 * in the input queue (sch_abq_input.h). The algorithm: abq_algorithm.h.
 */
#include <qbed/qdisc.h>

#include "abq_algorithm.h"
#include "abq_netlink.h"
#include "sch_abq_input.h"

#define ABQ_CLASS 1

struct abq_sched_data {
	struct abq_params params;
	struct abq_lengths lengths;
	struct abq_vars vars;
	struct abq_port *port;		/* NULL: not initialised */
	struct Qdisc *child;
	bool grafted;			/* the child was grafted: its limit is not changed */
};

static bool abq_counts_bytes(const struct abq_sched_data *q)
{
	return q->params.threshold_bytes != ABQ_NO_BOUND;
}

/* Called under the qdisc's lock when the output queue's length may have changed. */
static void abq_update(struct Qdisc *sch)
{
	struct abq_sched_data *q = qdisc_priv(sch);
	u32 queue = abq_counts_bytes(q) ? q->child->qstats.backlog : q->child->q.qlen;

	switch (abq_on_queue(&q->lengths, &q->vars, &q->port->stats, queue)) {
	case ABQ_HOLD:
		abq_port_hold(q->port);
		break;
	case ABQ_RELEASE:
		abq_port_release(q->port, q->vars.state != ABQ_US);
		break;
	case ABQ_NOTHING:
		break;
	}
}

/* Returns to the initial state. Held ACKs are released unmodified. */
static void abq_restart(struct abq_sched_data *q)
{
	abq_enter(&q->vars, &q->port->stats, ABQ_US);
	q->vars.x = 0;
	abq_port_flush(q->port);
}

static int abq_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct abq_sched_data *q = qdisc_priv(sch);
	u32 bytes = qdisc_pkt_len(skb);
	int result = qdisc_enqueue(skb, q->child, to_free);

	WRITE_ONCE(q->port->idle, false);
	if (likely(result == NET_XMIT_SUCCESS)) {
		sch->qstats.backlog += bytes;
		sch->q.qlen++;
	} else if (net_xmit_drop_count(result)) {
		qdisc_qstats_drop(sch);
	}
	abq_update(sch);
	return result;
}

static struct sk_buff *abq_dequeue(struct Qdisc *sch)
{
	struct abq_sched_data *q = qdisc_priv(sch);
	struct sk_buff *skb = q->child->dequeue(q->child);

	if (skb) {
		qdisc_bstats_update(sch, skb);
		qdisc_qstats_backlog_dec(sch, skb);
		sch->q.qlen--;
	}
	WRITE_ONCE(q->port->idle, !skb);
	/* the published code checks the queue at the end of the packet's transmission */
	if (skb && q->lengths.last == ABQ_LAST_EMPTY && !q->child->q.qlen)
		return skb;
	if (!skb && q->vars.state == ABQ_US)
		abq_port_idle(q->port);
	else
		abq_update(sch);	/* even without a packet: the child may have dropped some */
	return skb;
}

/* Converts Qmax to the threshold's unit, at one frame of maximum size per packet. */
static struct abq_lengths abq_lengths_of(const struct abq_params *params)
{
	u64 limit_bytes = params->buffer_bytes, limit_packets = params->buffer_packets;
	struct abq_lengths lengths = { .x = params->x, .last = params->last };

	if (params->threshold_bytes != ABQ_NO_BOUND) {
		lengths.threshold = params->threshold_bytes;
		lengths.mtu = params->mtu;
		if (limit_packets != ABQ_NO_BOUND)
			limit_bytes = min(limit_bytes, limit_packets * params->mtu);
		lengths.limit = limit_bytes;
	} else {
		lengths.threshold = params->threshold_packets;
		lengths.mtu = 1;
		if (limit_bytes != ABQ_NO_BOUND)
			limit_packets = min(limit_packets, limit_bytes / params->mtu);
		lengths.limit = limit_packets;
	}
	return lengths;
}

/* Creates the default output queue, a drop-tail FIFO with the limit of @params. */
static struct Qdisc *abq_create_fifo(struct Qdisc *sch, const struct abq_params *params,
				     struct netlink_ext_ack *extack)
{
	bool bytes = params->buffer_bytes != ABQ_NO_BOUND;

	return fifo_create_dflt(sch, bytes ? &bfifo_qdisc_ops : &pfifo_qdisc_ops,
				bytes ? params->buffer_bytes : params->buffer_packets, extack);
}

static bool abq_buffer_differs(const struct abq_params *params,
			       const struct abq_params *current_params)
{
	return params->buffer_bytes != current_params->buffer_bytes ||
	       params->buffer_packets != current_params->buffer_packets;
}

static int abq_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct abq_sched_data *q = qdisc_priv(sch);
	struct Qdisc *fifo = NULL, *old = NULL;
	struct abq_params params;
	int err;

	err = abq_parse(&params, opt, extack);
	if (err)
		return err;
	if ((params.threshold_bytes == ABQ_NO_BOUND) == (params.threshold_packets == ABQ_NO_BOUND)) {
		NL_SET_ERR_MSG(extack, "abq needs one threshold, in bytes or in packets");
		return -EINVAL;
	}
	if (!params.mtu)
		params.mtu = psched_mtu(qdisc_dev(sch));
	if (!q->grafted && (q->child == &noop_qdisc || abq_buffer_differs(&params, &q->params))) {
		fifo = abq_create_fifo(sch, &params, extack);
		if (IS_ERR(fifo))
			return PTR_ERR(fifo);
		qdisc_hash_add(fifo, true);
	}
	sch_tree_lock(sch);
	if (fifo) {
		qdisc_purge_queue(q->child);
		old = q->child;
		q->child = fifo;
	}
	q->params = params;
	q->lengths = abq_lengths_of(&params);
	abq_port_set(q->port, &params);
	abq_restart(q);		/* the unit of X may have changed */
	abq_update(sch);
	sch_tree_unlock(sch);
	qdisc_put(old);
	return 0;
}

static int abq_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct abq_sched_data *q = qdisc_priv(sch);
	struct abq_port *port;

	q->child = &noop_qdisc;
	if (sch->parent != TC_H_ROOT) {
		NL_SET_ERR_MSG(extack, "abq must be the root qdisc of a device");
		return -EOPNOTSUPP;
	}
	port = abq_port_create(qdisc_dev(sch));
	if (IS_ERR(port))
		return PTR_ERR(port);
	q->port = port;
	return abq_change(sch, opt, extack);
}

static void abq_reset(struct Qdisc *sch)
{
	struct abq_sched_data *q = qdisc_priv(sch);

	qdisc_reset(q->child);
	if (q->port)
		abq_restart(q);
}

/* Also called after a failed init. */
static void abq_destroy(struct Qdisc *sch)
{
	struct abq_sched_data *q = qdisc_priv(sch);

	if (q->port)
		abq_port_destroy(q->port);
	qdisc_put(q->child);
}

static int abq_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	const struct abq_sched_data *q = qdisc_priv(sch);

	return abq_dump_params(skb, &q->params);
}

static int abq_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	const struct abq_sched_data *q = qdisc_priv(sch);
	struct abq_stats shown;

	sch_tree_lock(sch);
	abq_port_stats(q->port, &shown);
	shown.state = q->vars.state;
	if (abq_counts_bytes(q))
		shown.x_bytes = q->vars.x;
	else
		shown.x_packets = q->vars.x;
	sch_tree_unlock(sch);
	return gnet_stats_copy_app(d, &shown, sizeof(shown));
}

/* The class that holds the child */

static int abq_graft(struct Qdisc *sch, unsigned long class, struct Qdisc *new,
		     struct Qdisc **old, struct netlink_ext_ack *extack)
{
	struct abq_sched_data *q = qdisc_priv(sch);

	*old = qdisc_replace(sch, new ?: &noop_qdisc, &q->child);
	sch_tree_lock(sch);
	q->grafted = true;
	abq_update(sch);
	sch_tree_unlock(sch);
	return 0;
}

static struct Qdisc *abq_leaf(struct Qdisc *sch, unsigned long class)
{
	struct abq_sched_data *q = qdisc_priv(sch);

	return q->child;
}

static unsigned long abq_find(struct Qdisc *sch, u32 classid)
{
	return TC_H_MIN(classid) == ABQ_CLASS ? ABQ_CLASS : 0;
}

/* The child dropped packets, possibly outside of enqueue and dequeue. */
static void abq_qlen_notify(struct Qdisc *sch, unsigned long class)
{
	abq_update(sch);
}

static void abq_walk(struct Qdisc *sch, struct qdisc_walker *walker)
{
	if (walker->stop)
		return;
	if (walker->count >= walker->skip && walker->fn(sch, ABQ_CLASS, walker) < 0) {
		walker->stop = 1;
		return;
	}
	walker->count++;
}

static int abq_dump_class(struct Qdisc *sch, unsigned long class, struct sk_buff *skb,
			  struct tcmsg *tcm)
{
	struct abq_sched_data *q = qdisc_priv(sch);

	tcm->tcm_handle |= TC_H_MIN(class);
	tcm->tcm_info = q->child->handle;
	return 0;
}

static const struct Qdisc_class_ops abq_class_ops = {
	.graft = abq_graft,
	.leaf = abq_leaf,
	.find = abq_find,
	.qlen_notify = abq_qlen_notify,
	.walk = abq_walk,
	.dump = abq_dump_class,
};

static struct Qdisc_ops abq_qdisc_ops __read_mostly = {
	.id = "abq",
	.cl_ops = &abq_class_ops,
	.priv_size = sizeof(struct abq_sched_data),
	.enqueue = abq_enqueue,
	.dequeue = abq_dequeue,
	.peek = qdisc_peek_dequeued,
	.init = abq_init,
	.reset = abq_reset,
	.destroy = abq_destroy,
	.change = abq_change,
	.dump = abq_dump,
	.dump_stats = abq_dump_stats,
	.owner = THIS_MODULE,
};

static int __init abq_module_init(void)
{
	int err;

	err = register_pernet_subsys(&abq_net_operations);
	if (err)
		return err;
	err = register_qdisc(&abq_qdisc_ops);
	if (err)
		unregister_pernet_subsys(&abq_net_operations);
	return err;
}

static void __exit abq_module_exit(void)
{
	unregister_qdisc(&abq_qdisc_ops);
	unregister_pernet_subsys(&abq_net_operations);
}

module_init(abq_module_init);
module_exit(abq_module_exit);

MODULE_DESCRIPTION("Active Buffer Queueing: holds acknowledgements while the output queue is long");
MODULE_LICENSE("GPL");
MODULE_ALIAS("sch_abq");
