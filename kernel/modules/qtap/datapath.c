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
 *
 *   datapath.c   the qdisc's operations and the accounting, in one file so that
 *                the compiler inlines across them
 *   hooks.c      replacement of a qdisc's operations
 *   control.c    generic netlink requests
 *   events.c     tracking of packets, on request
 *   records.c    samples, summaries, histograms
 *   stream.c     the device from which records are read
 */
#include <linux/netdevice.h>
#include <linux/skbuff.h>

#include <qbed/prefetch.h>
#include <qbed/tap_skb_cb.h>

#include "qtap.h"
#include "qtap_headers.h"

#define QTAP_COOKIE 0x71746170u

/* Cache lines of a tap that each operation accesses. */
#define QTAP_LINES 4

u64 qtap_clock_offset_ns;

/* The control block of a queued packet */

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

/* Accounting */

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

/* Replacements of the qdisc's operations */

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

int qtap_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
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
	if (qtap_records_events(tap))
		packet = qtap_events_offer(tap, skb);

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

struct sk_buff *qtap_dequeue(struct Qdisc *sch)
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

	BUILD_BUG_ON(offsetofend(struct qtap, occupancy.params.bounds) > QTAP_LINES * QBED_LINE);
	if (!second) {
		qbed_prefetch_range(tap, QTAP_LINES * QBED_LINE);
		return;
	}
	if (occupancy->bins)
		qbed_prefetch(&occupancy->histogram[occupancy->bytes / occupancy->params.bin_bytes]);
	if (occupancy->params.interval_ns)
		qbed_prefetch(&occupancy->open);
	if (occupancy->params.bounds)
		qbed_prefetch(&occupancy->since_bound);
}

/* Egress hook of a P4 switch, at the instant at which the packet was dequeued. */

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

void qtap_observe(struct qbed_observer *observer)
{
	observer->sent = qtap_egress_sent;
	observer->dropped = qtap_egress_dropped;
	observer->prefetch_dequeue = qtap_prefetch;
}

/* Reset or destroy: all queued packets are dropped. */
void qtap_reset(struct Qdisc *sch)
{
	struct qtap *tap = qtap_from_qdisc(sch);
	struct qtap_length queue;

	local_bh_disable();
	qtap_enter(tap);
	if (!qtap_closed(tap)) {
		queue = qtap_tracked_length(tap);
		qtap_account(tap, (struct qtap_length) {}, (struct qtap_length) {},
			    (struct qtap_length) {});
		qtap_events_reset(tap, queue);
	}
	qtap_leave(tap);
	local_bh_enable();
	if (tap->original_ops->reset)
		tap->original_ops->reset(sch);
}

int qtap_change(struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *extack)
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

/* Integrates up to now. Returns false after the end of the observation. */
bool qtap_advance(struct qtap *tap)
{
	qtap_occupancy_advance(&tap->occupancy, qtap_now());
	return !qtap_closed(tap);
}

/* Integrates up to now and emits the open interval early. */
void qtap_close_interval(struct qtap *tap)
{
	qtap_occupancy_flush(&tap->occupancy, qtap_now());
	qtap_closed(tap);
}

/* Counts the packets that @sch holds when it is hooked as offered. */
void qtap_count_queued(struct qtap *tap, struct Qdisc *sch)
{
	struct qtap_length found = {};

	if (!qtap_advance(tap))
		return;
	if (!qdisc_is_percpu_stats(sch))
		found = qtap_qdisc_length(sch);
	qtap_account(tap, found, (struct qtap_length) {}, found);
}
