/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which packets wait in a queue: needed for events only.
 *
 * A qdisc may free a packet inside its own dequeue, and says no more about it
 * than a counter. So each waiting packet has a slot here, found by its skb,
 * and the skb's destructor is replaced by one that tells the slot. Destructors
 * are put back when the packet leaves the queue by any way.
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
	struct list_head list;		/* in its queue's waiting or gone */
	struct qtap_waiting *queue;
	struct sk_buff *skb;
	void (*destructor)(struct sk_buff *skb);	/* the packet's own */
	bool gone;			/* destructor ran: freed, or orphaned */
	struct qtap_event event;	/* as it entered */
};

/* The packets of one queue. */
struct qtap_waiting {
	struct list_head waiting;
	struct list_head gone;		/* since qtap_waiting_begin() */
	u64 next_number;
};

static struct hlist_head *qtap_packet_hash;
static struct kmem_cache *qtap_packet_cache;
/* Inside of every other lock; destructors may run with interrupts off. */
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
		packet->gone = true;
		list_move_tail(&packet->list, &packet->queue->gone);
	}
	spin_unlock_irqrestore(&qtap_packet_lock, flags);
	if (skb->destructor)
		skb->destructor(skb);
}

static void qtap_packet_forget(struct qtap_packet *packet)
{
	hlist_del(&packet->by_skb);
	list_del(&packet->list);
	if (!packet->gone)
		packet->skb->destructor = packet->destructor;
	kmem_cache_free(qtap_packet_cache, packet);
}

static void qtap_packet_release(struct qtap_packet *packet)
{
	unsigned long flags;

	spin_lock_irqsave(&qtap_packet_lock, flags);
	qtap_packet_forget(packet);
	spin_unlock_irqrestore(&qtap_packet_lock, flags);
}

/* @skb is about to enter. Without memory it stays unknown: returns NULL. */
static struct qtap_packet *qtap_packet_add(struct qtap_waiting *queue, struct sk_buff *skb)
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
	/* A packet freed behind our back leaves its address to another. */
	stale = qtap_packet_find(skb);
	if (stale)
		qtap_packet_forget(stale);
	skb->destructor = qtap_packet_destructor;
	hlist_add_head(&packet->by_skb,
		       &qtap_packet_hash[hash_ptr(skb, QTAP_PACKET_HASH_BITS)]);
	list_add_tail(&packet->list, &queue->waiting);
	spin_unlock_irqrestore(&qtap_packet_lock, flags);
	return packet;
}

/* An operation begins: what is gone from now on is gone by it. */
static void qtap_waiting_begin(struct qtap_waiting *queue)
{
	unsigned long flags;

	if (list_empty(&queue->gone))
		return;
	/* These were orphaned, not freed (as netem does): they still wait. */
	spin_lock_irqsave(&qtap_packet_lock, flags);
	list_splice_tail_init(&queue->gone, &queue->waiting);
	spin_unlock_irqrestore(&qtap_packet_lock, flags);
}

static void qtap_waiting_release(struct qtap_waiting *queue)
{
	struct qtap_packet *packet, *next;
	unsigned long flags;

	spin_lock_irqsave(&qtap_packet_lock, flags);
	list_splice_tail_init(&queue->gone, &queue->waiting);
	list_for_each_entry_safe(packet, next, &queue->waiting, list)
		qtap_packet_forget(packet);
	spin_unlock_irqrestore(&qtap_packet_lock, flags);
}

static int qtap_packets_init(void)
{
	qtap_packet_hash = kvcalloc(1u << QTAP_PACKET_HASH_BITS, sizeof(*qtap_packet_hash),
				    GFP_KERNEL);
	qtap_packet_cache = KMEM_CACHE(qtap_packet, 0);
	return qtap_packet_hash && qtap_packet_cache ? 0 : -ENOMEM;
}

static void qtap_packets_exit(void)
{
	kmem_cache_destroy(qtap_packet_cache);
	kvfree(qtap_packet_hash);
}

#endif /* _QTAP_PACKETS_H */
