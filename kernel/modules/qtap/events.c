// SPDX-License-Identifier: GPL-2.0-only
/*
 * Events: a record for each packet that enters or leaves the queue.
 *
 * A qdisc may free a packet inside its own dequeue without any indication but a
 * counter. Therefore each queued packet has a struct qtap_packet here, found by
 * its skb, and the skb's destructor is replaced by one that records the free.
 * The original destructor is restored when the packet leaves the queue.
 */
#include <linux/hash.h>
#include <linux/slab.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/ip.h>

#include "qtap.h"
#include "qtap_headers.h"

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

/* The freed packets were orphaned, not freed (netem does that): they are still queued. */
void qtap_packets_restore(struct qtap_packets *queue)
{
	unsigned long flags;

	spin_lock_irqsave(&qtap_packet_lock, flags);
	list_splice_tail_init(&queue->freed, &queue->queued);
	spin_unlock_irqrestore(&qtap_packet_lock, flags);
}

void qtap_packets_release(struct qtap_packets *queue)
{
	struct qtap_packet *packet, *next;
	unsigned long flags;

	spin_lock_irqsave(&qtap_packet_lock, flags);
	list_splice_tail_init(&queue->freed, &queue->queued);
	list_for_each_entry_safe(packet, next, &queue->queued, list)
		qtap_packet_free(packet);
	spin_unlock_irqrestore(&qtap_packet_lock, flags);
}

int qtap_packet_cache_init(void)
{
	qtap_packet_hash = kvcalloc(1u << QTAP_PACKET_HASH_BITS, sizeof(*qtap_packet_hash),
				    GFP_KERNEL);
	qtap_packet_cache = KMEM_CACHE(qtap_packet, 0);
	return qtap_packet_hash && qtap_packet_cache ? 0 : -ENOMEM;
}

void qtap_packet_cache_exit(void)
{
	kmem_cache_destroy(qtap_packet_cache);
	kvfree(qtap_packet_hash);
}

/* Events */

/* Ports, sequence numbers and payload of the transport header at @offset. */
static void qtap_describe_transport(const struct sk_buff *skb, int offset, int bytes,
				    struct qtap_event *event)
{
	const struct tcphdr *tcp;
	const struct udphdr *udp;
	union {
		struct tcphdr tcp;
		struct udphdr udp;
	} copy;

	event->payload = max(bytes, 0);
	if (event->protocol == IPPROTO_TCP) {
		tcp = skb_header_pointer(skb, offset, sizeof(copy.tcp), &copy);
		if (!tcp)
			return;
		event->sport = ntohs(tcp->source);
		event->dport = ntohs(tcp->dest);
		event->tcp_seq = ntohl(tcp->seq);
		event->tcp_ack = ntohl(tcp->ack_seq);
		event->tcp_flags = ntohl(tcp_flag_word(tcp)) >> 16;
		event->payload = max(bytes - tcp->doff * 4, 0);
	} else if (event->protocol == IPPROTO_UDP) {
		udp = skb_header_pointer(skb, offset, sizeof(copy.udp), &copy);
		if (!udp)
			return;
		event->sport = ntohs(udp->source);
		event->dport = ntohs(udp->dest);
		event->payload = max_t(int, bytes - sizeof(*udp), 0);
	}
}

/* The part of an event that identifies the packet. */
static void qtap_describe(const struct sk_buff *skb, struct qtap_event *event)
{
	int offset = skb_network_offset(skb);
	const struct ipv6hdr *ip6;
	const struct iphdr *ip;
	union {
		struct iphdr ip;
		struct ipv6hdr ip6;
	} copy;

	event->ecn = qtap_ecn(skb);
	if (skb->protocol == htons(ETH_P_IP)) {
		ip = skb_header_pointer(skb, offset, sizeof(copy.ip), &copy);
		if (!ip)
			return;
		event->family = 4;
		event->protocol = ip->protocol;
		memcpy(event->saddr, &ip->saddr, sizeof(ip->saddr));
		memcpy(event->daddr, &ip->daddr, sizeof(ip->daddr));
		/* a later fragment has no transport header */
		if (!(ip->frag_off & htons(IP_OFFSET)))
			qtap_describe_transport(skb, offset + ip->ihl * 4,
						ntohs(ip->tot_len) - ip->ihl * 4, event);
	} else if (skb->protocol == htons(ETH_P_IPV6)) {
		ip6 = skb_header_pointer(skb, offset, sizeof(copy.ip6), &copy);
		if (!ip6)
			return;
		event->family = 6;
		event->protocol = ip6->nexthdr;
		memcpy(event->saddr, &ip6->saddr, sizeof(ip6->saddr));
		memcpy(event->daddr, &ip6->daddr, sizeof(ip6->daddr));
		qtap_describe_transport(skb, offset + sizeof(*ip6),
					ntohs(ip6->payload_len), event);
	}
}

static void qtap_event_emit(const struct qtap *tap, struct qtap_event *event, u8 op,
			    struct qtap_length queue)
{
	if (tap->occupancy.phase != QTAP_OPEN)
		return;
	BUILD_BUG_ON(sizeof(*event) != 96);
	event->record = qtap_record(tap, QTAP_RECORD_EVENT, sizeof(*event),
				    tap->occupancy.last_ns);
	event->op = op;
	event->queue_packets = queue.packets;
	event->queue_bytes = queue.bytes;
	qtap_stream_write(event, sizeof(*event), NULL, 0);
}

static void qtap_event_drop(const struct qtap *tap, struct qtap_packet *packet,
			    struct qtap_length *queue)
{
	queue->packets--;
	queue->bytes -= packet->event.bytes;
	qtap_event_emit(tap, &packet->event, QTAP_OP_DROP, *queue);
	qtap_packet_release(packet);
}

/* Drops known only from a difference of counters. */
static void qtap_event_drop_unknown(const struct qtap *tap, s32 packets, s64 bytes,
				    struct qtap_length *queue)
{
	struct qtap_event event = { .packet = QTAP_PACKET_UNKNOWN };

	for (; packets > 0; packets--) {
		event.bytes = div_s64(bytes, packets);
		bytes -= event.bytes;
		queue->packets--;
		queue->bytes -= event.bytes;
		qtap_event_emit(tap, &event, QTAP_OP_DROP, *queue);
	}
}

/*
 * Emits drop events for packets that this operation freed silently. @queue:
 * length before; @dropped: total number of drops.
 */
void qtap_events_silent_drops(struct qtap *tap, struct sk_buff *returned,
				 struct qtap_length dropped, struct qtap_length *queue)
{
	struct qtap_packet *packet, *next;
	s64 bytes = dropped.bytes;
	s32 packets = dropped.packets;

	list_for_each_entry_safe(packet, next, &tap->packets.freed, list) {
		if (packets <= 0 || packet->skb == returned)
			continue;
		packets--;
		bytes -= packet->event.bytes;
		qtap_event_drop(tap, packet, queue);
	}
	qtap_event_drop_unknown(tap, packets, bytes, queue);
}

/*
 * Emits drop events for packets on a list to be freed later, from @first up to
 * but without @end.
 */
static void qtap_events_to_free(struct qtap *tap, struct sk_buff *first,
			       const struct sk_buff *end, struct qtap_length *dropped,
			       struct qtap_length *queue)
{
	struct qtap_packet *packet;
	struct sk_buff *skb;

	for (skb = first; skb != end; skb = skb->next) {
		packet = qtap_packet_find(skb);
		if (!packet || !dropped->packets)
			continue;
		dropped->packets--;
		dropped->bytes -= packet->event.bytes;
		qtap_event_drop(tap, packet, queue);
	}
}

void qtap_events_dequeue(struct qtap *tap, struct sk_buff *skb, u8 signal,
				const struct sk_buff *drops_before,
				struct qtap_length dropped, struct qtap_length before)
{
	struct qtap_event unknown = { .packet = QTAP_PACKET_UNKNOWN };
	struct qtap_length queue = before;
	struct qtap_packet *packet;
	struct qtap_event *event;

	qtap_events_to_free(tap, qtap_dequeue_drops(tap->sch), drops_before, &dropped, &queue);
	qtap_events_silent_drops(tap, skb, dropped, &queue);
	if (!skb)
		return;
	packet = qtap_packet_find(skb);
	event = packet ? &packet->event : &unknown;
	if (!packet) {
		event->bytes = qdisc_pkt_len(skb);
		qtap_describe(skb, event);
	}
	event->ecn = qtap_ecn(skb);
	tap->last_packet = event->packet;
	if (signal)
		qtap_event_emit(tap, event, signal, queue);
	queue = (struct qtap_length) { tap->occupancy.packets, tap->occupancy.bytes };
	qtap_event_emit(tap, event, QTAP_OP_DEQUEUE, queue);
	if (packet)
		qtap_packet_release(packet);
}

/*
 * @entered: the offered packet, or NULL if there was no memory to track it. It
 * may be one of the dropped packets: on the list to be freed by the caller, or
 * already freed.
 */
void qtap_events_enqueue(struct qtap *tap, struct sk_buff *skb,
				struct qtap_packet *entered, struct sk_buff *to_free,
				const struct sk_buff *to_free_before,
				struct qtap_length dropped, struct qtap_length before)
{
	struct qtap_length queue = before;
	const struct sk_buff *free;
	bool refused = false;

	for (free = to_free; free != to_free_before; free = free->next)
		refused |= free == skb;
	if (entered && entered->freed && dropped.packets)
		refused = true;
	queue.packets++;
	if (entered) {
		queue.bytes += entered->event.bytes;
		if (!refused) {
			entered->event.ecn = qtap_ecn(skb);
			qtap_event_emit(tap, &entered->event, QTAP_OP_ENQUEUE, queue);
		}
	}
	qtap_events_to_free(tap, to_free, to_free_before, &dropped, &queue);
	qtap_events_silent_drops(tap, NULL, dropped, &queue);
}

/* @skb is about to be enqueued. Returns NULL if there is no memory to track it. */
struct qtap_packet *qtap_events_offer(struct qtap *tap, struct sk_buff *skb)
{
	struct qtap_packet *packet;

	qtap_packets_begin(&tap->packets);
	packet = qtap_packet_add(&tap->packets, skb);
	if (packet) {
		packet->event.bytes = qdisc_pkt_len(skb);
		qtap_describe(skb, &packet->event);
	}
	return packet;
}

/* All queued packets are dropped. @queue: length before. */
void qtap_events_reset(struct qtap *tap, struct qtap_length queue)
{
	struct qtap_packet *packet, *next;

	qtap_packets_begin(&tap->packets);
	list_for_each_entry_safe(packet, next, &tap->packets.queued, list)
		qtap_event_drop(tap, packet, &queue);
}

void qtap_event_egress(const struct qtap *tap, struct sk_buff *skb, u8 op)
{
	struct qtap_event event = {
		.packet = tap->last_packet,
		.bytes = qdisc_pkt_len(skb),
	};

	if (!qtap_records_events(tap))
		return;
	qtap_describe(skb, &event);
	qtap_event_emit(tap, &event, op, qtap_tracked_length(tap));
}
