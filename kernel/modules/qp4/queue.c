// SPDX-License-Identifier: GPL-2.0-only
/* From the program into a port's queue, in the end; and what bounds the way there. */
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
 * Rounds of a switch within one microsecond: resubmitted, recirculated and
 * cloned packets. More come of a program that never ends, for which the lab
 * would wait for ever.
 */
#define QP4_MOST_ROUNDS 4096u

static struct qp4_way *qp4_way(struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct qp4_way) > sizeof(skb->cb));
	return (struct qp4_way *)skb->cb;
}

u64 qp4_now_us(void)
{
	return div_u64(ktime_get_ns(), NSEC_PER_USEC);
}

void qp4_drop(struct sk_buff *skb, u64 *counter)
{
	(*counter)++;
	kfree_skb(skb);
}

bool qp4_round(struct qp4_switch *sw)
{
	u64 now_us = qp4_now_us();

	if (now_us != sw->rounds_us) {
		sw->rounds_us = now_us;
		sw->rounds = 0;
	}
	if (sw->rounds >= QP4_MOST_ROUNDS)
		return false;
	sw->rounds++;
	return true;
}

/* False: no memory */
bool qp4_truncate(struct sk_buff *skb, u32 bytes)
{
	return likely(bytes >= skb->len) || !pskb_trim(skb, bytes);
}

/*
 * In a queue the packet is no longer than it may be on the wire; what may have
 * to come behind shorter headers goes with its node. False: no memory
 */
bool qp4_truncate_queued(struct sk_buff *skb, struct qp4_node *node, u32 bytes)
{
	u32 behind;

	bytes = max_t(u32, bytes, ETH_HLEN);	/* what is shorter leaves no port */
	if (likely(bytes >= skb->len))
		return true;
	behind = min(skb->len - bytes, qp4_context_parsed(node->context));
	if (behind) {
		node->behind = kmalloc(behind, GFP_ATOMIC);
		if (!node->behind)
			return false;
		node->behind_bytes = behind;
		skb_copy_bits(skb, bytes, node->behind, behind);
	}
	return qp4_truncate(skb, bytes);
}

/* Packets that wait; segments that the core put back are part of the frame being sent. */
u32 qp4_depth(const struct net_device *dev)
{
	const struct Qdisc *q = rcu_dereference_bh(netdev_get_tx_queue(dev, 0)->qdisc);

	return qdisc_qlen_sum(q) - skb_queue_len(&q->gso_skb);
}

/* Takes packet and node. */
void qp4_enqueue(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_node *node,
			u16 number, u8 priority)
{
	struct qp4_port *port = number < QP4_MOST_PORTS ? sw->ports[number] : NULL;
	int err;

	if (unlikely(number == sw->cpu_port)) {
		qp4_leave_cpu(sw, skb, node);
		return;
	}
	if (!port || !netif_running(port->dev)) {
		qp4_node_free(node);
		qp4_drop(skb, &sw->counters.no_port);
		return;
	}
	skb->dev = port->dev;
	skb->priority = priority;
	skb_clear_tstamp(skb);
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, min_t(u32, ETH_HLEN, skb->len));
	skb->protocol = skb->len >= ETH_HLEN ? eth_hdr(skb)->h_proto : 0;
	node->enqueued_us = qp4_now_us();
	node->enqueued_depth = qp4_depth(port->dev);
	skb_dst_drop(skb);
	skb_dst_set(skb, &node->dst);
	err = dev_queue_xmit(skb);
	if (unlikely(net_xmit_eval(err)))
		sw->counters.refused++;
}

/* The @index'th copy of a packet for a clone session, NULL if there is none, or no memory for it. */
struct sk_buff *qp4_clone_one(struct qp4_switch *sw, struct sk_buff *skb,
			      const struct qp4_node *node, const struct qp4_replica *replica,
			      u8 instance, u32 truncate_bytes, struct qp4_node **copied)
{
	struct sk_buff *copy;

	if (!qp4_round(sw)) {
		sw->counters.too_many_rounds++;
		return NULL;
	}
	copy = skb_clone(skb, GFP_ATOMIC);
	*copied = copy ? qp4_node_copy(node, instance, replica->instance) : NULL;
	if (!*copied) {
		qp4_drop(copy, &sw->counters.no_memory);
		return NULL;
	}
	if (!truncate_bytes)
		return copy;
	(*copied)->truncate_bytes = truncate_bytes;
	if (!qp4_truncate_queued(copy, *copied, truncate_bytes)) {
		qp4_node_free(*copied);
		qp4_drop(copy, &sw->counters.no_memory);
		return NULL;
	}
	return copy;
}

/* Takes packet and node. */
void qp4_later(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_node *node,
	       struct qp4_way way)
{
	skb_dst_drop(skb);
	skb_orphan(skb);
	skb_dst_set(skb, &node->dst);
	*qp4_way(skb) = way;
	__skb_queue_tail(&sw->again, skb);
	tasklet_hi_schedule(&sw->tasklet);
}


void qp4_again(struct tasklet_struct *tasklet)
{
	struct qp4_switch *sw = container_of(tasklet, struct qp4_switch, tasklet);
	struct qp4_node *node;
	struct sk_buff *skb;

	rcu_read_lock();
	while ((skb = __skb_dequeue(&sw->again))) {
		struct qp4_way way = *qp4_way(skb);

		node = qp4_node_take(skb);
		if (way.clone)
			qp4_enqueue(sw, skb, node, way.port, 0);
		else
			qp4_ingress(sw, skb, way.port, QP4_RECIRCULATED, node);
	}
	rcu_read_unlock();
}

/* When nothing comes any more. */
void qp4_purge(struct qp4_switch *sw)
{
	__skb_queue_purge(&sw->again);
}

