// SPDX-License-Identifier: GPL-2.0-only
/*
 * qlink: a point-to-point Ethernet link with an exact rate and delay, in the
 * virtual time of a User-Mode Linux kernel (time-travel=inf-cpu).
 *
 * Life of a frame:
 *   ndo_start_xmit    the transmitter takes one frame and stops its queue:
 *                     further frames are queued in the root qdisc
 *   serialization end bits / rate later: the frame is on the wire, its socket
 *                     is released, the next frame is taken from the qdisc
 *   delivery          the propagation delay later: the other end receives it
 *
 * The frame keeps its socket until serialization ends, as with a NIC whose tx
 * completion follows transmission: TCP small queues and the socket's send buffer
 * count frames queued in this host, and not frames on the wire.
 *
 * All links share one agenda of deadlines on one time-travel event. Frames on the
 * wire are sorted by arrival, so a transmitter has at most two deadlines there.
 * The event fires in hard interrupt context; the work is done in a tasklet,
 * which may call the stack. The tasklet advances the clock to the next deadline
 * if the machine would be idle until then. There is one CPU: disabling bottom
 * halves is sufficient locking.
 *
 * The path of a frame is in this file, so that the compiler inlines across it.
 * netdev.c holds the device's operations and options.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/random.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/time-internal.h>
#include <net/net_namespace.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>

#include <qbed/egress.h>
#include <qbed/prefetch.h>
#include <qbed/qlink.h>

#include "qlink_agenda.h"
#include "qlink_cut.h"
#include "qlink_end.h"
#include "qlink_fetch.h"
#include "qlink_route.h"

#if IS_ENABLED(CONFIG_SMP)
#error "qlink relies on the single CPU of time-travel mode"
#endif

/*
 * A frame on the wire and the one behind it, in skb->cb. The next frame's times
 * are stored here because its own cache lines are cold.
 */
struct qlink_flight {
	u64 next_arrival_ns;
	u64 next_sequence;
	u64 arrival_ns;
	u64 sequence;
};

struct qlink_clock {
	struct qlink_agenda agenda;
	void *memory;			/* of the agenda's heap */
	u64 next_sequence;
	struct time_travel_event event;
	u64 armed_ns;
	bool running;			/* the tasklet runs; it arms the event at its end */
	struct tasklet_struct tasklet;
	u32 ends;			/* devices with reserved space in the agenda */
};

static struct qlink_clock qlink_clock;

static unsigned long long late_ns;
module_param(late_ns, ullong, 0444);
MODULE_PARM_DESC(late_ns, "maximum delay of a deadline, in ns; not 0 means inexact");

static bool leap = true;
module_param(leap, bool, 0644);
MODULE_PARM_DESC(leap, "advance to the next deadline without idling if no other event is due before");

static unsigned long leaps;
module_param(leaps, ulong, 0444);
MODULE_PARM_DESC(leaps, "deadlines reached without idling");

static bool hints = true;
module_param(hints, bool, 0644);
MODULE_PARM_DESC(hints, "reuse the route of the last packet to the same address");

static unsigned long hinted;
module_param(hinted, ulong, 0444);
MODULE_PARM_DESC(hinted, "packets forwarded with a cached route");

static unsigned int warm_ends = 100;
module_param(warm_ends, uint, 0644);
MODULE_PARM_DESC(warm_ends, "number of link ends above which cache lines are prefetched");

static unsigned long fetches;
module_param(fetches, ulong, 0444);
MODULE_PARM_DESC(fetches, "deadlines with prefetching");

static struct qlink_flight *qlink_flight(struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct qlink_flight) > sizeof(skb->cb));
	return (struct qlink_flight *)skb->cb;
}

/* The clock */

static void qlink_clock_arm(struct qlink_clock *clock, u64 now_ns)
{
	const struct qlink_deadline *top = qlink_agenda_top(&clock->agenda);

	if (clock->event.pending) {
		if (top && clock->armed_ns == top->time_ns)
			return;
		time_travel_del_event(&clock->event);
	}
	if (!top)
		return;
	/* With many links the next end is cold: prefetch it while the clock idles. */
	qbed_prefetch((void *)(top->owner & QLINK_OWNER_MASK));
	clock->armed_ns = top->time_ns;
	time_travel_add_event_rel(&clock->event,
				  top->time_ns > now_ns ? top->time_ns - now_ns : 0);
}

static struct qlink_deadline qlink_deadline(struct qlink_end *end,
					    enum qlink_deadline_kind kind,
					    u64 time_ns, u64 sequence)
{
	return (struct qlink_deadline) {
		.time_ns = time_ns,
		.sequence = sequence,
		.owner = (unsigned long)end | kind,
	};
}

static void qlink_clock_event(struct time_travel_event *event)
{
	tasklet_hi_schedule(&qlink_clock.tasklet);
}

/* The transmitter */

static void qlink_start_frame(struct qlink_end *end, struct sk_buff *skb, u64 now_ns)
{
	struct qlink_clock *clock = &qlink_clock;
	u64 end_ns = qlink_wire_send(&end->wire, now_ns, skb->len);

	end->serializing = skb;
	/* A forwarded frame that was not queued: still inside the receive path. */
	if (qlink_rx_end && !skb->sk)
		qlink_route_learn(qlink_rx_end, end, skb);
	else if (skb->sk && clock->ends > warm_ends)
		qlink_local_hop_learn(end, skb);
	end->stats.sent++;
	end->stats.sent_bytes += skb->len;
	qlink_agenda_push(&clock->agenda,
			  qlink_deadline(end, QLINK_SERIALIZED, end_ns,
					 clock->next_sequence++));
	if (!clock->running)
		qlink_clock_arm(clock, now_ns);
}

static void qlink_deliver(struct qlink_end *end, struct sk_buff *skb);

/* QLINK_RATE_NONE: deliver the frame at once. */
static void qlink_send_direct(struct qlink_end *end, struct sk_buff *skb)
{
	end->stats.sent++;
	end->stats.sent_bytes += skb->len;
	skb_orphan(skb);
	qlink_deliver(end, skb);
}

/* Applies the egress hook to a dequeued packet. Returns the packet to transmit, or NULL. */
static struct sk_buff *qlink_egress(const struct qlink_end *end, struct sk_buff *skb)
{
	const struct qbed_link *link = &end->link;

	if (likely(!link->egress))
		return skb;
	skb = link->egress->egress(link->egress, skb);
	if (skb && link->observer)
		link->observer->sent(link->observer, skb);
	return skb;
}

netdev_tx_t qlink_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct qlink_end *end = netdev_priv(dev);

	skb = qlink_egress(end, skb);
	if (unlikely(!skb))
		return NETDEV_TX_OK;
	skb_tx_timestamp(skb);
	if (end->wire.params.rate_bps == QLINK_RATE_NONE) {
		qlink_send_direct(end, skb);
		return NETDEV_TX_OK;
	}
	netif_stop_queue(dev);
	qlink_start_frame(end, skb, time_travel_now());
	return NETDEV_TX_OK;
}

/* Requeues further segments, as the core does when a device is busy. */
static void qlink_requeue(struct Qdisc *q, struct sk_buff *skb)
{
	while (skb) {
		struct sk_buff *next = skb->next;

		skb_mark_not_on_list(skb);
		__skb_queue_tail(&q->gso_skb, skb);
		q->qstats.requeues++;
		qdisc_qstats_backlog_inc(q, skb);
		q->q.qlen++;
		skb = next;
	}
}

/* Newer kernels free packets dropped at dequeue in qdisc_run_end(). */
static void qlink_qdisc_release(struct Qdisc *q)
{
#ifdef TCQ_F_DEQUEUE_DROPS
	kfree_skb_list_reason(qdisc_run_end(q), SKB_DROP_REASON_QDISC_DROP);
#else
	qdisc_run_end(q);
#endif
}

/*
 * The transmitter is idle: dequeue the next frame immediately. With
 * netif_wake_queue() it would be dequeued in a later softirq, after other
 * deadlines of the same instant, and their packets could be dropped by a full
 * queue although space is available.
 */
static void qlink_next_frame(struct qlink_end *end, u64 now_ns)
{
	struct net_device *dev = end->dev;
	struct netdev_queue *txq = netdev_get_tx_queue(dev, 0);
	struct Qdisc *q = rcu_dereference(txq->qdisc);
	struct sk_buff *skb = NULL;
	spinlock_t *root_lock;
	bool again = false;

	netif_tx_start_queue(txq);
	if (unlikely(!netif_running(dev) || !q->enqueue))
		return;
	if (q->flags & TCQ_F_NOLOCK && nolock_qdisc_is_empty(q))
		return;
	if (unlikely(q->flags & TCQ_F_NOLOCK || !skb_queue_empty(&q->gso_skb) ||
		     !skb_queue_empty(&q->skb_bad_txq) ||
		     test_bit(__QDISC_STATE_DEACTIVATED, &q->state))) {
		__netif_schedule(q);
		return;
	}

	root_lock = qdisc_lock(q);
	spin_lock(root_lock);
	if (unlikely(!qdisc_run_begin(q))) {
		spin_unlock(root_lock);
		__netif_schedule(q);
		return;
	}
	do {
		skb = q->dequeue(q);
		if (!skb)
			break;
		skb = validate_xmit_skb_list(skb, dev, &again);
		if (likely(skb))
			skb = qlink_egress(end, skb);
	} while (unlikely(!skb)); /* dropped: take the next one */
	if (skb) {
		netif_tx_stop_queue(txq);
		if (unlikely(skb->next)) {
			qlink_requeue(q, skb->next);
			skb_mark_not_on_list(skb);
		}
		if (unlikely(dev_nit_active(dev)))
			dev_queue_xmit_nit(skb, dev);
		skb_tx_timestamp(skb);
		qlink_start_frame(end, skb, now_ns);
	}
	qlink_qdisc_release(q);
	spin_unlock(root_lock);
}

/* The wire */

static bool qlink_is_lost(const struct qlink_end *end)
{
	return unlikely(end->loss) && get_random_u32() < end->loss;
}

/* Arrival time of a frame whose transmission ended at @now_ns. */
static u64 qlink_arrival_ns(struct qlink_end *end, u64 now_ns)
{
	u64 arrival_ns = now_ns + end->delay_ns;

	if (unlikely(end->jitter_ns))
		arrival_ns += mul_u64_u32_shr(end->jitter_ns, get_random_u32(), 32);
	if (unlikely(end->reordering))
		return arrival_ns;
	/* A reduced delay must not reorder frames. */
	end->last_arrival_ns = max(arrival_ns, end->last_arrival_ns);
	return end->last_arrival_ns;
}

static void qlink_push_arrival(struct qlink_end *end)
{
	const struct qlink_flight *first = qlink_flight(end->flight_head);

	qlink_agenda_push(&qlink_clock.agenda,
			  qlink_deadline(end, QLINK_ARRIVED, first->arrival_ns,
					 first->sequence));
}

/* Links @next behind @skb. */
static void qlink_flight_link(struct sk_buff *skb, struct sk_buff *next)
{
	skb->next = next;
	qlink_flight(skb)->next_arrival_ns = qlink_flight(next)->arrival_ns;
	qlink_flight(skb)->next_sequence = qlink_flight(next)->sequence;
}

/* Inserts a frame into the list of frames on the wire, ordered by arrival. */
static void qlink_flight_insert(struct qlink_end *end, struct sk_buff *skb)
{
	u64 arrival_ns = qlink_flight(skb)->arrival_ns;
	struct sk_buff *before = end->flight_head;

	if (before && unlikely(arrival_ns < end->tail_arrival_ns)) {
		if (arrival_ns < qlink_flight(before)->arrival_ns) {
			qlink_flight_link(skb, before);
			end->flight_head = skb;
			qlink_agenda_remove(&qlink_clock.agenda,
					    (unsigned long)end | QLINK_ARRIVED, ~0ul);
			qlink_push_arrival(end);
			return;
		}
		while (qlink_flight(before)->next_arrival_ns <= arrival_ns)
			before = before->next;
		qlink_flight_link(skb, before->next);
		qlink_flight_link(before, skb);
		return;
	}
	skb->next = NULL;
	if (before)
		qlink_flight_link(end->flight_tail, skb);
	else
		end->flight_head = skb;
	end->flight_tail = skb;
	end->tail_arrival_ns = arrival_ns;
	if (!before)
		qlink_push_arrival(end);
}

/* Puts a frame on the wire of @end. */
static void qlink_fly(struct qlink_end *end, struct sk_buff *skb, u64 arrival_ns)
{
	struct qlink_flight *flight = qlink_flight(skb);

	flight->arrival_ns = arrival_ns;
	flight->sequence = qlink_clock.next_sequence++;
	qlink_flight_insert(end, skb);
}

/* Puts the frames of other parts on the wires of their stubs. */
static void qlink_receive_parts(void)
{
	struct qlink_clock *clock = &qlink_clock;

	qlink_cut_receive(qlink_fly);
	if (!clock->running)
		qlink_clock_arm(clock, time_travel_now());
}

/* Deadline: the transmission of @end's frame is complete. */
static void qlink_serialized(struct qlink_end *end, u64 now_ns)
{
	struct qlink_clock *clock = &qlink_clock;
	struct sk_buff *skb = end->serializing;
	bool lost = qlink_is_lost(end);

	/* Update agenda and wire first: the calls below may start another frame. */
	end->serializing = NULL;
	qlink_agenda_pop(&clock->agenda);
	if (lost)
		end->stats.lost++;
	else if (!end->is_cut)
		qlink_fly(end, skb, qlink_arrival_ns(end, now_ns));

	skb_orphan(skb);
	if (lost)
		kfree_skb(skb);
	else if (unlikely(end->is_cut))
		qlink_cut_send(end, skb, qlink_arrival_ns(end, now_ns));
	qlink_next_frame(end, now_ns);
}

/*
 * The wire does not corrupt data, so a checksum left to the device
 * (CHECKSUM_PARTIAL) is not computed until it is needed: when the frame is
 * modified, which its users handle, or captured, on this device or on one that
 * takes over its frames.
 */
netdev_features_t qlink_features_check(struct sk_buff *skb, struct net_device *dev,
				       netdev_features_t features)
{
	if (unlikely(dev_nit_active(dev)))
		features &= ~NETIF_F_CSUM_MASK;
	return vlan_features_check(skb, features);
}

static bool qlink_needs_checksum(struct net_device *dev)
{
	return dev_nit_active(dev) || !list_empty(&dev->ptype_specific) ||
	       (rcu_access_pointer(dev->rx_handler) && !list_empty(&dev->adj_list.upper)) ||
	       netif_is_l3_slave(dev);
}

/* True if nothing but routing decides how a received frame is forwarded. */
static bool qlink_may_hint(struct net_device *dev)
{
	return hints && !rcu_access_pointer(dev->rx_handler) && !netif_is_l3_slave(dev) &&
	       !rcu_access_pointer(dev->tcx_ingress) &&
	       !rcu_access_pointer(dev_net(dev)->nf.hooks_ipv4[NF_INET_PRE_ROUTING]);
}

/* Receives a frame as from a wire: only its bytes, no metadata of the sender. */
static void qlink_receive(struct sk_buff *skb, struct net_device *dev)
{
	struct qlink_border *border = ((struct qlink_end *)netdev_priv(dev))->border;
	struct rtable *route = NULL;

	if (skb->ip_summed == CHECKSUM_PARTIAL && !border && unlikely(qlink_needs_checksum(dev)))
		skb_checksum_help(skb);
	skb_scrub_packet(skb, true);
	skb_clear_hash(skb);
	skb->priority = 0;
	skb_set_queue_mapping(skb, 0);
	if (unlikely(border)) {
		qlink_border_leave(border, skb);
		return;
	}
	if (qlink_may_hint(dev))
		route = qlink_route_lookup(netdev_priv(dev), skb);
	skb->protocol = eth_type_trans(skb, dev);
	if (route && skb->pkt_type == PACKET_HOST) {
		skb_dst_set_noref(skb, &route->dst);
		hinted++;
	}
	netif_receive_skb(skb);
}

/* Delivers a frame to the peer of @end, if it still exists and is up. */
static void qlink_deliver(struct qlink_end *end, struct sk_buff *skb)
{
	struct qlink_end *peer = end->peer;

	if (unlikely(!peer || !netif_running(peer->dev))) {
		end->stats.lost++;
		kfree_skb(skb);
		return;
	}
	end->stats.delivered++;
	end->stats.delivered_bytes += skb->len;
	qlink_rx_end = peer;
	qlink_receive(skb, peer->dev);
	qlink_rx_end = NULL;
}

/* Deadline: @end's first frame in flight arrives. */
static void qlink_arrived(struct qlink_end *end)
{
	struct qlink_clock *clock = &qlink_clock;
	struct sk_buff *skb = end->flight_head;
	struct sk_buff *next = skb->next;

	end->flight_head = next;
	end->bucket = NULL;
	qlink_agenda_pop(&clock->agenda);
	if (next)
		qlink_agenda_push(&clock->agenda,
				  qlink_deadline(end, QLINK_ARRIVED,
						 qlink_flight(skb)->next_arrival_ns,
						 qlink_flight(skb)->next_sequence));
	skb_mark_not_on_list(skb);
	qlink_deliver(end, skb);
}

static void qlink_clock_run(struct tasklet_struct *tasklet)
{
	struct qlink_clock *clock = container_of(tasklet, struct qlink_clock, tasklet);
	const struct qlink_deadline *top;
	u64 now_ns = time_travel_now();

	clock->running = true;
	rcu_read_lock();
	while ((top = qlink_agenda_top(&clock->agenda))) {
		struct qlink_end *end = (struct qlink_end *)(top->owner & QLINK_OWNER_MASK);
		u64 at_ns = top->time_ns;

		if (at_ns > now_ns) {
			if (!leap || !time_travel_leap(at_ns))
				break;
			leaps++;
			now_ns = at_ns;
		}
		/*
		 * Only a clock that follows wall time can be late; the times on the wire stay
		 * exact.
		 */
		if (unlikely(now_ns - at_ns > late_ns))
			late_ns = now_ns - at_ns;
		if (unlikely(end->is_cut) && !(top->owner & QLINK_ARRIVED) && !qlink_cut_has_room(end))
			break;
		if (clock->ends > warm_ends) {
			fetches++;
			qlink_fetch(&clock->agenda);
		}
		if (top->owner & QLINK_ARRIVED)
			qlink_arrived(end);
		else
			qlink_serialized(end, at_ns);
	}
	rcu_read_unlock();
	clock->running = false;
	qlink_clock_arm(clock, now_ns);
}

/* Configuration and lifetime of an end, for netdev.c */

/* The frame in transmission continues at the new rate. */
void qlink_set_wire(struct qlink_end *end, struct qlink_wire_params params)
{
	struct qlink_clock *clock = &qlink_clock;
	u64 now_ns = time_travel_now();

	if (!end->serializing) {
		qlink_wire_set(&end->wire, params);
		return;
	}
	qlink_agenda_remove(&clock->agenda, (unsigned long)end | QLINK_SERIALIZED, ~0ul);
	qlink_agenda_push(&clock->agenda,
			  qlink_deadline(end, QLINK_SERIALIZED,
					 qlink_wire_change(&end->wire, now_ns, params),
					 clock->next_sequence++));
	if (!clock->running)
		qlink_clock_arm(clock, now_ns);
}

/* Makes @end's peer the stub of an end in another part. */
int qlink_cut_end(struct qlink_end *end, u32 part, u32 link_number)
{
	if (part >= time_travel_parts() ||
	    time_travel_common(time_travel_now()) >= time_travel_parts_start())
		return -EINVAL;
	if (!qlink_cut_constant_page)
		qlink_cut_constant_page = qbed_constant_page_alloc(GFP_KERNEL);
	if (!qlink_cut_constant_page)
		return -ENOMEM;
	end->is_cut = true;
	end->part = part;
	end->link_number = link_number;
	end->peer->is_stub = true;
	end->peer->link_number = link_number;
	return xa_err(xa_store(&qlink_stubs, link_number, end->peer, GFP_KERNEL));
}

/* Reserves space for the two deadlines of one more end. */
int qlink_add_end(const struct qlink_end *end)
{
	struct qlink_clock *clock = &qlink_clock;
	struct qlink_heap *later = &clock->agenda.later;
	u32 capacity = later->capacity;
	void *memory;

	if (!qlink_heap_holds((unsigned long)end))
		return -ERANGE;
	if (2 * (clock->ends + 1) > capacity) {
		capacity = max(64u, 2 * capacity);
		memory = kvmalloc(qlink_heap_bytes(capacity), GFP_KERNEL);
		if (!memory)
			return -ENOMEM;
		local_bh_disable();
		qlink_heap_move(later, memory, capacity);
		swap(memory, clock->memory);
		local_bh_enable();
		kvfree(memory);
	}
	clock->ends++;
	return 0;
}

/* Drops the frames in the transmitter and on the wire. */
static void qlink_purge(struct qlink_end *end)
{
	struct sk_buff *skb;

	local_bh_disable();
	if (end->serializing || end->flight_head) {
		qlink_agenda_remove(&qlink_clock.agenda, (unsigned long)end,
				    QLINK_OWNER_MASK);
		if (!qlink_clock.running)
			qlink_clock_arm(&qlink_clock, time_travel_now());
	}
	if (end->serializing) {
		kfree_skb(end->serializing);
		end->serializing = NULL;
		end->stats.lost++;
	}
	while ((skb = end->flight_head)) {
		end->flight_head = skb->next;
		skb_mark_not_on_list(skb);
		kfree_skb(skb);
		end->stats.lost++;
	}
	local_bh_enable();
}

void qlink_remove_end(struct qlink_end *end)
{
	if (end->is_stub)
		xa_erase(&qlink_stubs, end->link_number);
	qlink_purge(end);
	qlink_routes_free(end);
	qlink_clock.ends--;
	qlink_generation++;
}

/* Cached routes are invalid if the device is opened again in another network namespace. */
void qlink_clear_caches(struct qlink_end *end)
{
	local_bh_disable();
	qlink_routes_free(end);
	if (end->peer)
		end->peer->bucket = NULL;
	local_bh_enable();
}

void qlink_clock_init(void)
{
	qlink_clock.agenda.later.base_ns = time_travel_now();
	time_travel_set_event_fn(&qlink_clock.event, qlink_clock_event);
	time_travel_set_receiver(qlink_receive_parts);
	tasklet_setup(&qlink_clock.tasklet, qlink_clock_run);
}

void qlink_clock_exit(void)
{
	time_travel_set_receiver(NULL);
	time_travel_del_event(&qlink_clock.event);
	tasklet_kill(&qlink_clock.tasklet);
	kvfree(qlink_clock.memory);
	if (qlink_cut_constant_page)
		put_page(qlink_cut_constant_page);
}
