/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A note that goes with a packet through a qdisc, in the bytes of skb->cb
 * beyond the qdisc layer's: whoever watches the queue writes it when the packet
 * enters, a scheme adds what the packet itself does not show, and the watcher
 * reads it when the packet leaves. Without a watcher nobody reads it.
 */
#ifndef _QBED_QUEUE_NOTE_H
#define _QBED_QUEUE_NOTE_H

#include <linux/build_bug.h>
#include <linux/skbuff.h>
#include <net/pkt_sched.h>

#define QUEUE_NOTE_NS_BITS 40
#define QUEUE_NOTE_COOKIE_BITS 15

struct queue_note {
	/* the watcher's: */
	u64 entered_ns:QUEUE_NOTE_NS_BITS;	/* when, without the highest bits */
	u64 tos:8;				/* the DSCP and ECN fields with which it came */
	u64 cookie:QUEUE_NOTE_COOKIE_BITS;	/* tells its note from rubbish */
	/* the scheme's: congestion was signalled to the packet's flow, by another way than CE in it */
	u64 signalled:1;
};
static_assert(sizeof(struct queue_note) == sizeof(u64));

#define QUEUE_NOTE_OFFSET (sizeof_field(struct sk_buff, cb) - sizeof(struct queue_note))
static_assert(sizeof(struct tc_skb_cb) <= QUEUE_NOTE_OFFSET);

static inline struct queue_note *queue_note(struct sk_buff *skb)
{
	return (struct queue_note *)(skb->cb + QUEUE_NOTE_OFFSET);
}

#endif /* _QBED_QUEUE_NOTE_H */
