// SPDX-License-Identifier: GPL-2.0-only
/*
 * qtap: records exact occupancy and packet counts of a device's root qdisc of
 * any kind, and on request sojourn times or every packet. It takes no virtual
 * time.
 *
 * The qdisc's enqueue and dequeue pointers are replaced, and its ops by a copy
 * inside struct qtap: the tap is found from the qdisc with container_of(), and
 * intercepts reset, change and destroy. If the qdisc is replaced, the tap hooks
 * its successor. Packets that the qdisc drops without a call (an AQM at
 * dequeue) are detected as the difference between the queue's length before and
 * after the call.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>
#include <net/genetlink.h>
#include <net/net_namespace.h>
#include <net/sch_generic.h>
#if IS_ENABLED(CONFIG_UML_TIME_TRAVEL_SUPPORT)
#include <linux/time-internal.h>
#endif

#include <qbed/egress.h>
#include <qbed/qtap.h>
#include <qbed/tap_skb_cb.h>

#include "qtap_headers.h"
#include "qtap_occupancy.h"
#include "qtap_packets.h"
#include "qtap_sojourn.h"
#include "qtap_stream.h"

#define QTAP_DEFAULT_BIN_BYTES 1514
#define QTAP_COOKIE 0x71746170u

struct qtap_params {
	u32 id;
	u32 flags;
	u64 start_ns;		/* origin of the records' times */
};

/* Since ATTACH: offered = sent + dropped + queue. */
struct qtap_totals {
	u64 offered_packets;
	u64 offered_bytes;
	u64 sent_packets;
	u64 sent_bytes;
	u64 dropped_packets;
	u64 dropped_bytes;
	u64 marked_packets;
};

struct qtap {
	/* the hooked qdisc */
	struct Qdisc *sch;	/* NULL: none */
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);

	spinlock_t lock;	/* the root lock does not cover lockless qdiscs */
	int owner;		/* CPU inside the qdisc: netem enqueues into itself */
	u64 now_ns;		/* of the operation */
	struct qtap_params params;
	struct qtap_occupancy occupancy;
	struct qtap_totals totals;
	struct qtap_sojourn *sojourn;	/* NULL: not requested */
	struct qtap_packets packets;

	struct qbed_link *link;		/* NULL: the device is not a qlink */
	struct qbed_observer observer;	/* of the link's egress hook */
	u64 last_packet;		/* number of the last dequeued packet */

	const struct Qdisc_ops *original_ops;
	struct Qdisc_ops ops;	/* the copy in use; container_of() of it is the tap */
	bool bypass;		/* the qdisc's original TCQ_F_CAN_BYPASS */
	struct net_device *dev;	/* NULL: unregistered */
	netdevice_tracker dev_tracker;
	struct list_head list;
};

static LIST_HEAD(qtap_list);	/* under RTNL */

static u32 qtap_cookie(const struct qtap *tap)
{
	return (QTAP_COOKIE ^ tap->params.id) & (BIT(TAP_CB_COOKIE_BITS) - 1);
}

static void qtap_cb_write(const struct qtap *tap, struct sk_buff *skb)
{
	*tap_skb_cb(skb) = (struct tap_skb_cb) {
		.enqueue_ns = tap->now_ns,
		.tos = qtap_tos(skb),
		.cookie = qtap_cookie(tap),
	};
}

static bool qtap_cb_is_valid(const struct qtap *tap, struct sk_buff *skb)
{
	return tap_skb_cb(skb)->cookie == qtap_cookie(tap);
}

static bool qtap_is_marked(const struct qtap *tap, struct sk_buff *skb)
{
	return qtap_cb_is_valid(tap, skb) &&
	       (tap_skb_cb(skb)->tos & INET_ECN_MASK) != INET_ECN_CE &&
	       qtap_ecn(skb) == INET_ECN_CE;
}

/*
 * Signal that the qdisc sent with a tracked packet: QTAP_OP_MARK,
 * QTAP_OP_SIGNAL or 0. If the link has an egress hook (a P4 switch), the
 * program rewrites the packet behind the queue and qtap_egress_sent() detects
 * its marks.
 */
static u8 qtap_signal(const struct qtap *tap, struct sk_buff *skb)
{
	if (!qtap_cb_is_valid(tap, skb))
		return 0;
	if (likely(!tap->link || !tap->link->egress) && qtap_is_marked(tap, skb))
		return QTAP_OP_MARK;
	return tap_skb_cb(skb)->signalled ? QTAP_OP_SIGNAL : 0;
}

/* The clock */

static u64 qtap_clock_offset_ns;	/* from virtual time to CLOCK_MONOTONIC */

static u64 qtap_now(void)
{
#if IS_ENABLED(CONFIG_UML_TIME_TRAVEL_SUPPORT)
	if (likely(time_travel_mode == TT_MODE_INFCPU))
		return time_travel_now() + qtap_clock_offset_ns;
#endif
	return ktime_get_ns();
}

static void qtap_clock_set(void)
{
#if IS_ENABLED(CONFIG_UML_TIME_TRAVEL_SUPPORT)
	/* with bottom halves disabled, reading the clock does not advance it */
	local_bh_disable();
	qtap_clock_offset_ns = ktime_get_ns() - time_travel_now();
	local_bh_enable();
#endif
}

/* Records */

static struct qtap_record qtap_record(const struct qtap *tap, u16 type, size_t length,
				      u64 time_ns)
{
	return (struct qtap_record) {
		.type = type,
		.length = length,
		.id = tap->params.id,
		.time_ns = time_ns - tap->params.start_ns,
	};
}

static u64 *qtap_histogram_resize(u64 *histogram, u32 old_bins, u32 new_bins)
{
	u64 *grown = kcalloc(new_bins, sizeof(u64), GFP_ATOMIC | __GFP_NOWARN);

	if (!grown)
		return NULL;
	if (old_bins)
		memcpy(grown, histogram, old_bins * sizeof(u64));
	kfree(histogram);
	return grown;
}

static void qtap_sojourn_sample_emit(const struct qtap *tap, u64 end_ns)
{
	u32 i;

	for (i = 0; i < tap->sojourn->classes; i++) {
		struct qtap_sojourn_class *class = &tap->sojourn->class[i];
		struct qtap_sojourn_sample sample;

		if (!class->open.packets)
			continue;
		sample = (struct qtap_sojourn_sample) {
			.record = qtap_record(tap, QTAP_RECORD_SOJOURN_SAMPLE, sizeof(sample), end_ns),
			.interval_ns = end_ns - tap->occupancy.open.begin_ns,
			.class = class->tos,
			.packets = class->open.packets,
			.sum_ns = class->open.sum_ns,
			.max_ns = class->open.max_ns,
			.p50_ns = qtap_sojourn_quantile_ns(class, 50),
			.p99_ns = qtap_sojourn_quantile_ns(class, 99),
		};
		BUILD_BUG_ON(sizeof(sample) != 64);
		qtap_stream_write(&qtap_stream, &sample, sizeof(sample), NULL, 0);
		qtap_sojourn_open_interval(class);
	}
}

static void qtap_sample_emit(struct qtap_occupancy *occupancy, u64 end_ns, u32 steady)
{
	const struct qtap *tap = container_of(occupancy, struct qtap, occupancy);
	const struct qtap_integral *open = &occupancy->open;
	struct qtap_sample sample = {
		.record = qtap_record(tap, QTAP_RECORD_SAMPLE, sizeof(sample), end_ns),
		.interval_ns = end_ns - open->begin_ns,
		.byte_ns = open->byte_ns,
		.packet_ns = open->packet_ns,
		.dequeued_bytes = occupancy->counts.dequeued_bytes,
		.min_bytes = open->min_bytes,
		.max_bytes = open->max_bytes,
		.min_packets = open->min_packets,
		.max_packets = open->max_packets,
		.enqueued = occupancy->counts.enqueued,
		.dequeued = occupancy->counts.dequeued,
		.dropped = occupancy->counts.dropped,
		.marked = occupancy->counts.marked,
		.steady = steady,
		.steady_bytes = steady ? occupancy->bytes : 0,
		.steady_packets = steady ? occupancy->packets : 0,
	};

	BUILD_BUG_ON(sizeof(sample) != 96);
	if (unlikely(tap->sojourn))
		qtap_sojourn_sample_emit(tap, end_ns);
	qtap_stream_write(&qtap_stream, &sample, sizeof(sample), NULL, 0);
}

/* @max: the integral that provides the maxima. */
static void qtap_summary_emit(const struct qtap *tap, u16 type,
			      const struct qtap_integral *max)
{
	const struct qtap_occupancy *occupancy = &tap->occupancy;
	const struct qtap_totals *totals = &tap->totals;
	struct qtap_summary summary = {
		.record = qtap_record(tap, type, sizeof(summary), occupancy->last_ns),
		.duration_ns = qtap_occupancy_duration_ns(occupancy),
		.byte_ns = occupancy->total.byte_ns,
		.packet_ns = occupancy->total.packet_ns,
		.max_bytes = max->max_bytes,
		.max_packets = max->max_packets,
		.offered_packets = totals->offered_packets,
		.offered_bytes = totals->offered_bytes,
		.sent_packets = totals->sent_packets,
		.sent_bytes = totals->sent_bytes,
		.dropped_packets = totals->dropped_packets,
		.dropped_bytes = totals->dropped_bytes,
		.marked_packets = totals->marked_packets,
		.queue_packets = occupancy->packets,
		.queue_bytes = occupancy->bytes,
		.start_queue_packets = occupancy->start_packets,
		.start_queue_bytes = occupancy->start_bytes,
	};

	BUILD_BUG_ON(sizeof(summary) != 144);
	qtap_stream_write(&qtap_stream, &summary, sizeof(summary), NULL, 0);
}

static void qtap_histogram_emit(const struct qtap *tap, u16 type)
{
	const struct qtap_occupancy *occupancy = &tap->occupancy;
	size_t bytes = occupancy->bins_used * sizeof(u64);
	struct qtap_histogram histogram = {
		.record = qtap_record(tap, type, sizeof(histogram) + bytes, occupancy->last_ns),
		.bin_bytes = occupancy->params.bin_bytes,
		.bins = occupancy->bins_used,
	};

	BUILD_BUG_ON(sizeof(histogram) + QTAP_MAX_BINS * sizeof(u64) > U16_MAX);
	qtap_stream_write(&qtap_stream, &histogram, sizeof(histogram),
			  occupancy->histogram, bytes);
}

static void qtap_sojourn_emit(const struct qtap *tap, u16 type)
{
	bool bound = type == QTAP_RECORD_BOUND_SOJOURN;
	u32 i;

	if (likely(!tap->sojourn))
		return;
	for (i = 0; i < tap->sojourn->classes; i++) {
		struct qtap_sojourn_class *class = &tap->sojourn->class[i];
		const struct qtap_sojourn_bins *bins = &class->histogram;
		size_t bytes = (bins->end - bins->low) * sizeof(u64);
		struct qtap_sojourn_histogram histogram = {
			.record = qtap_record(tap, type, sizeof(histogram) + bytes,
					      tap->occupancy.last_ns),
			.class = class->tos,
			.first = bins->low,
			.packets = class->total.packets,
			.sum_ns = class->total.sum_ns,
			.max_ns = bound ? class->bound_max_ns : class->total.max_ns,
			.bins = bins->end - bins->low,
		};

		BUILD_BUG_ON(sizeof(histogram) != 56);
		BUILD_BUG_ON(sizeof(histogram) + QTAP_SOJOURN_BINS * sizeof(u64) > U16_MAX);
		qtap_stream_write(&qtap_stream, &histogram, sizeof(histogram),
				  bins->packets + bins->low, bytes);
		if (bound)
			class->bound_max_ns = 0;
	}
}

static void qtap_bound_emit(struct qtap_occupancy *occupancy)
{
	const struct qtap *tap = container_of(occupancy, struct qtap, occupancy);

	qtap_summary_emit(tap, QTAP_RECORD_BOUND, &occupancy->since_bound);
	qtap_histogram_emit(tap, QTAP_RECORD_BOUND_HISTOGRAM);
	qtap_sojourn_emit(tap, QTAP_RECORD_BOUND_SOJOURN);
}

/* Events */

/* A queue length in the course of an operation. */
struct qtap_length {
	u32 packets;
	u32 bytes;
};

static bool qtap_records_events(const struct qtap *tap)
{
	return unlikely(tap->params.flags & QTAP_FLAG_EVENTS);
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
	qtap_stream_write(&qtap_stream, event, sizeof(*event), NULL, 0);
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
static void qtap_events_silent_drops(struct qtap *tap, struct sk_buff *returned,
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

/* Newer kernels collect packets dropped at dequeue here, to free them without the lock. */
static struct sk_buff *qtap_dequeue_drops(const struct Qdisc *sch)
{
#ifdef TCQ_F_DEQUEUE_DROPS
	if (sch->flags & TCQ_F_DEQUEUE_DROPS)
		return sch->to_free;
#endif
	return NULL;
}

static void qtap_events_dequeue(struct qtap *tap, struct sk_buff *skb, u8 signal,
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
static void qtap_events_enqueue(struct qtap *tap, struct sk_buff *skb,
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

/* Accounting */

static struct qtap_length qtap_tracked_length(const struct qtap *tap)
{
	return (struct qtap_length) { tap->occupancy.packets, tap->occupancy.bytes };
}

/*
 * Length of the qdisc, without segments that the core requeued (gso_skb): these
 * were dequeued before and are part of the frame in transmission.
 */
static struct qtap_length qtap_qdisc_length(struct Qdisc *sch)
{
	struct qtap_length length = { sch->q.qlen, sch->qstats.backlog };
	struct sk_buff *skb;

	if (unlikely(!skb_queue_empty(&sch->gso_skb))) {
		skb_queue_walk(&sch->gso_skb, skb) {
			length.packets--;
			length.bytes -= qdisc_pkt_len(skb);
		}
	}
	return length;
}

static void qtap_set_length(struct qtap *tap, struct qtap_length length)
{
	tap->occupancy.packets = length.packets;
	tap->occupancy.bytes = length.bytes;
}

/*
 * Updates the counters: @in was enqueued, @out dequeued, @after is the new
 * length. Missing packets were dropped; surplus packets were created inside the
 * qdisc (duplicates, segments). Returns the drops.
 */
static struct qtap_length qtap_account(struct qtap *tap, struct qtap_length in,
				      struct qtap_length out, struct qtap_length after)
{
	struct qtap_length before = qtap_tracked_length(tap);
	s64 packets = (s64)before.packets + in.packets - out.packets - after.packets;
	s64 bytes = (s64)before.bytes + in.bytes - out.bytes - after.bytes;
	struct qtap_totals *totals = &tap->totals;
	struct qtap_length dropped = {};

	totals->offered_packets += in.packets;
	totals->offered_bytes += in.bytes;
	totals->sent_packets += out.packets;
	totals->sent_bytes += out.bytes;
	if (unlikely(packets || bytes)) {
		if (packets > 0)
			dropped.packets = packets;
		else
			totals->offered_packets -= packets;
		if (bytes > 0)
			dropped.bytes = bytes;
		else
			totals->offered_bytes -= bytes;
		totals->dropped_packets += dropped.packets;
		totals->dropped_bytes += dropped.bytes;
		tap->occupancy.counts.dropped += dropped.packets;
	}
	qtap_set_length(tap, after);
	return dropped;
}

/* Returns true after the end of the observation, when packets are no longer tracked. */
static bool qtap_closed(struct qtap *tap)
{
	if (likely(tap->occupancy.phase != QTAP_CLOSED))
		return false;
	if (!list_empty(&tap->packets.queued))
		qtap_packets_release(&tap->packets);
	return true;
}

/* Replacements of the qdisc's operations */

static struct qtap *qtap_from_qdisc(const struct Qdisc *sch)
{
	return container_of(sch->ops, struct qtap, ops);
}

static void qtap_enter(struct qtap *tap)
{
	spin_lock(&tap->lock);
	tap->owner = raw_smp_processor_id();
	tap->now_ns = qtap_now();
	qtap_occupancy_advance(&tap->occupancy, tap->now_ns);
}

static void qtap_leave(struct qtap *tap)
{
	tap->owner = -1;
	spin_unlock(&tap->lock);
}

static int qtap_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct qtap *tap = qtap_from_qdisc(sch);
	struct qtap_length in, dropped, before, after;
	const struct sk_buff *to_free_before = *to_free;
	struct qtap_packet *packet = NULL;
	int result;

	/* Recursive call from the qdisc's own enqueue: counted there as a surplus. */
	if (unlikely(READ_ONCE(tap->owner) == raw_smp_processor_id()))
		return tap->enqueue(skb, sch, to_free);

	qtap_enter(tap);
	if (unlikely(qtap_closed(tap))) {
		result = tap->enqueue(skb, sch, to_free);
		goto out;
	}
	in = (struct qtap_length) { 1, qdisc_pkt_len(skb) };
	before = qtap_tracked_length(tap);
	qtap_cb_write(tap, skb);
	if (qtap_records_events(tap)) {
		qtap_packets_begin(&tap->packets);
		packet = qtap_packet_add(&tap->packets, skb);
		if (packet) {
			packet->event.bytes = in.bytes;
			qtap_describe(skb, &packet->event);
		}
	}

	result = tap->enqueue(skb, sch, to_free);

	if (unlikely(qdisc_is_percpu_stats(sch))) {
		after = before;
		if (result == NET_XMIT_SUCCESS) {
			after.packets += in.packets;
			after.bytes += in.bytes;
		}
	} else {
		after = qtap_qdisc_length(sch);
	}
	tap->occupancy.counts.enqueued += likely(after.packets > before.packets ||
						 result == NET_XMIT_SUCCESS);
	dropped = qtap_account(tap, in, (struct qtap_length) {}, after);
	if (qtap_records_events(tap))
		qtap_events_enqueue(tap, skb, packet, *to_free, to_free_before, dropped, before);
out:
	qtap_leave(tap);
	return result;
}

static void qtap_sojourn_record(struct qtap *tap, struct sk_buff *skb)
{
	const struct tap_skb_cb *note = tap_skb_cb(skb);
	u64 ns = (tap->now_ns - note->enqueue_ns) & (BIT_ULL(TAP_CB_NS_BITS) - 1);

	BUILD_BUG_ON(TAP_CB_NS_BITS > QTAP_SOJOURN_NS_BITS);
	if (tap->occupancy.phase == QTAP_OPEN && likely(qtap_cb_is_valid(tap, skb)))
		qtap_sojourn_add(tap->sojourn, note->tos, ns);
}

static struct sk_buff *qtap_dequeue(struct Qdisc *sch)
{
	struct qtap *tap = qtap_from_qdisc(sch);
	struct qtap_length out = {}, dropped, before, after;
	const struct sk_buff *drops_before;
	struct sk_buff *skb;
	u8 signal = 0;

	if (unlikely(READ_ONCE(tap->owner) == raw_smp_processor_id()))
		return tap->dequeue(sch);

	qtap_enter(tap);
	if (unlikely(qtap_closed(tap))) {
		skb = tap->dequeue(sch);
		goto out;
	}
	if (qtap_records_events(tap))
		qtap_packets_begin(&tap->packets);
	before = qtap_tracked_length(tap);
	drops_before = qtap_dequeue_drops(sch);

	skb = tap->dequeue(sch);

	if (skb) {
		out = (struct qtap_length) { 1, qdisc_pkt_len(skb) };
		signal = qtap_signal(tap, skb);
		tap->occupancy.counts.dequeued++;
		tap->occupancy.counts.dequeued_bytes += out.bytes;
		tap->occupancy.counts.marked += signal == QTAP_OP_MARK;
		tap->totals.marked_packets += signal == QTAP_OP_MARK;
		if (unlikely(tap->sojourn))
			qtap_sojourn_record(tap, skb);
	}
	if (unlikely(qdisc_is_percpu_stats(sch)))
		after = (struct qtap_length) {
			before.packets - min(out.packets, before.packets),
			before.bytes - min(out.bytes, before.bytes),
		};
	else
		after = qtap_qdisc_length(sch);
	dropped = qtap_account(tap, (struct qtap_length) {}, out, after);
	if (qtap_records_events(tap))
		qtap_events_dequeue(tap, skb, signal, drops_before, dropped, before);
out:
	qtap_leave(tap);
	return skb;
}

static void qtap_prefetch(struct qbed_observer *observer, bool second)
{
	const struct qtap *tap = container_of(observer, struct qtap, observer);
	const struct qtap_occupancy *occupancy = &tap->occupancy;
	const char *line = (const char *)tap;

	if (!second) {
		for (; line < (const char *)&tap->packets; line += L1_CACHE_BYTES)
			prefetchw(line);
		prefetchw(&tap->ops);
	} else if (occupancy->bins) {
		prefetchw(&occupancy->histogram[occupancy->bytes / occupancy->params.bin_bytes]);
	}
}

/* Egress hook of a P4 switch, at the instant at which the packet was dequeued */

static void qtap_event_egress(const struct qtap *tap, struct sk_buff *skb, u8 op)
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

/* The port sends a packet that its program may have marked. */
static void qtap_egress_sent(struct qbed_observer *observer, struct sk_buff *skb)
{
	struct qtap *tap = container_of(observer, struct qtap, observer);

	if (likely(!qtap_is_marked(tap, skb)))
		return;
	qtap_enter(tap);
	if (likely(!qtap_closed(tap))) {
		tap->occupancy.counts.marked++;
		tap->totals.marked_packets++;
		qtap_event_egress(tap, skb, QTAP_OP_MARK);
	}
	qtap_leave(tap);
}

/*
 * The program drops a dequeued packet. It is counted as dropped, not as sent,
 * as for a qdisc that drops at dequeue.
 */
static void qtap_egress_dropped(struct qbed_observer *observer, struct sk_buff *skb)
{
	struct qtap *tap = container_of(observer, struct qtap, observer);

	if (unlikely(!qtap_cb_is_valid(tap, skb)))
		return;
	qtap_enter(tap);
	if (likely(!qtap_closed(tap))) {
		tap->totals.sent_packets--;
		tap->totals.sent_bytes -= qdisc_pkt_len(skb);
		tap->totals.dropped_packets++;
		tap->totals.dropped_bytes += qdisc_pkt_len(skb);
		/* It was dequeued at this instant, hence in this interval. */
		if (tap->occupancy.counts.dequeued) {
			tap->occupancy.counts.dequeued--;
			tap->occupancy.counts.dequeued_bytes -= qdisc_pkt_len(skb);
		}
		tap->occupancy.counts.dropped++;
		qtap_event_egress(tap, skb, QTAP_OP_DROP);
	}
	qtap_leave(tap);
}

/* Reset or destroy: all queued packets are dropped. */
static void qtap_reset(struct Qdisc *sch)
{
	struct qtap *tap = qtap_from_qdisc(sch);
	struct qtap_packet *packet, *next;
	struct qtap_length queue;

	local_bh_disable();
	qtap_enter(tap);
	if (!qtap_closed(tap)) {
		queue = qtap_tracked_length(tap);
		qtap_account(tap, (struct qtap_length) {}, (struct qtap_length) {},
			    (struct qtap_length) {});
		qtap_packets_begin(&tap->packets);
		list_for_each_entry_safe(packet, next, &tap->packets.queued, list)
			qtap_event_drop(tap, packet, &queue);
	}
	qtap_leave(tap);
	local_bh_enable();
	if (tap->original_ops->reset)
		tap->original_ops->reset(sch);
}

static int qtap_change(struct Qdisc *sch, struct nlattr *options,
		       struct netlink_ext_ack *extack)
{
	struct qtap *tap = qtap_from_qdisc(sch);
	struct qtap_length queue, dropped;
	int err;

	err = tap->original_ops->change(sch, options, extack);

	/* A lower limit drops packets at once, and some qdiscs set their flags again. */
	local_bh_disable();
	qtap_enter(tap);
	if (sch->flags & TCQ_F_CAN_BYPASS) {
		tap->bypass = true;
		sch->flags &= ~TCQ_F_CAN_BYPASS;
	}
	if (!qtap_closed(tap) && !qdisc_is_percpu_stats(sch)) {
		queue = qtap_tracked_length(tap);
		dropped = qtap_account(tap, (struct qtap_length) {}, (struct qtap_length) {},
				      qtap_qdisc_length(sch));
		if (qtap_records_events(tap))
			qtap_events_silent_drops(tap, NULL, dropped, &queue);
	}
	qtap_leave(tap);
	local_bh_enable();
	return err;
}

/* Hooks */

static void qtap_unhook(struct qtap *tap)
{
	struct Qdisc *sch = tap->sch;

	if (!sch)
		return;
	spin_lock_bh(qdisc_lock(sch));
	spin_lock(&tap->lock);
	sch->enqueue = tap->enqueue;
	sch->dequeue = tap->dequeue;
	sch->ops = tap->original_ops;
	if (tap->bypass)
		sch->flags |= TCQ_F_CAN_BYPASS;
	tap->sch = NULL;
	if (tap->link)
		tap->link->observer = NULL;
	qtap_packets_release(&tap->packets);
	spin_unlock(&tap->lock);
	spin_unlock_bh(qdisc_lock(sch));
}

static void qtap_rehook(struct work_struct *work);
static DECLARE_WORK(qtap_rehook_work, qtap_rehook);

static void qtap_destroy(struct Qdisc *sch)
{
	struct qtap *tap = qtap_from_qdisc(sch);

	/* A root qdisc is destroyed under RTNL, after its reset. */
	qtap_unhook(tap);
	schedule_work(&qtap_rehook_work);
	if (tap->original_ops->destroy)
		tap->original_ops->destroy(sch);
}

static int qtap_hook(struct qtap *tap)
{
	struct Qdisc *sch = rtnl_dereference(tap->dev->qdisc);
	struct qtap_length found;

	if (!sch || sch->flags & TCQ_F_BUILTIN)
		return -ENODEV;		/* the device is down: hooked when it comes up */
	if (!sch->enqueue || sch->flags & TCQ_F_MQROOT || tap->dev->num_tx_queues != 1)
		return -EOPNOTSUPP;
	if (sch->enqueue == qtap_enqueue)
		return -EBUSY;

	spin_lock_bh(qdisc_lock(sch));
	spin_lock(&tap->lock);
	qtap_occupancy_advance(&tap->occupancy, qtap_now());
	if (!qtap_closed(tap)) {
		found = qdisc_is_percpu_stats(sch) ? (struct qtap_length) {} : qtap_qdisc_length(sch);
		/* count packets already queued as offered */
		qtap_account(tap, found, (struct qtap_length) {}, found);
	}
	tap->original_ops = sch->ops;
	tap->ops = *sch->ops;
	tap->ops.reset = qtap_reset;
	tap->ops.destroy = qtap_destroy;
	if (tap->ops.change)
		tap->ops.change = qtap_change;
	tap->enqueue = sch->enqueue;
	tap->dequeue = sch->dequeue;
	tap->bypass = sch->flags & TCQ_F_CAN_BYPASS;
	sch->flags &= ~TCQ_F_CAN_BYPASS;
	sch->ops = &tap->ops;
	sch->enqueue = qtap_enqueue;
	sch->dequeue = qtap_dequeue;
	tap->sch = sch;
	tap->link = qbed_link(tap->dev);
	if (tap->link)
		tap->link->observer = &tap->observer;
	spin_unlock(&tap->lock);
	spin_unlock_bh(qdisc_lock(sch));
	return 0;
}

/* Hooks the qdisc that replaced a tapped one. */
static void qtap_rehook(struct work_struct *work)
{
	struct qtap *tap;

	rtnl_lock();
	list_for_each_entry(tap, &qtap_list, list) {
		if (tap->dev && !tap->sch)
			qtap_hook(tap);
	}
	rtnl_unlock();
}

static int qtap_netdevice_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct net_device *dev = netdev_notifier_info_to_dev(data);
	struct qtap *tap;

	if (event != NETDEV_UP && event != NETDEV_UNREGISTER)
		return NOTIFY_DONE;
	list_for_each_entry(tap, &qtap_list, list) {
		if (tap->dev != dev)
			continue;
		if (event == NETDEV_UP) {
			if (!tap->sch)
				qtap_hook(tap);
			continue;
		}
		qtap_unhook(tap);
		tap->dev = NULL;
		netdev_put(dev, &tap->dev_tracker);
	}
	return NOTIFY_DONE;
}

static struct notifier_block qtap_netdevice_notifier = {
	.notifier_call = qtap_netdevice_event,
};

/* Control */

static const struct nla_policy qtap_policy[QTAP_ATTR_MAX + 1] = {
	[QTAP_ATTR_IFINDEX] = NLA_POLICY_MIN(NLA_U32, 1),
	[QTAP_ATTR_ID] = { .type = NLA_U32 },
	[QTAP_ATTR_FLAGS] = NLA_POLICY_MASK(NLA_U32, QTAP_FLAG_EVENTS | QTAP_FLAG_SOJOURN),
	[QTAP_ATTR_INTERVAL] = { .type = NLA_U64 },
	[QTAP_ATTR_START] = { .type = NLA_U64 },
	[QTAP_ATTR_BIN_BYTES] = NLA_POLICY_MIN(NLA_U32, 1),
	[QTAP_ATTR_END] = { .type = NLA_U64 },
	[QTAP_ATTR_BOUNDS] = { .type = NLA_BINARY, .len = QTAP_MAX_BOUNDS * sizeof(u64) },
};

static u64 qtap_get_u64(const struct genl_info *info, int attribute, u64 fallback)
{
	return info->attrs[attribute] ? nla_get_u64(info->attrs[attribute]) : fallback;
}

static u32 qtap_get_u32(const struct genl_info *info, int attribute, u32 fallback)
{
	return info->attrs[attribute] ? nla_get_u32(info->attrs[attribute]) : fallback;
}

/* Parses the bounds. Those in the past are skipped. */
static int qtap_init_bounds(struct qtap_occupancy_params *params, const struct genl_info *info)
{
	const struct nlattr *attr = info->attrs[QTAP_ATTR_BOUNDS];
	u32 i, bounds = attr ? nla_len(attr) / sizeof(u64) : 0;
	u64 *bounds_ns;

	if (!bounds)
		return 0;
	bounds_ns = nla_memdup(attr, GFP_KERNEL);
	if (!bounds_ns)
		return -ENOMEM;
	for (i = 1; i < bounds; i++) {
		if (bounds_ns[i] <= bounds_ns[i - 1]) {
			kfree(bounds_ns);
			NL_SET_ERR_MSG_ATTR(info->extack, attr, "the bounds are not ascending");
			return -EINVAL;
		}
	}
	for (i = 0; i < bounds && bounds_ns[i] < params->begin_ns; i++)
		;
	memmove(bounds_ns, bounds_ns + i, (bounds - i) * sizeof(u64));
	params->bounds = bounds - i;
	params->bounds_ns = bounds_ns;
	return 0;
}

static int qtap_init(struct qtap *tap, const struct genl_info *info)
{
	u64 now_ns = qtap_now();
	u64 end_ns = qtap_get_u64(info, QTAP_ATTR_END, 0);
	struct qtap_occupancy_params params = {
		.end_ns = end_ns ? end_ns : U64_MAX,
		.interval_ns = qtap_get_u64(info, QTAP_ATTR_INTERVAL, 0),
		.bin_bytes = qtap_get_u32(info, QTAP_ATTR_BIN_BYTES, QTAP_DEFAULT_BIN_BYTES),
	};
	int err;

	tap->params = (struct qtap_params) {
		.id = nla_get_u32(info->attrs[QTAP_ATTR_ID]),
		.flags = qtap_get_u32(info, QTAP_ATTR_FLAGS, 0),
		.start_ns = qtap_get_u64(info, QTAP_ATTR_START, now_ns),
	};
	/* A start in the past shifts the origin of time; recording begins now. */
	params.begin_ns = max(tap->params.start_ns, now_ns);
	params.grid_ns = tap->params.start_ns;
	err = qtap_init_bounds(&params, info);
	if (err)
		return err;
	qtap_occupancy_init(&tap->occupancy, params, 0, 0);
	spin_lock_init(&tap->lock);
	tap->owner = -1;
	tap->observer.sent = qtap_egress_sent;
	tap->observer.dropped = qtap_egress_dropped;
	tap->observer.prefetch_dequeue = qtap_prefetch;
	INIT_LIST_HEAD(&tap->packets.queued);
	INIT_LIST_HEAD(&tap->packets.freed);
	if (tap->params.flags & QTAP_FLAG_SOJOURN) {
		tap->sojourn = kzalloc(sizeof(*tap->sojourn), GFP_KERNEL);
		if (!tap->sojourn)
			return -ENOMEM;
		tap->sojourn->sampled = params.interval_ns;
	}
	return 0;
}

static void qtap_sojourn_free(struct qtap_sojourn *sojourn)
{
	u32 i;

	for (i = 0; sojourn && i < sojourn->classes; i++) {
		kfree(sojourn->class[i].histogram.packets);
		kfree(sojourn->class[i].open_histogram.packets);
	}
	kfree(sojourn);
}

static void qtap_free(struct qtap *tap)
{
	qtap_sojourn_free(tap->sojourn);
	kfree(tap->occupancy.params.bounds_ns);
	kfree(tap->occupancy.histogram);
	kfree(tap);
}

static int qtap_attach(struct sk_buff *skb, struct genl_info *info)
{
	struct net_device *dev;
	struct qtap *tap;
	int err;

	if (GENL_REQ_ATTR_CHECK(info, QTAP_ATTR_IFINDEX) ||
	    GENL_REQ_ATTR_CHECK(info, QTAP_ATTR_ID))
		return -EINVAL;
	tap = kzalloc(sizeof(*tap), GFP_KERNEL);
	if (!tap)
		return -ENOMEM;

	rtnl_lock();
	qtap_clock_set();
	err = qtap_init(tap, info);
	if (err)
		goto fail;
	dev = __dev_get_by_index(genl_info_net(info),
				 nla_get_u32(info->attrs[QTAP_ATTR_IFINDEX]));
	if (!dev) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[QTAP_ATTR_IFINDEX],
				    "no such device");
		err = -ENODEV;
		goto fail;
	}
	tap->dev = dev;
	err = qtap_hook(tap);
	if (err == -EOPNOTSUPP)
		NL_SET_ERR_MSG(info->extack, "the device has no single root queue");
	else if (err == -EBUSY)
		NL_SET_ERR_MSG(info->extack, "the root qdisc is tapped already");
	if (err && err != -ENODEV)
		goto fail;
	netdev_hold(dev, &tap->dev_tracker, GFP_KERNEL);
	list_add_tail(&tap->list, &qtap_list);
	rtnl_unlock();
	return 0;

fail:
	rtnl_unlock();
	qtap_free(tap);
	return err;
}

static int qtap_flush(struct sk_buff *skb, struct genl_info *info)
{
	struct qtap *tap;

	rtnl_lock();
	list_for_each_entry(tap, &qtap_list, list) {
		spin_lock_bh(&tap->lock);
		qtap_occupancy_flush(&tap->occupancy, qtap_now());
		qtap_closed(tap);
		qtap_summary_emit(tap, QTAP_RECORD_SUMMARY, &tap->occupancy.total);
		qtap_histogram_emit(tap, QTAP_RECORD_HISTOGRAM);
		qtap_sojourn_emit(tap, QTAP_RECORD_SOJOURN);
		spin_unlock_bh(&tap->lock);
	}
	rtnl_unlock();
	qtap_stream_flush(&qtap_stream);
	return 0;
}

/* Emits completed intervals for readers that follow the stream. Open intervals stay open. */
static int qtap_push(struct sk_buff *skb, struct genl_info *info)
{
	struct qtap *tap;

	rtnl_lock();
	list_for_each_entry(tap, &qtap_list, list) {
		spin_lock_bh(&tap->lock);
		qtap_occupancy_advance(&tap->occupancy, qtap_now());
		qtap_closed(tap);
		spin_unlock_bh(&tap->lock);
	}
	rtnl_unlock();
	qtap_stream_flush(&qtap_stream);
	return 0;
}

static void qtap_detach_all(void)
{
	struct qtap *tap, *next;
	LIST_HEAD(detached);

	rtnl_lock();
	list_for_each_entry(tap, &qtap_list, list) {
		qtap_unhook(tap);
		if (tap->dev)
			netdev_put(tap->dev, &tap->dev_tracker);
	}
	list_splice_init(&qtap_list, &detached);
	rtnl_unlock();

	synchronize_net();	/* wait for concurrent calls of the hooks */
	list_for_each_entry_safe(tap, next, &detached, list)
		qtap_free(tap);
}

static int qtap_detach(struct sk_buff *skb, struct genl_info *info)
{
	qtap_detach_all();
	return 0;
}

static const struct genl_ops qtap_operations[] = {
	{ .cmd = QTAP_CMD_ATTACH, .flags = GENL_ADMIN_PERM, .doit = qtap_attach },
	{ .cmd = QTAP_CMD_FLUSH, .flags = GENL_ADMIN_PERM, .doit = qtap_flush },
	{ .cmd = QTAP_CMD_DETACH, .flags = GENL_ADMIN_PERM, .doit = qtap_detach },
	{ .cmd = QTAP_CMD_PUSH, .flags = GENL_ADMIN_PERM, .doit = qtap_push },
};

static struct genl_family qtap_family = {
	.name = QTAP_FAMILY,
	.version = QTAP_VERSION,
	.maxattr = QTAP_ATTR_MAX,
	.policy = qtap_policy,
	.netnsok = true,
	.module = THIS_MODULE,
	.ops = qtap_operations,
	.n_ops = ARRAY_SIZE(qtap_operations),
	.resv_start_op = QTAP_CMD_MAX + 1,
};

static int __init qtap_module_init(void)
{
	int err;

	err = qtap_packet_cache_init();
	if (err)
		goto packets;
	err = misc_register(&qtap_stream_device);
	if (err)
		goto packets;
	err = register_netdevice_notifier(&qtap_netdevice_notifier);
	if (err)
		goto misc;
	err = genl_register_family(&qtap_family);
	if (err)
		goto notifier;
	return 0;

notifier:
	unregister_netdevice_notifier(&qtap_netdevice_notifier);
misc:
	misc_deregister(&qtap_stream_device);
packets:
	qtap_packet_cache_exit();
	return err;
}

static void __exit qtap_module_exit(void)
{
	genl_unregister_family(&qtap_family);
	qtap_detach_all();
	cancel_work_sync(&qtap_rehook_work);
	unregister_netdevice_notifier(&qtap_netdevice_notifier);
	misc_deregister(&qtap_stream_device);
	qtap_stream_free(&qtap_stream);
	qtap_packet_cache_exit();
}

module_init(qtap_module_init);
module_exit(qtap_module_exit);

MODULE_DESCRIPTION("Exact occupancy of qdiscs, in virtual or wall-clock time");
MODULE_LICENSE("GPL");
