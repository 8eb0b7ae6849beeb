// SPDX-License-Identifier: GPL-2.0-only
/* From a port through the program's ingress. */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <net/gso.h>

#include "qp4.h"

/*
 * As much of a packet as the program may look at. Its payload stays where it is
 * (skb frags), as in Linux's router, so that what receivers reckon in memory is
 * the same behind both.
 */
static struct qp4_front qp4_front(const struct qp4_pipeline *pipeline, const struct sk_buff *skb)
{
	static u8 copied[QP4_MOST_FRONT];
	u32 length = min(pipeline->reach, skb->len);

	if (likely(skb_headlen(skb) >= length))
		return (struct qp4_front) { skb->data, skb_headlen(skb) };
	skb_copy_bits(skb, 0, copied, length);
	return (struct qp4_front) { copied, length };
}

/* A copy to each port of a group: @node's, as @instance. Takes neither packet nor node. */
static void qp4_multicast(struct qp4_switch *sw, struct sk_buff *skb, const struct qp4_node *node,
			  u16 group)
{
	struct qp4_replica replica;
	struct qp4_node *copied;
	struct sk_buff *copy;
	u32 i;

	for (i = 0; qp4_engine_group(node->pipeline->engine, group, i, &replica); i++) {
		copy = skb_clone(skb, GFP_ATOMIC);
		copied = copy ? qp4_node_copy(node, QP4_REPLICATED, replica.instance) : NULL;
		if (!copied) {
			qp4_drop(copy, &sw->counters.no_memory);
			continue;
		}
		qp4_enqueue(sw, copy, copied, replica.port, 0);
	}
	if (!i)
		sw->counters.no_group++;
}

/* The packet as it came, to the ports of a clone session, for their egress. */
static void qp4_clone_ingress(struct qp4_switch *sw, const struct qp4_node *from,
			      struct sk_buff *skb, u16 session)
{
	struct qp4_arrival arrival = {
		.now_us = qp4_now_us(),
		.length = skb->len,
		.port = from->ingress_port,
		.instance = QP4_INGRESS_CLONE,
	};
	struct qp4_engine *engine = from->pipeline->engine;
	struct qp4_node *node = qp4_node_new(from->pipeline, from->ingress_port), *copied;
	struct qp4_front front = qp4_front(from->pipeline, skb);
	struct qp4_replica replica;
	struct sk_buff *copy;
	u32 truncate_bytes, i;

	if (!node) {
		sw->counters.no_memory++;
		return;
	}
	qp4_engine_parse_clone(engine, node->context, front.bytes, front.length, &arrival,
			       from->context);
	for (i = 0; qp4_engine_session(engine, session, i, &replica, &truncate_bytes); i++) {
		copy = qp4_clone_one(sw, skb, node, &replica, QP4_INGRESS_CLONE, truncate_bytes,
				     &copied);
		if (copy)
			qp4_enqueue(sw, copy, copied, replica.port, 0);
	}
	qp4_node_free(node);
}

/* @again: the node with which the packet asked to come again, or NULL. Takes it. */
static void qp4_decide(struct qp4_switch *sw, struct qp4_node *node, struct sk_buff *skb,
		       u8 instance, struct qp4_node *again, struct qp4_decision *decision)
{
	struct qp4_arrival arrival = {
		.now_us = qp4_now_us(),
		.length = skb->len,
		.port = node->ingress_port,
		.instance = instance,
	};
	/* what another program kept means nothing to this one */
	bool known = again && again->pipeline == node->pipeline;
	struct qp4_front front = qp4_front(node->pipeline, skb);

	qp4_engine_ingress(node->pipeline->engine, node->context, front.bytes, front.length,
			   &arrival, known ? again->context : NULL, decision);
	if (again)
		qp4_node_free(again);
	if (unlikely(decision->clone))
		qp4_clone_ingress(sw, node, skb, decision->session);
}

/* For a packet in front of the program that runs; NULL: there is none, or no memory. */
static struct qp4_node *qp4_begin(struct qp4_switch *sw, struct sk_buff *skb, u16 port)
{
	struct qp4_pipeline *pipeline = sw->pipeline;

	if (unlikely(!pipeline || (pipeline->reach == U32_MAX && skb_linearize(skb))))
		return NULL;
	return qp4_node_new(pipeline, port);
}

/* Takes the packet (from its Ethernet header on) and @again. */
void qp4_ingress(struct qp4_switch *sw, struct sk_buff *skb, u16 port, u8 instance,
		 struct qp4_node *again)
{
	struct qp4_decision decision;
	struct qp4_node *node;
	u64 *trouble = NULL;

	for (;;) {
		node = qp4_begin(sw, skb, port);
		if (unlikely(!node)) {
			trouble = sw->pipeline ? &sw->counters.no_memory : &sw->counters.no_program;
			break;
		}
		qp4_decide(sw, node, skb, instance, again, &decision);
		again = NULL;
		if (likely(!decision.resubmit))
			break;
		again = node;
		instance = QP4_RESUBMITTED;
		if (!qp4_round(sw)) {
			trouble = &sw->counters.too_many_rounds;
			break;
		}
	}
	if (unlikely(trouble)) {
		if (again)
			qp4_node_free(again);
		qp4_drop(skb, trouble);
		return;
	}
	if (unlikely(!qp4_truncate_queued(skb, node, decision.truncate_bytes))) {
		qp4_node_free(node);
		qp4_drop(skb, &sw->counters.no_memory);
		return;
	}
	if (likely(decision.forward == QP4_UNICAST)) {
		qp4_enqueue(sw, skb, node, decision.to, decision.priority);
		return;
	}
	if (decision.forward == QP4_MULTICAST)
		qp4_multicast(sw, skb, node, decision.to);
	qp4_node_free(node);
	kfree_skb(skb);
}

/*
 * The packet as a wire has it: with its tag, and with its checksum, which a
 * program may look at or make anew. NULL: no memory.
 */
static struct sk_buff *qp4_from_wire(struct sk_buff *skb)
{
	skb_push(skb, skb->data - skb_mac_header(skb));
	if (skb_vlan_tag_present(skb)) {
		skb = __vlan_hwaccel_push_inside(skb);
		if (!skb)
			return NULL;
	}
	if (unlikely(skb->ip_summed == CHECKSUM_PARTIAL && skb_checksum_help(skb))) {
		kfree_skb(skb);
		return NULL;
	}
	skb->ip_summed = CHECKSUM_NONE;
	return skb;
}

static void qp4_receive_one(struct qp4_port *port, struct sk_buff *skb)
{
	port->sw->counters.received++;
	skb = qp4_from_wire(skb);
	if (likely(skb))
		qp4_ingress(port->sw, skb, port->number, QP4_NORMAL, NULL);
	else
		port->sw->counters.no_memory++;
}

/* What a device received as one for many packets, which no wire has carried */
static void qp4_receive_segments(struct qp4_port *port, struct sk_buff *skb)
{
	struct sk_buff *segment, *next, *segments;

	skb_push(skb, skb->data - skb_mac_header(skb));
	segments = skb_gso_segment(skb, 0);
	if (IS_ERR_OR_NULL(segments)) {
		qp4_drop(skb, &port->sw->counters.no_memory);
		return;
	}
	consume_skb(skb);
	skb_list_walk_safe(segments, segment, next) {
		skb_mark_not_on_list(segment);
		skb_reset_mac_header(segment);
		qp4_receive_one(port, segment);
	}
}

rx_handler_result_t qp4_receive(struct sk_buff **pskb)
{
	struct sk_buff *skb = *pskb;
	struct qp4_port *port = rcu_dereference(skb->dev->rx_handler_data);

	if (unlikely(skb->pkt_type == PACKET_LOOPBACK))
		return RX_HANDLER_PASS;
	skb = skb_share_check(skb, GFP_ATOMIC);
	if (unlikely(!skb))
		port->sw->counters.no_memory++;
	else if (unlikely(skb_is_gso(skb)))
		qp4_receive_segments(port, skb);
	else
		qp4_receive_one(port, skb);
	return RX_HANDLER_CONSUMED;
}

