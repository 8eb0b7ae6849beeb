// SPDX-License-Identifier: GPL-2.0-only
/*
 * The border of a guest: a stub's frames leave by a vector device, and that
 * device's frames enter by the stub. A GSO packet that enters is segmented
 * before the stub's queue, so that queues and links have frames only. If GRO is
 * on at the stub, frames of a TCP stream that leave together cross as one GSO
 * packet: for the machine's kernel, a crossing costs as much as the rest of the
 * path.
 */
#include <linux/etherdevice.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <net/gso.h>

#include "qlink_end.h"

struct qlink_border {
	struct net_device *outside;	/* the vector device; a guest never removes one */
	netdevice_tracker tracker;
	struct qlink_end *stub;
	struct sk_buff_head leaving;
	struct napi_struct napi;
};

/* Sends a packet to @dev; its segments, if it is @segmented. */
static void qlink_border_send(struct sk_buff *skb, struct net_device *dev, bool segmented)
{
	struct sk_buff *segment, *next;

	skb->dev = dev;
	if (segmented) {
		segment = skb_gso_segment(skb, dev->features & ~NETIF_F_GSO_MASK);
		if (IS_ERR_OR_NULL(segment)) {
			dev_core_stats_tx_dropped_inc(dev);
			kfree_skb(skb);
			return;
		}
		consume_skb(skb);
		skb = segment;
	}
	skb_list_walk_safe(skb, segment, next) {
		skb_mark_not_on_list(segment);
		dev_queue_xmit(segment);
	}
}

/* A frame of the lab leaves. */
void qlink_border_leave(struct qlink_border *border, struct sk_buff *skb)
{
	if (!(border->stub->dev->features & NETIF_F_GRO)) {
		qlink_border_send(skb, border->outside, false);
		return;
	}
	skb->protocol = eth_type_trans(skb, border->stub->dev);
	__skb_queue_tail(&border->leaving, skb);
	napi_schedule(&border->napi);
}

/*
 * Sends all frames that leave, as a driver completes all that it has sent: if
 * @budget limited them, more frames could enter in a round of polls than leave.
 */
static int qlink_border_poll(struct napi_struct *napi, int budget)
{
	struct qlink_border *border = container_of(napi, struct qlink_border, napi);
	struct sk_buff *skb;

	while ((skb = __skb_dequeue(&border->leaving))) {
		/* GRO changes the fragments of a packet, which TCP's retransmission queue may share */
		if (skb_shared(skb) || skb_unclone(skb, GFP_ATOMIC))
			netif_receive_skb(skb);
		else
			napi_gro_receive(napi, skb);
	}
	napi_complete_done(napi, 0);
	return 0;
}

/* Receives at the stub what leaves, behind GRO. */
static rx_handler_result_t qlink_border_out(struct sk_buff **pskb)
{
	struct sk_buff *skb = *pskb;
	struct qlink_border *border = rcu_dereference(skb->dev->rx_handler_data);
	bool segmented;

	skb_push(skb, skb->data - skb_mac_header(skb));
	/* A vector device sends the head and the page fragments of a packet, but not its list of buffers. */
	segmented = skb_has_frag_list(skb) && skb_linearize(skb);
	qlink_border_send(skb, border->outside, segmented);
	return RX_HANDLER_CONSUMED;
}

/* Receives at the vector device what enters. */
static rx_handler_result_t qlink_border_in(struct sk_buff **pskb)
{
	struct sk_buff *skb = *pskb;
	struct qlink_border *border = rcu_dereference(skb->dev->rx_handler_data);

	if (unlikely(skb->pkt_type == PACKET_LOOPBACK))
		return RX_HANDLER_PASS;
	skb = skb_share_check(skb, GFP_ATOMIC);
	if (unlikely(!skb))
		return RX_HANDLER_CONSUMED;
	skb_push(skb, skb->data - skb_mac_header(skb));
	skb_clear_tstamp(skb);
	qlink_border_send(skb, border->stub->dev, skb_is_gso(skb));
	return RX_HANDLER_CONSUMED;
}

/* Connects a stub with the vector device @ifindex. Called with RTNL. */
int qlink_border_open(struct qlink_end *stub, int ifindex)
{
	struct net_device *outside = __dev_get_by_index(dev_net(stub->dev), ifindex);
	struct qlink_border *border;
	int err;

	if (!outside)
		return -ENODEV;
	if (stub->border)
		return -EBUSY;
	border = kzalloc(sizeof(*border), GFP_KERNEL);
	if (!border)
		return -ENOMEM;
	border->outside = outside;
	border->stub = stub;
	__skb_queue_head_init(&border->leaving);
	err = netdev_rx_handler_register(outside, qlink_border_in, border);
	if (err)
		goto free;
	err = netdev_rx_handler_register(stub->dev, qlink_border_out, border);
	if (err)
		goto unregister;
	netdev_hold(outside, &border->tracker, GFP_KERNEL);
	netif_napi_add(stub->dev, &border->napi, qlink_border_poll);
	napi_enable(&border->napi);
	stub->border = border;
	return 0;

unregister:
	netdev_rx_handler_unregister(outside);
free:
	kfree(border);
	return err;
}

/* Called with RTNL, when the stub is removed. */
void qlink_border_close(struct qlink_end *stub)
{
	struct qlink_border *border = stub->border;

	if (!border)
		return;
	netdev_rx_handler_unregister(border->outside);
	netdev_rx_handler_unregister(stub->dev);
	napi_disable(&border->napi);
	netif_napi_del(&border->napi);
	__skb_queue_purge(&border->leaving);
	netdev_put(border->outside, &border->tracker);
	stub->border = NULL;
	kfree(border);
}
