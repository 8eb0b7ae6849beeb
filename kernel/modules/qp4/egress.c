// SPDX-License-Identifier: GPL-2.0-only
/* Between a port's queue and its wire: the program's egress. */
#include <linux/etherdevice.h>
#include <linux/slab.h>

#include "qp4.h"

/*
 * Makes the linear head writable, with @room bytes of headroom; payload pages
 * stay shared. A packet that keeps its size is reallocated where Linux's IP
 * forwarding does it (skb_cow()). A packet that grows with each recirculation
 * gives up its tailroom, which would otherwise double each time. Returns false
 * if there is no memory.
 */
static bool qp4_make_head_writable(struct sk_buff *skb, u32 room)
{
	u32 headroom = skb_headroom(skb);

	if (unlikely(headroom < room))
		return !pskb_expand_head(skb, ALIGN(room - headroom, NET_SKB_PAD),
					 skb_tail_pointer(skb) - skb_end_pointer(skb), GFP_ATOMIC);
	return likely(!skb_cloned(skb)) || !pskb_expand_head(skb, 0, 0, GFP_ATOMIC);
}

/*
 * Replaces the leading bytes of the packet by the program's headers. Returns
 * false if there is no memory.
 */
static bool qp4_replace(struct qp4_switch *sw, struct sk_buff *skb, const struct qp4_metadata *meta,
			struct qp4_emission *emission)
{
	u32 truncate_bytes = min(emission->truncate_bytes, meta->truncate_bytes);
	u32 replaced = min(emission->replaced, skb->len);
	u32 length;

	if (skb->ip_summed == CHECKSUM_PARTIAL &&
	    unlikely(truncate_bytes != U32_MAX || !qp4_keeps_checksum(skb, emission)) &&
	    !qp4_complete(sw, skb, meta, emission))
		return false;
	length = emission->headers_bytes;
	/* a head that is shared is copied only if the program changed it */
	if (length != replaced || length > skb_headlen(skb) || !skb_cloned(skb) ||
	    memcmp(skb->data, emission->headers, length)) {
		if (!pskb_may_pull(skb, replaced) ||
		    !qp4_make_head_writable(skb, length > replaced ? length - replaced : 0))
			return false;
		if (length > replaced)
			skb_push(skb, length - replaced);
		else
			skb_pull(skb, replaced - length);
		memcpy(skb->data, emission->headers, length);
	}
	return qp4_truncate(skb, truncate_bytes);
}

/* Clones the packet as it was queued, with the program's metadata, to a clone session. */
static void qp4_clone_egress(struct qp4_switch *sw, const struct qp4_metadata *meta,
			     struct sk_buff *skb, u16 session)
{
	struct qp4_engine *engine = meta->pipeline->engine;
	struct qp4_replica replica;
	struct qp4_metadata *copied;
	struct sk_buff *copy;
	u32 truncate_bytes, i;

	for (i = 0; qp4_engine_session(engine, session, i, &replica, &truncate_bytes); i++) {
		copy = qp4_clone_one(sw, skb, meta, &replica, QP4_EGRESS_CLONE, truncate_bytes,
				     &copied);
		if (copy)
			qp4_defer(sw, copy, copied,
				  (struct qp4_deferred_cb) { .port = replica.port, .clone = true });
	}
}

/*
 * Sends the packet back to ingress. Consumes the packet and its metadata;
 * returns NULL, as no frame is to be transmitted.
 */
static struct sk_buff *qp4_recirculate(struct qp4_switch *sw, struct sk_buff *skb,
				       struct qp4_metadata *meta)
{
	if (qp4_round(sw)) {
		qp4_defer(sw, skb, meta, (struct qp4_deferred_cb) { .port = meta->ingress_port });
	} else {
		qp4_metadata_free(meta);
		qp4_drop(skb, &sw->counters.too_many_rounds);
	}
	return NULL;
}

/*
 * Drops a packet by the program's decision. The observer of the queue counts it
 * as dropped by the queue.
 */
static void qp4_egress_drop(struct sk_buff *skb, struct net_device *dev)
{
	const struct qbed_link *link = dev ? qbed_link(dev) : NULL;

	if (link && link->observer)
		link->observer->dropped(link->observer, skb);
	kfree_skb(skb);
}

/*
 * Executes the program's egress decision for a packet dequeued from @dev, or
 * sent to the CPU port (NULL). Consumes the packet and its metadata; returns
 * the packet to transmit or NULL.
 */
static struct sk_buff *qp4_emit(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_metadata *meta,
				struct qp4_emission *emission, struct net_device *dev)
{
	u64 *drop_counter = NULL;

	if (unlikely(!qp4_store_checksum(sw, skb))) {
		qp4_metadata_free(meta);
		qp4_drop(skb, &sw->counters.no_memory);
		return NULL;
	}
	if (unlikely(emission->clone))
		qp4_clone_egress(sw, meta, skb, emission->session);
	if (emission->drop) {
		qp4_metadata_free(meta);
		qp4_egress_drop(skb, dev);
		return NULL;
	}
	if (unlikely(!qp4_replace(sw, skb, meta, emission)))
		drop_counter = &sw->counters.no_memory;
	else if (unlikely(emission->recirculate))
		return qp4_recirculate(sw, skb, meta);
	qp4_metadata_free(meta);
	if (unlikely(drop_counter)) {
		qp4_drop(skb, drop_counter);
		return NULL;
	}
	return skb;
}

/* Appends the bytes truncated before the queue. Returns false if there is no memory. */
static bool qp4_restore_tail(struct sk_buff *skb, struct qp4_metadata *meta)
{
	u32 bytes = meta->tail_bytes;

	if (skb_linearize(skb) || pskb_expand_head(skb, 0, bytes, GFP_ATOMIC))
		return false;
	skb_put_data(skb, meta->tail, bytes);
	kfree(meta->tail);
	meta->tail = NULL;
	return true;
}

static struct sk_buff *qp4_run_egress(struct qp4_switch *sw, struct sk_buff *skb,
				      struct qp4_metadata *meta,
				      const struct qp4_departure *departure,
				      struct net_device *dev)
{
	struct qp4_emission emission;

	if (unlikely(meta->tail) && !qp4_restore_tail(skb, meta)) {
		qp4_metadata_free(meta);
		qp4_drop(skb, &sw->counters.no_memory);
		return NULL;
	}
	qp4_update_checksum(skb, meta);
	qp4_set_packet(sw, skb);
	/* the packet is linear if the program accesses payload */
	qp4_engine_egress(meta->pipeline->engine, meta->context, skb->data, skb_headlen(skb),
			  departure, &emission);
	return qp4_emit(sw, skb, meta, &emission, dev);
}

/*
 * Runs egress for a packet to the CPU port, which has no queue, and queues it
 * as an event. Consumes the packet and its metadata.
 */
void qp4_leave_cpu(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_metadata *meta)
{
	u64 now_us = qp4_now_us(sw);
	struct qp4_departure departure = {
		.now_us = now_us,
		.enqueued_us = now_us,
		.port = sw->cpu_port,
	};

	sw->counters.packets_in++;
	skb = qp4_run_egress(sw, skb, meta, &departure, NULL);
	if (skb && skb->ip_summed == CHECKSUM_PARTIAL && skb_checksum_help(skb)) {
		qp4_drop(skb, &sw->counters.no_memory);
		skb = NULL;
	}
	if (skb)
		qp4_packet_in(sw, skb);
}

struct sk_buff *qp4_egress(struct qbed_egress *egress, struct sk_buff *skb)
{
	struct qp4_port *port = container_of(egress, struct qp4_port, egress);
	struct qp4_metadata *meta = qp4_metadata_take(skb);
	struct qp4_departure departure;

	if (unlikely(!meta)) {
		port->sw->counters.foreign++;
		kfree_skb_list(skb);
		return NULL;
	}
	departure = (struct qp4_departure) {
		.now_us = qp4_now_us(port->sw),
		.enqueued_us = meta->enqueued_us,
		.enqueued_depth = meta->enqueued_depth,
		.dequeued_depth = qp4_depth(port->dev),
		.port = port->number,
	};
	skb = qp4_run_egress(port->sw, skb, meta, &departure, port->dev);
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

