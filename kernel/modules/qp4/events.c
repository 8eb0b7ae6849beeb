// SPDX-License-Identifier: GPL-2.0-only
/* What the switch tells whoever asks: what its program said, and packets that left by the CPU port. */
#include <linux/ktime.h>
#include <linux/timekeeping.h>

#include "qp4.h"

#define QP4_MOST_EVENTS 4096u
#define QP4_MOST_PACKETS_IN 1024u

/* With room for @length bytes; NULL: they are lost. */
static struct sk_buff *qp4_event_new(const struct sk_buff_head *queue, u32 most, u32 kind, u32 id,
				     size_t length)
{
	struct qp4_event event = {
		.kind = kind,
		.id = id,
		.time_ns = ktime_get_ns(),
		.bytes = length,
	};
	struct sk_buff *skb;

	if (skb_queue_len(queue) >= most || length > QP4_MOST_PACKET)
		return NULL;
	skb = alloc_skb(sizeof(event) + ALIGN(length, 8), GFP_ATOMIC | __GFP_NOWARN);
	if (skb)
		skb_put_data(skb, &event, sizeof(event));
	return skb;
}

static void qp4_event_tell(struct qp4_switch *sw, struct sk_buff_head *queue, struct sk_buff *skb)
{
	skb_put_zero(skb, ALIGN(skb->len, 8) - skb->len);
	skb_queue_tail(queue, skb);
	wake_up_interruptible(&sw->events_wait);
}

void qp4_event(void *owner, u32 kind, u32 id, const u8 *bytes, size_t length)
{
	struct qp4_switch *sw = owner;
	struct sk_buff *event = qp4_event_new(&sw->events, QP4_MOST_EVENTS, kind, id, length);

	if (!event) {
		sw->counters.events_lost++;
		return;
	}
	skb_put_data(event, bytes, length);
	qp4_event_tell(sw, &sw->events, event);
}

/* Takes the packet. */
void qp4_packet_in(struct qp4_switch *sw, struct sk_buff *skb)
{
	struct sk_buff *event = qp4_event_new(&sw->packets_in, QP4_MOST_PACKETS_IN,
					      QP4_EVENT_PACKET, sw->cpu_port, skb->len);

	if (!event) {
		qp4_drop(skb, &sw->counters.packets_in_lost);
		return;
	}
	skb_copy_bits(skb, 0, skb_put(event, skb->len), skb->len);
	qp4_event_tell(sw, &sw->packets_in, event);
	consume_skb(skb);
}

static u64 qp4_event_time(const struct sk_buff *skb)
{
	return skb ? ((const struct qp4_event *)skb->data)->time_ns : U64_MAX;
}

/* The first that was told; NULL: none. Nobody else takes any: under the switch's lock. */
struct sk_buff *qp4_event_take(struct qp4_switch *sw)
{
	u64 said = qp4_event_time(skb_peek(&sw->events));
	u64 left = qp4_event_time(skb_peek(&sw->packets_in));

	return skb_dequeue(said <= left ? &sw->events : &sw->packets_in);
}

bool qp4_events_wait(const struct qp4_switch *sw)
{
	return !skb_queue_empty_lockless(&sw->events) ||
	       !skb_queue_empty_lockless(&sw->packets_in);
}
