/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Control block of the queue tap (qtap), in the bytes of skb->cb behind the
 * qdisc layer's. The tap writes it at enqueue and reads it at dequeue; in
 * between, a scheme may set `signalled`. Without a tap it is not read.
 */
#ifndef _QBED_TAP_SKB_CB_H
#define _QBED_TAP_SKB_CB_H

#include <linux/build_bug.h>
#include <linux/skbuff.h>
#include <net/pkt_sched.h>

#define TAP_CB_NS_BITS 40
#define TAP_CB_COOKIE_BITS 15

struct tap_skb_cb {
	/* written by the tap: */
	u64 enqueue_ns:TAP_CB_NS_BITS;	/* lowest bits of the time of enqueue */
	u64 tos:8;				/* DSCP and ECN fields at enqueue */
	u64 cookie:TAP_CB_COOKIE_BITS;	/* validates the control block */
	/*
	 * written by the scheme: congestion was signalled to the packet's flow, not by CE in
	 * this packet
	 */
	u64 signalled:1;
};
static_assert(sizeof(struct tap_skb_cb) == sizeof(u64));

#define TAP_CB_OFFSET (sizeof_field(struct sk_buff, cb) - sizeof(struct tap_skb_cb))
static_assert(sizeof(struct tc_skb_cb) <= TAP_CB_OFFSET);

static inline struct tap_skb_cb *tap_skb_cb(struct sk_buff *skb)
{
	return (struct tap_skb_cb *)(skb->cb + TAP_CB_OFFSET);
}

#endif /* _QBED_TAP_SKB_CB_H */
