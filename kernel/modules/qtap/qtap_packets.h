/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracking of the packets in a queue, needed for events only.
 *
 * A qdisc may free a packet inside its own dequeue without any indication but a
 * counter. Therefore each queued packet has a struct qtap_packet here, found by
 * its skb, and the skb's destructor is replaced by one that records the free.
 * The original destructor is restored when the packet leaves the queue.
 */
#ifndef _QTAP_PACKETS_H
#define _QTAP_PACKETS_H

#include <linux/hash.h>
#include <linux/list.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include <qbed/qtap.h>

#define QTAP_PACKET_HASH_BITS 14

struct qtap_packet {
	struct hlist_node by_skb;
	struct list_head list;		/* in the queue's queued or freed list */
	struct qtap_packets *queue;
	struct sk_buff *skb;
	void (*destructor)(struct sk_buff *skb);	/* the original one */
	bool freed;			/* the destructor ran: freed or orphaned */
	struct qtap_event event;	/* state at enqueue */
};

/* The packets of one queue. */
struct qtap_packets {
	struct list_head queued;
	struct list_head freed;		/* since qtap_packets_begin() */
	u64 next_number;
};

static struct hlist_head *qtap_packet_hash;
static struct kmem_cache *qtap_packet_cache;
/* Innermost lock; destructors may run with interrupts disabled. */
static DEFINE_SPINLOCK(qtap_packet_lock);

static struct qtap_packet *qtap_packet_find(const struct sk_buff *skb)
{
	struct hlist_head *head = &qtap_packet_hash[hash_ptr((void *)skb, QTAP_PACKET_HASH_BITS)];
	struct qtap_packet *packet;

	hlist_for_each_entry(packet, head, by_skb) {
		if (packet->skb == skb)
			return packet;
	}
	return NULL;
}

static void qtap_packet_destructor(struct sk_buff *skb)
{
	struct qtap_packet *packet;
	unsigned long flags;

	spin_lock_irqsave(&qtap_packet_lock, flags);
	packet = qtap_packet_find(skb);
	skb->destructor = packet ? packet->destructor : NULL;
	if (packet) {
		packet->freed = true;
		list_move_tail(&packet->list, &packet->queue->freed);
	}
	spin_unlock_irqrestore(&qtap_packet_lock, flags);
	if (skb->destructor)
		skb->destructor(skb);
}

static void qtap_packet_free(struct qtap_packet *packet)
{
	hlist_del(&packet->by_skb);
	list_del(&packet->list);
	if (!packet->freed)
		packet->skb->destructor = packet->destructor;
	kmem_cache_free(qtap_packet_cache, packet);
}

static void qtap_packet_release(struct qtap_packet *packet)
{
	unsigned long flags;

	spin_lock_irqsave(&qtap_packet_lock, flags);
	qtap_packet_free(packet);
	spin_unlock_irqrestore(&qtap_packet_lock, flags);
}

/* Tracks @skb, which is about to be enqueued. Returns NULL if there is no memory. */
static struct qtap_packet *qtap_packet_add(struct qtap_packets *queue, struct sk_buff *skb)
{
	struct qtap_packet *packet = kmem_cache_zalloc(qtap_packet_cache,
						       GFP_ATOMIC | __GFP_NOWARN);
	struct qtap_packet *stale;
	unsigned long flags;

	if (!packet) {
		queue->next_number++;
		return NULL;
	}
	packet->queue = queue;
	packet->skb = skb;
	packet->destructor = skb->destructor;
	packet->event.packet = queue->next_number++;
	spin_lock_irqsave(&qtap_packet_lock, flags);
	/* The address of an skb that was freed without its destructor may be reused. */
	stale = qtap_packet_find(skb);
	if (stale)
		qtap_packet_free(stale);
	skb->destructor = qtap_packet_destructor;
	hlist_add_head(&packet->by_skb,
		       &qtap_packet_hash[hash_ptr(skb, QTAP_PACKET_HASH_BITS)]);
	list_add_tail(&packet->list, &queue->queued);
	spin_unlock_irqrestore(&qtap_packet_lock, flags);
	return packet;
}

/* Start of an operation: packets freed from now on are freed by it. */
static void qtap_packets_begin(struct qtap_packets *queue)
{
	unsigned long flags;

	if (list_empty(&queue->freed))
		return;
	/* These were orphaned, not freed (netem does that): they are still queued. */
	spin_lock_irqsave(&qtap_packet_lock, flags);
	list_splice_tail_init(&queue->freed, &queue->queued);
	spin_unlock_irqrestore(&qtap_packet_lock, flags);
}

static void qtap_packets_release(struct qtap_packets *queue)
{
	struct qtap_packet *packet, *next;
	unsigned long flags;

	spin_lock_irqsave(&qtap_packet_lock, flags);
	list_splice_tail_init(&queue->freed, &queue->queued);
	list_for_each_entry_safe(packet, next, &queue->queued, list)
		qtap_packet_free(packet);
	spin_unlock_irqrestore(&qtap_packet_lock, flags);
}

static int qtap_packet_cache_init(void)
{
	qtap_packet_hash = kvcalloc(1u << QTAP_PACKET_HASH_BITS, sizeof(*qtap_packet_hash),
				    GFP_KERNEL);
	qtap_packet_cache = KMEM_CACHE(qtap_packet, 0);
	return qtap_packet_hash && qtap_packet_cache ? 0 : -ENOMEM;
}

static void qtap_packet_cache_exit(void)
{
	kmem_cache_destroy(qtap_packet_cache);
	kvfree(qtap_packet_hash);
}

#endif /* _QTAP_PACKETS_H */
