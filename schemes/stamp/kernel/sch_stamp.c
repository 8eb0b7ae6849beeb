// SPDX-License-Identifier: GPL-2.0-only
/*
 * stamp: a FIFO that adds its occupancy to the signal of packets. The
 * algorithm: stamp_algorithm.h.
 */
#include <linux/ethtool.h>
#include <linux/timekeeping.h>

#include <qbed/qdisc.h>
#include <qbed/signal_packet.h>

#include "stamp_algorithm.h"
#include "stamp_netlink.h"

struct stamp_sched_data {
	struct stamp_params params;
	struct stamp_vars vars;
	struct stamp_stats stats;
};

struct stamp_cb {
	u64 enqueue_ns;
};

static struct stamp_cb *stamp_cb(const struct sk_buff *skb)
{
	qdisc_cb_private_validate(skb, sizeof(struct stamp_cb));
	return (struct stamp_cb *)qdisc_skb_cb(skb)->data;
}

static void stamp_fold(struct stamp_sched_data *q, struct sk_buff *skb,
		       struct qsignal_packet *packet, u64 part)
{
	struct qsignal_header header = packet->header;

	qsignal_fold(&header, part);
	if (!qsignal_packet_write(skb, packet, &header)) {
		q->stats.no_memory++;
		return;
	}
	q->stats.stamped++;
	q->stats.largest = max(q->stats.largest, part);
}

/* Called before @skb is enqueued or after it is dequeued. */
static void stamp_packet(struct Qdisc *sch, struct sk_buff *skb, u64 sojourn_ns)
{
	struct stamp_sched_data *q = qdisc_priv(sch);
	const struct stamp_queue queue = {
		.packets = sch->q.qlen,
		.bytes = sch->qstats.backlog,
		.sojourn_ns = sojourn_ns,
	};
	struct qsignal_packet packet;
	u64 part;

	if (!qsignal_packet_find(skb, &packet, &q->stats.unknown_version, &q->stats.too_short,
				 &q->stats.malformed))
		return;
	switch (stamp_part(&q->params, &q->vars, &queue, &packet.header, qdisc_pkt_len(skb),
			   &part)) {
	case STAMP_FOLD:
		stamp_fold(q, skb, &packet, part);
		break;
	case STAMP_LEAVE:
		q->stats.left_out++;
		break;
	case STAMP_NO_RATE:
		q->stats.no_rate++;
		break;
	}
}

static int stamp_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct stamp_sched_data *q = qdisc_priv(sch);
	const struct stamp_queue queue = {
		.packets = sch->q.qlen,
		.bytes = sch->qstats.backlog,
	};

	if (!stamp_fits(&q->params, &queue, qdisc_pkt_len(skb))) {
		q->stats.dropped++;
		return qdisc_drop(skb, sch, to_free);
	}
	stamp_cb(skb)->enqueue_ns = ktime_get_ns();
	if (q->params.at_enqueue)
		stamp_packet(sch, skb, 0);
	return qdisc_enqueue_tail(skb, sch);
}

static struct sk_buff *stamp_dequeue(struct Qdisc *sch)
{
	struct stamp_sched_data *q = qdisc_priv(sch);
	struct sk_buff *skb = qdisc_dequeue_head(sch);

	if (skb && !q->params.at_enqueue)
		stamp_packet(sch, skb, ktime_get_ns() - stamp_cb(skb)->enqueue_ns);
	return skb;
}

/* Link rate reported by the device, in whole Mbit/s; 0: unknown. Called under RTNL. */
static u64 stamp_device_rate(struct net_device *dev)
{
	struct ethtool_link_ksettings settings;

	if (__ethtool_get_link_ksettings(dev, &settings) ||
	    settings.base.speed == (u32)SPEED_UNKNOWN)
		return 0;
	return settings.base.speed * 1000000ull;
}

/* @current_params: NULL at creation */
static int stamp_set(struct Qdisc *sch, const struct stamp_params *current_params, struct nlattr *opt,
		     struct netlink_ext_ack *extack)
{
	struct stamp_sched_data *q = qdisc_priv(sch);
	struct net_device *dev = qdisc_dev(sch);
	struct stamp_params params;
	u64 rate_bps;
	int err;

	err = stamp_parse(&params, current_params, opt, extack);
	if (err)
		return err;
	rate_bps = params.rate_bps ?: stamp_device_rate(dev);
	sch_tree_lock(sch);
	q->params = params;
	stamp_vars_set(&q->vars, &params, rate_bps, psched_mtu(dev));
	q->stats.dropped += qdisc_fifo_trim(sch, params.buffer_bytes, params.buffer_packets);
	sch_tree_unlock(sch);
	return 0;
}

static int stamp_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	return stamp_set(sch, NULL, opt, extack);
}

static int stamp_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct stamp_sched_data *q = qdisc_priv(sch);

	return stamp_set(sch, &q->params, opt, extack);
}

static int stamp_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	const struct stamp_sched_data *q = qdisc_priv(sch);

	return stamp_dump_params(skb, &q->params);
}

static int stamp_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct stamp_sched_data *q = qdisc_priv(sch);

	return gnet_stats_copy_app(d, &q->stats, sizeof(q->stats));
}

static struct Qdisc_ops stamp_qdisc_ops __read_mostly = {
	.id = "stamp",
	.priv_size = sizeof(struct stamp_sched_data),
	.enqueue = stamp_enqueue,
	.dequeue = stamp_dequeue,
	.peek = qdisc_peek_head,
	.init = stamp_init,
	.reset = qdisc_reset_queue,
	.change = stamp_change,
	.dump = stamp_dump,
	.dump_stats = stamp_dump_stats,
	.owner = THIS_MODULE,
};

module_qdisc(stamp_qdisc_ops);

MODULE_DESCRIPTION("FIFO that stamps its occupancy into packets");
MODULE_LICENSE("GPL");
MODULE_ALIAS("sch_stamp");
