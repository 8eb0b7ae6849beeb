// SPDX-License-Identifier: GPL-2.0-only
/* Events for QP4_EVENTS: those of the program, and packets sent to the CPU port. */
#include <linux/ktime.h>
#include <linux/timekeeping.h>

#include "qp4.h"

#define QP4_MAX_EVENTS 4096u
#define QP4_MAX_PACKETS_IN 1024u

/*
 * Allocates an event with space for @length bytes. Returns NULL if the queue is
 * full or there is no memory.
 */
static struct sk_buff *qp4_event_new(const struct sk_buff_head *queue, u32 max, u32 kind, u32 id,
				     size_t length)
{
	struct qp4_event event = {
		.kind = kind,
		.id = id,
		.time_ns = ktime_get_ns(),
		.bytes = length,
	};
	struct sk_buff *skb;

	if (skb_queue_len(queue) >= max || length > QP4_MOST_PACKET)
		return NULL;
	skb = alloc_skb(sizeof(event) + ALIGN(length, 8), GFP_ATOMIC | __GFP_NOWARN);
	if (skb)
		skb_put_data(skb, &event, sizeof(event));
	return skb;
}

static void qp4_event_queue(struct qp4_switch *sw, struct sk_buff_head *queue, struct sk_buff *skb)
{
	skb_put_zero(skb, ALIGN(skb->len, 8) - skb->len);
	skb_queue_tail(queue, skb);
	wake_up_interruptible(&sw->events_wait);
}

void qp4_event(void *owner, u32 kind, u32 id, const u8 *bytes, size_t length)
{
	struct qp4_switch *sw = owner;
	struct sk_buff *event = qp4_event_new(&sw->events, QP4_MAX_EVENTS, kind, id, length);

	if (!event) {
		sw->counters.events_lost++;
		return;
	}
	skb_put_data(event, bytes, length);
	qp4_event_queue(sw, &sw->events, event);
}

/* Consumes the packet. */
void qp4_packet_in(struct qp4_switch *sw, struct sk_buff *skb)
{
	struct sk_buff *event = qp4_event_new(&sw->packets_in, QP4_MAX_PACKETS_IN,
					      QP4_EVENT_PACKET, sw->cpu_port, skb->len);

	if (!event) {
		qp4_drop(skb, &sw->counters.packets_in_lost);
		return;
	}
	skb_copy_bits(skb, 0, skb_put(event, skb->len), skb->len);
	qp4_event_queue(sw, &sw->packets_in, event);
	consume_skb(skb);
}

static u64 qp4_event_time(const struct sk_buff *skb)
{
	return skb ? ((const struct qp4_event *)skb->data)->time_ns : U64_MAX;
}

/*
 * Removes the oldest event, or returns NULL. Called under the switch's lock, so
 * there is no other consumer.
 */
struct sk_buff *qp4_event_take(struct qp4_switch *sw)
{
	u64 event_ns = qp4_event_time(skb_peek(&sw->events));
	u64 packet_ns = qp4_event_time(skb_peek(&sw->packets_in));

	return skb_dequeue(event_ns <= packet_ns ? &sw->events : &sw->packets_in);
}

bool qp4_has_events(const struct qp4_switch *sw)
{
	return !skb_queue_empty_lockless(&sw->events) ||
	       !skb_queue_empty_lockless(&sw->packets_in);
}
