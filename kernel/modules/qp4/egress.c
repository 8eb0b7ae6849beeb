// SPDX-License-Identifier: GPL-2.0-only
/* Between a port's queue and its wire: the program's egress. */
#include <linux/etherdevice.h>
#include <linux/slab.h>

#include "qp4.h"

/*
 * A head that nobody else reads, with room in front; the payload stays shared.
 * A packet that keeps its size gets another head where Linux's router gives it
 * one (skb_cow()); one that comes by again and again and grows gives up the room
 * behind its head, or that would double each time. False: no memory.
 */
static bool qp4_own_head(struct sk_buff *skb, u32 room)
{
	u32 headroom = skb_headroom(skb);

	if (unlikely(headroom < room))
		return !pskb_expand_head(skb, ALIGN(room - headroom, NET_SKB_PAD),
					 skb_tail_pointer(skb) - skb_end_pointer(skb), GFP_ATOMIC);
	return likely(!skb_cloned(skb)) || !pskb_expand_head(skb, 0, 0, GFP_ATOMIC);
}

/* The program's headers take the place of the packet's front. False: no memory. */
static bool qp4_replace(struct sk_buff *skb, const struct qp4_node *node,
			const struct qp4_emission *emission)
{
	u32 replaced = min(emission->replaced, skb->len);
	u32 length = emission->headers_bytes;

	if (length != replaced || length > skb_headlen(skb) ||
	    memcmp(skb->data, emission->headers, length)) {
		if (!pskb_may_pull(skb, replaced) ||
		    !qp4_own_head(skb, length > replaced ? length - replaced : 0))
			return false;
		if (length > replaced)
			skb_push(skb, length - replaced);
		else
			skb_pull(skb, replaced - length);
		memcpy(skb->data, emission->headers, length);
	}
	return qp4_truncate(skb, min(emission->truncate_bytes, node->truncate_bytes));
}

/* The packet as it was in the queue, with what the program has made of its headers, to a clone session. */
static void qp4_clone_egress(struct qp4_switch *sw, const struct qp4_node *node,
			     struct sk_buff *skb, u16 session)
{
	struct qp4_engine *engine = node->pipeline->engine;
	struct qp4_replica replica;
	struct qp4_node *copied;
	struct sk_buff *copy;
	u32 truncate_bytes, i;

	for (i = 0; qp4_engine_session(engine, session, i, &replica, &truncate_bytes); i++) {
		copy = qp4_clone_one(sw, skb, node, &replica, QP4_EGRESS_CLONE, truncate_bytes,
				     &copied);
		if (copy)
			qp4_later(sw, copy, copied,
				  (struct qp4_way) { .port = replica.port, .clone = true });
	}
}

/* To ingress. Takes packet and node; NULL, as the frame to be sent. */
static struct sk_buff *qp4_recirculate(struct qp4_switch *sw, struct sk_buff *skb,
				       struct qp4_node *node)
{
	if (qp4_round(sw)) {
		qp4_later(sw, skb, node, (struct qp4_way) { .port = node->ingress_port });
	} else {
		qp4_node_free(node);
		qp4_drop(skb, &sw->counters.too_many_rounds);
	}
	return NULL;
}

/* By the program: who watches the queue, if there was one, takes it for a drop of the queue's. */
static void qp4_drop_behind(struct sk_buff *skb, struct net_device *dev)
{
	const struct qbed_link *link = dev ? qbed_link(dev) : NULL;

	if (link && link->watch)
		link->watch->dropped(link->watch, skb);
	kfree_skb(skb);
}

/* What the program wants with a packet that left the queue of @dev, or by the CPU port (NULL). Takes packet and node. */
static struct sk_buff *qp4_emit(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_node *node,
				const struct qp4_emission *emission, struct net_device *dev)
{
	u64 *trouble = NULL;

	if (unlikely(emission->clone))
		qp4_clone_egress(sw, node, skb, emission->session);
	if (emission->drop) {
		qp4_node_free(node);
		qp4_drop_behind(skb, dev);
		return NULL;
	}
	if (unlikely(!qp4_replace(skb, node, emission)))
		trouble = &sw->counters.no_memory;
	else if (unlikely(emission->recirculate))
		return qp4_recirculate(sw, skb, node);
	qp4_node_free(node);
	if (unlikely(trouble)) {
		qp4_drop(skb, trouble);
		return NULL;
	}
	return skb;
}

/* What was cut off before the queue is there again. False: no memory. */
static bool qp4_join(struct sk_buff *skb, struct qp4_node *node)
{
	u32 bytes = node->behind_bytes;

	if (skb_linearize(skb) || pskb_expand_head(skb, 0, bytes, GFP_ATOMIC))
		return false;
	skb_put_data(skb, node->behind, bytes);
	kfree(node->behind);
	node->behind = NULL;
	return true;
}

static struct sk_buff *qp4_run_egress(struct qp4_switch *sw, struct sk_buff *skb,
				      struct qp4_node *node,
				      const struct qp4_departure *departure,
				      struct net_device *dev)
{
	struct qp4_emission emission;

	if (unlikely(node->behind) && !qp4_join(skb, node)) {
		qp4_node_free(node);
		qp4_drop(skb, &sw->counters.no_memory);
		return NULL;
	}
	/* a program that looks at payload has the packet in one piece; others look at none of it */
	qp4_engine_egress(node->pipeline->engine, node->context, skb->data, skb_headlen(skb),
			  departure, &emission);
	return qp4_emit(sw, skb, node, &emission, dev);
}

/* By the CPU port, which has no queue, to whoever asks. Takes packet and node. */
void qp4_leave_cpu(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_node *node)
{
	u64 now_us = qp4_now_us();
	struct qp4_departure departure = {
		.now_us = now_us,
		.enqueued_us = now_us,
		.port = sw->cpu_port,
	};

	sw->counters.packets_in++;
	skb = qp4_run_egress(sw, skb, node, &departure, NULL);
	if (skb)
		qp4_packet_in(sw, skb);
}

struct sk_buff *qp4_egress(struct qbed_egress *egress, struct sk_buff *skb)
{
	struct qp4_port *port = container_of(egress, struct qp4_port, egress);
	struct qp4_node *node = qp4_node_take(skb);
	struct qp4_departure departure;

	if (unlikely(!node)) {
		port->sw->counters.foreign++;
		kfree_skb_list(skb);
		return NULL;
	}
	departure = (struct qp4_departure) {
		.now_us = qp4_now_us(),
		.enqueued_us = node->enqueued_us,
		.enqueued_depth = node->enqueued_depth,
		.dequeued_depth = qp4_depth(port->dev),
		.port = port->number,
	};
	skb = qp4_run_egress(port->sw, skb, node, &departure, port->dev);
	if (unlikely(!skb))
		return NULL;
	if (unlikely(skb->len < ETH_HLEN)) {
		qp4_drop(skb, &port->sw->counters.runt);
		return NULL;
	}
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, ETH_HLEN);
	skb->protocol = eth_hdr(skb)->h_proto;
	port->sw->counters.sent++;
	return skb;
}

