// SPDX-License-Identifier: GPL-2.0-only
/*
 * qcn: a FIFO that is a QCN congestion point. The algorithm: qcn_algorithm.h.
 * Feedback packets to sources: sch_qcn_feedback.h.
 */
#include <linux/random.h>

#include <qbed/qdisc.h>
#include <qbed/signal_packet.h>

#include "qcn_algorithm.h"
#include "qcn_netlink.h"
#include "sch_qcn_feedback.h"

struct qcn_sched_data {
	struct qcn_params params;
	struct qcn_vars vars;
	struct qcn_stats stats;
	struct qcn_feedback_queue feedback;
};

/*
 * Writes the congestion, the worst on the path so far, into the header, and may
 * send feedback.
 */
static void qcn_write(struct qcn_sched_data *q, struct sk_buff *skb, struct qsignal_packet *packet,
		      u16 quantized)
{
	struct qsignal_header header = packet->header;
	struct sk_buff *feedback = NULL;

	header.feedback = cpu_to_be16(quantized);
	header.feedback_bits = q->params.bits;
	if (qcn_chance(qcn_reflection(&q->params, quantized), get_random_u32())) {
		feedback = qcn_feedback_build(skb, packet, quantized, q->params.bits);
		if (feedback)
			header.flags |= QSIGNAL_REFLECTED;
		else
			q->stats.no_memory++;
	}
	if (!qsignal_packet_write(skb, packet, &header)) {
		q->stats.no_memory++;
		kfree_skb(feedback);
		return;
	}
	q->stats.written++;
	if (feedback) {
		q->stats.reflected++;
		qcn_feedback_enqueue(&q->feedback, feedback);
	}
}

static void qcn_sample(struct qcn_sched_data *q, struct sk_buff *skb, struct qsignal_packet *packet,
		       u64 congestion)
{
	const struct qsignal_header *header = &packet->header;
	u16 quantized = qcn_quantized(&q->params, congestion);

	q->stats.sampled++;
	q->stats.congested += congestion > 0;
	q->stats.largest = max(q->stats.largest, congestion);
	if (qcn_is_worse(quantized, q->params.bits, be16_to_cpu(header->feedback),
		      header->feedback_bits))
		qcn_write(q, skb, packet, quantized);
}

/* Called before @skb, which fits into the buffer, is enqueued. */
static void qcn_arrival(struct Qdisc *sch, struct sk_buff *skb)
{
	struct qcn_sched_data *q = qdisc_priv(sch);
	struct qsignal_packet packet;
	u64 congestion;
	bool sampled;

	if (!qsignal_packet_find(skb, &packet, &q->stats.unknown_version, &q->stats.too_short,
				 &q->stats.malformed) ||
	    packet.header.version != QSIGNAL_VERSION || packet.header.type != QSIGNAL_DATA)
		return;
	congestion = qcn_congestion(&q->params, &q->vars, sch->q.qlen);
	sampled = qcn_chance(qcn_sampling(&q->params, congestion), get_random_u32());
	qcn_arrived(&q->params, &q->vars, sch->q.qlen, sampled);
	if (sampled)
		qcn_sample(q, skb, &packet, congestion);
}

static int qcn_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct qcn_sched_data *q = qdisc_priv(sch);

	if (!qcn_fits(&q->params, sch->q.qlen, sch->qstats.backlog, qdisc_pkt_len(skb))) {
		q->stats.dropped++;
		return qdisc_drop(skb, sch, to_free);
	}
	qcn_arrival(sch, skb);
	return qdisc_enqueue_tail(skb, sch);
}

static int qcn_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct qcn_sched_data *q = qdisc_priv(sch);
	struct qcn_params params;
	int err;

	err = qcn_parse(&params, opt, extack);
	if (err)
		return err;
	if (params.min_sampling > params.max_sampling) {
		NL_SET_ERR_MSG(extack, "qcn: min_sampling is more than max_sampling");
		return -EINVAL;
	}
	sch_tree_lock(sch);
	q->params = params;
	q->stats.dropped += qdisc_fifo_trim(sch, params.buffer_bytes, params.buffer_packets);
	sch_tree_unlock(sch);
	return 0;
}

static int qcn_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct qcn_sched_data *q = qdisc_priv(sch);

	qcn_feedback_init(&q->feedback, dev_net(qdisc_dev(sch)));
	return qcn_change(sch, opt, extack);
}

static void qcn_reset(struct Qdisc *sch)
{
	struct qcn_sched_data *q = qdisc_priv(sch);

	qdisc_reset_queue(sch);
	q->vars = (struct qcn_vars) {};
}

/* Also called after a failed init. */
static void qcn_destroy(struct Qdisc *sch)
{
	struct qcn_sched_data *q = qdisc_priv(sch);

	qcn_feedback_destroy(&q->feedback);
}

static int qcn_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	const struct qcn_sched_data *q = qdisc_priv(sch);

	return qcn_dump_params(skb, &q->params);
}

static int qcn_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct qcn_sched_data *q = qdisc_priv(sch);
	struct qcn_stats shown = q->stats;

	shown.unroutable = READ_ONCE(q->feedback.unroutable);
	return gnet_stats_copy_app(d, &shown, sizeof(shown));
}

static struct Qdisc_ops qcn_qdisc_ops __read_mostly = {
	.id = "qcn",
	.priv_size = sizeof(struct qcn_sched_data),
	.enqueue = qcn_enqueue,
	.dequeue = qdisc_dequeue_head,
	.peek = qdisc_peek_head,
	.init = qcn_init,
	.reset = qcn_reset,
	.destroy = qcn_destroy,
	.change = qcn_change,
	.dump = qcn_dump,
	.dump_stats = qcn_dump_stats,
	.owner = THIS_MODULE,
};

module_qdisc(qcn_qdisc_ops);

MODULE_DESCRIPTION("FIFO that is a congestion point of QCN");
MODULE_LICENSE("GPL");
MODULE_ALIAS("sch_qcn");
