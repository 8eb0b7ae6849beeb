// SPDX-License-Identifier: GPL-2.0-only
/* From a port through the program's ingress. */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <net/gso.h>

#include "qp4.h"

/*
 * Sends a copy to each port of a multicast group. Does not consume the packet
 * or its metadata.
 */
static void qp4_multicast(struct qp4_switch *sw, struct sk_buff *skb, const struct qp4_metadata *meta,
			  u16 group)
{
	struct qp4_replica replica;
	struct qp4_metadata *copied;
	struct sk_buff *copy;
	u32 i;

	for (i = 0; qp4_engine_group(meta->pipeline->engine, group, i, &replica); i++) {
		copy = skb_clone(skb, GFP_ATOMIC);
		copied = copy ? qp4_metadata_copy(meta, QP4_REPLICATED, replica.instance) : NULL;
		if (!copied) {
			qp4_drop(copy, &sw->counters.no_memory);
			continue;
		}
		qp4_enqueue(sw, copy, copied, replica.port, 0);
	}
	if (!i)
		sw->counters.no_group++;
}

/* Clones the received packet to the ports of a clone session, for their egress. */
static void qp4_clone_ingress(struct qp4_switch *sw, const struct qp4_metadata *from,
			      struct sk_buff *skb, u16 session)
{
	struct qp4_arrival arrival = {
		.now_us = qp4_now_us(sw),
		.length = skb->len,
		.checksum = qp4_checksum_position(skb),
		.port = from->ingress_port,
		.instance = QP4_INGRESS_CLONE,
	};
	struct qp4_engine *engine = from->pipeline->engine;
	struct qp4_metadata *meta = qp4_metadata_new(from->pipeline, from->ingress_port), *copied;
	struct qp4_replica replica;
	struct sk_buff *copy;
	u32 truncate_bytes, i;

	if (!meta) {
		sw->counters.no_memory++;
		return;
	}
	qp4_set_packet(sw, skb);
	qp4_engine_parse_clone(engine, meta->context, skb->data, skb_headlen(skb), &arrival,
			       from->context);
	if (unlikely(!qp4_store_checksum(sw, skb))) {
		qp4_metadata_free(meta);
		sw->counters.no_memory++;
		return;
	}
	for (i = 0; qp4_engine_session(engine, session, i, &replica, &truncate_bytes); i++) {
		copy = qp4_clone_one(sw, skb, meta, &replica, QP4_INGRESS_CLONE, truncate_bytes,
				     &copied);
		if (copy)
			qp4_enqueue(sw, copy, copied, replica.port, 0);
	}
	qp4_metadata_free(meta);
}

/*
 * Runs the program's ingress. @previous: metadata of the packet that was
 * resubmitted or recirculated, or NULL; consumed. Returns false if there is no
 * memory.
 */
static bool qp4_decide(struct qp4_switch *sw, struct qp4_metadata *meta, struct sk_buff *skb,
		       u8 instance, struct qp4_metadata *previous, struct qp4_decision *decision)
{
	struct qp4_arrival arrival = {
		.now_us = qp4_now_us(sw),
		.length = skb->len,
		.checksum = qp4_checksum_position(skb),
		.port = meta->ingress_port,
		.instance = instance,
	};
	/* metadata of another program is ignored */
	bool known = previous && previous->pipeline == meta->pipeline;

	qp4_set_packet(sw, skb);
	qp4_engine_ingress(meta->pipeline->engine, meta->context, skb->data, skb_headlen(skb),
			   &arrival, known ? previous->context : NULL, decision);
	if (previous)
		qp4_metadata_free(previous);
	if (unlikely(!qp4_store_checksum(sw, skb)))
		return false;
	if (unlikely(decision->clone))
		qp4_clone_ingress(sw, meta, skb, decision->session);
	return true;
}

/*
 * Allocates metadata for a packet that enters the current program. Returns NULL
 * if there is no program or no memory.
 */
static struct qp4_metadata *qp4_begin(struct qp4_switch *sw, struct sk_buff *skb, u16 port)
{
	struct qp4_pipeline *pipeline = sw->pipeline;

	if (unlikely(!pipeline || (pipeline->reach == U32_MAX && skb_linearize(skb))))
		return NULL;
	if (skb->ip_summed == CHECKSUM_PARTIAL &&
	    unlikely(!pipeline->defers_checksums || skb_csum_is_sctp(skb)) && skb_checksum_help(skb))
		return NULL;
	return qp4_metadata_new(pipeline, port);
}

/*
 * Processes a packet that starts with its Ethernet header. Consumes the packet
 * and @previous.
 */
void qp4_ingress(struct qp4_switch *sw, struct sk_buff *skb, u16 port, u8 instance,
		 struct qp4_metadata *previous)
{
	struct qp4_decision decision;
	struct qp4_metadata *meta;
	u64 *drop_counter = NULL;

	for (;;) {
		meta = qp4_begin(sw, skb, port);
		if (unlikely(!meta)) {
			drop_counter = sw->pipeline ? &sw->counters.no_memory : &sw->counters.no_program;
			break;
		}
		if (unlikely(!qp4_decide(sw, meta, skb, instance, previous, &decision))) {
			previous = meta;
			drop_counter = &sw->counters.no_memory;
			break;
		}
		previous = NULL;
		if (likely(!decision.resubmit))
			break;
		previous = meta;
		instance = QP4_RESUBMITTED;
		if (!qp4_round(sw)) {
			drop_counter = &sw->counters.too_many_rounds;
			break;
		}
	}
	if (unlikely(drop_counter)) {
		if (previous)
			qp4_metadata_free(previous);
		qp4_drop(skb, drop_counter);
		return;
	}
	if (unlikely(!qp4_truncate_queued(sw, skb, meta, decision.truncate_bytes))) {
		qp4_metadata_free(meta);
		qp4_drop(skb, &sw->counters.no_memory);
		return;
	}
	if (likely(decision.forward == QP4_UNICAST)) {
		qp4_enqueue(sw, skb, meta, decision.to, decision.priority);
		return;
	}
	if (decision.forward == QP4_MULTICAST)
		qp4_multicast(sw, skb, meta, decision.to);
	qp4_metadata_free(meta);
	kfree_skb(skb);
}

/*
 * Restores the packet as it was on the wire, with its VLAN tag. Returns NULL if
 * there is no memory.
 */
static struct sk_buff *qp4_from_wire(struct sk_buff *skb)
{
	skb_push(skb, skb->data - skb_mac_header(skb));
	if (skb_vlan_tag_present(skb)) {
		skb = __vlan_hwaccel_push_inside(skb);
		if (!skb)
			return NULL;
	}
	if (skb->ip_summed != CHECKSUM_PARTIAL)
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

/* Segments a GSO packet, which never is on a wire. */
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

