// SPDX-License-Identifier: GPL-2.0-only
/* From the program's ingress into a port's queue, and limits on recirculation. */
#include <linux/etherdevice.h>
#include <linux/ktime.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>

#include "qp4.h"

#if IS_ENABLED(CONFIG_SMP)
#error "qp4 relies on a single CPU: its engine is entered with bottom halves off"
#endif

/*
 * Maximum number of resubmitted, recirculated and cloned packets of a switch
 * within one microsecond. More indicate an endless loop in the program, which
 * would stop virtual time.
 */
#define QP4_MAX_ROUNDS 4096u

static struct qp4_deferred_cb *qp4_deferred_cb(struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct qp4_deferred_cb) > sizeof(skb->cb));
	return (struct qp4_deferred_cb *)skb->cb;
}

/* Reads the clock, for what the switch does at this time. */
u64 qp4_now_us(struct qp4_switch *sw)
{
	sw->now_us = div_u64(ktime_get_ns(), NSEC_PER_USEC);
	return sw->now_us;
}

void qp4_drop(struct sk_buff *skb, u64 *counter)
{
	(*counter)++;
	kfree_skb(skb);
}

bool qp4_round(struct qp4_switch *sw)
{
	u64 now_us = qp4_now_us(sw);

	if (now_us != sw->rounds_us) {
		sw->rounds_us = now_us;
		sw->rounds = 0;
	}
	if (sw->rounds >= QP4_MAX_ROUNDS)
		return false;
	sw->rounds++;
	return true;
}

/* Returns false if there is no memory. */
bool qp4_truncate(struct sk_buff *skb, u32 bytes)
{
	return likely(bytes >= skb->len) || !pskb_trim(skb, bytes);
}

/*
 * Truncates a packet to its maximum length on the wire before it is queued.
 * Truncated bytes that egress may need behind shorter headers are kept in the
 * metadata. Returns false if there is no memory.
 */
bool qp4_truncate_queued(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_metadata *meta,
			 u32 bytes)
{
	u32 tail;

	bytes = max_t(u32, bytes, ETH_HLEN);	/* shorter frames are not transmitted */
	if (likely(bytes >= skb->len))
		return true;
	if (!qp4_complete(sw, skb, meta, NULL))
		return false;
	tail = min(skb->len - bytes, qp4_context_parsed(meta->context));
	if (tail) {
		meta->tail = kmalloc(tail, GFP_ATOMIC);
		if (!meta->tail)
			return false;
		meta->tail_bytes = tail;
		skb_copy_bits(skb, bytes, meta->tail, tail);
	}
	return qp4_truncate(skb, bytes);
}

/*
 * Queue length in packets, without requeued segments: these are part of the
 * frame in transmission.
 */
u32 qp4_depth(const struct net_device *dev)
{
	const struct Qdisc *q = rcu_dereference_bh(netdev_get_tx_queue(dev, 0)->qdisc);

	return qdisc_qlen_sum(q) - skb_queue_len(&q->gso_skb);
}

/* Consumes the packet and its metadata. Frees the metadata here if the queue refuses the packet. */
void qp4_enqueue(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_metadata *meta,
			u16 number, u8 priority)
{
	struct qp4_port *port = number < QP4_MOST_PORTS ? sw->ports[number] : NULL;
	bool held = true;
	int err;

	if (unlikely(number == sw->cpu_port)) {
		qp4_leave_cpu(sw, skb, meta);
		return;
	}
	if (!port || !netif_running(port->dev)) {
		qp4_metadata_free(meta);
		qp4_drop(skb, &sw->counters.no_port);
		return;
	}
	skb->dev = port->dev;
	skb->priority = priority;
	skb_clear_tstamp(skb);
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, min_t(u32, ETH_HLEN, skb->len));
	skb->protocol = skb->len >= ETH_HLEN ? eth_hdr(skb)->h_proto : 0;
	meta->enqueued_us = sw->now_us;
	meta->enqueued_depth = qp4_depth(port->dev);
	skb_dst_drop(skb);
	skb_dst_set(skb, &meta->dst);
	dst_hold(&meta->dst);
	meta->held = &held;
	err = dev_queue_xmit(skb);
	if (unlikely(net_xmit_eval(err)))
		sw->counters.refused++;
	if (!held)	/* its egress has it */
		return;
	meta->held = NULL;
	if (rcuref_read(&meta->dst.__rcuref) == 1)
		qp4_metadata_free(meta);
	else
		dst_release(&meta->dst);
}

/*
 * Clones a packet for a clone session and copies its metadata. Returns NULL if
 * the limit is exceeded or there is no memory.
 */
struct sk_buff *qp4_clone_one(struct qp4_switch *sw, struct sk_buff *skb,
			      const struct qp4_metadata *meta, const struct qp4_replica *replica,
			      u8 instance, u32 truncate_bytes, struct qp4_metadata **copied)
{
	struct sk_buff *copy;

	if (!qp4_round(sw)) {
		sw->counters.too_many_rounds++;
		return NULL;
	}
	copy = skb_clone(skb, GFP_ATOMIC);
	*copied = copy ? qp4_metadata_copy(meta, instance, replica->instance) : NULL;
	if (!*copied) {
		qp4_drop(copy, &sw->counters.no_memory);
		return NULL;
	}
	if (!truncate_bytes)
		return copy;
	(*copied)->truncate_bytes = truncate_bytes;
	if (!qp4_truncate_queued(sw, copy, *copied, truncate_bytes)) {
		qp4_metadata_free(*copied);
		qp4_drop(copy, &sw->counters.no_memory);
		return NULL;
	}
	return copy;
}

/* Queues the packet and its metadata for the tasklet. Consumes both. */
void qp4_defer(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_metadata *meta,
	       struct qp4_deferred_cb cb)
{
	skb_dst_drop(skb);
	skb_orphan(skb);
	skb_dst_set(skb, &meta->dst);
	*qp4_deferred_cb(skb) = cb;
	__skb_queue_tail(&sw->deferred, skb);
	tasklet_hi_schedule(&sw->tasklet);
}

void qp4_run_deferred(struct tasklet_struct *tasklet)
{
	struct qp4_switch *sw = container_of(tasklet, struct qp4_switch, tasklet);
	struct qp4_metadata *meta;
	struct sk_buff *skb;

	rcu_read_lock();
	while ((skb = __skb_dequeue(&sw->deferred))) {
		struct qp4_deferred_cb cb = *qp4_deferred_cb(skb);

		meta = qp4_metadata_take(skb);
		if (cb.clone)
			qp4_enqueue(sw, skb, meta, cb.port, 0);
		else
			qp4_ingress(sw, skb, cb.port, QP4_RECIRCULATED, meta);
	}
	rcu_read_unlock();
}

/* Called when no more packets can arrive. */
void qp4_purge(struct qp4_switch *sw)
{
	__skb_queue_purge(&sw->deferred);
}

