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
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/if_vlan.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/prefetch.h>
#include <linux/random.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/time-internal.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#include <net/rtnetlink.h>
#include <net/sch_generic.h>

#include <qbed/egress.h>
#include <qbed/qlink.h>

#include "qlink_agenda.h"
#include "qlink_end.h"
#include "qlink_fetch.h"
#include "qlink_route.h"

#if IS_ENABLED(CONFIG_SMP)
#error "qlink relies on the single CPU of time-travel mode"
#endif

#define QLINK_MAX_OVERHEAD_BYTES 65535
#define QLINK_MAX_DELAY_NS (3600ull * NSEC_PER_SEC)

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

static struct rtnl_link_ops qlink_link_ops;

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
	prefetch((void *)(top->owner & QLINK_OWNER_MASK));
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

/* Reserves space for the two deadlines of one more end. */
static int qlink_clock_reserve(struct qlink_clock *clock)
{
	struct qlink_deadline *entries;
	struct qlink_heap *later = &clock->agenda.later;
	u32 capacity = later->capacity;

	if (2 * (clock->ends + 1) > capacity) {
		capacity = max(64u, 2 * capacity);
		entries = kvmalloc_array(capacity, sizeof(*entries), GFP_KERNEL);
		if (!entries)
			return -ENOMEM;
		local_bh_disable();
		if (later->used)
			memcpy(entries, later->entries, later->used * sizeof(*entries));
		swap(entries, later->entries);
		later->capacity = capacity;
		local_bh_enable();
		kvfree(entries);
	}
	clock->ends++;
	return 0;
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

static netdev_tx_t qlink_xmit(struct sk_buff *skb, struct net_device *dev)
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

/* Deadline: the transmission of @end's frame is complete. */
static void qlink_serialized(struct qlink_end *end, u64 now_ns)
{
	struct qlink_clock *clock = &qlink_clock;
	struct sk_buff *skb = end->serializing;
	struct qlink_flight *flight = qlink_flight(skb);
	bool lost = qlink_is_lost(end);

	/* Update agenda and wire first: the calls below may start another frame. */
	end->serializing = NULL;
	qlink_agenda_pop(&clock->agenda);
	if (lost) {
		end->stats.lost++;
	} else {
		flight->arrival_ns = qlink_arrival_ns(end, now_ns);
		flight->sequence = clock->next_sequence++;
		qlink_flight_insert(end, skb);
	}

	skb_orphan(skb);
	if (lost)
		kfree_skb(skb);
	qlink_next_frame(end, now_ns);
}

/*
 * The wire does not corrupt data, so a checksum left to the device
 * (CHECKSUM_PARTIAL) is not computed until it is needed: when the frame is
 * modified, which its users handle, or captured, on this device or on one that
 * takes over its frames.
 */
static netdev_features_t qlink_features_check(struct sk_buff *skb, struct net_device *dev,
					      netdev_features_t features)
{
	if (unlikely(dev_nit_active(dev)))
		features &= ~NETIF_F_CSUM_MASK;
	return vlan_features_check(skb, features);
}

static bool qlink_needs_checksum(struct net_device *dev)
{
	return dev_nit_active(dev) || !list_empty(&dev->ptype_specific) ||
	       rcu_access_pointer(dev->rx_handler) || netif_is_l3_slave(dev);
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
	struct rtable *route = NULL;

	if (skb->ip_summed == CHECKSUM_PARTIAL && unlikely(qlink_needs_checksum(dev)))
		skb_checksum_help(skb);
	skb_scrub_packet(skb, true);
	skb_clear_hash(skb);
	skb->priority = 0;
	skb_set_queue_mapping(skb, 0);
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

/* The device */

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

static int qlink_init(struct net_device *dev)
{
	struct qlink_end *end = netdev_priv(dev);

	BUILD_BUG_ON(offsetof(struct qlink_end, link));
	end->dev = dev;
	return qlink_clock_reserve(&qlink_clock);
}

static void qlink_uninit(struct net_device *dev)
{
	qlink_purge(netdev_priv(dev));
	qlink_routes_free(netdev_priv(dev));
	qlink_clock.ends--;
	qlink_generation++;
}

static int qlink_open(struct net_device *dev)
{
	struct qlink_end *end = netdev_priv(dev);

	/* A frame whose transmission began before the device was closed still occupies the wire. */
	if (!end->serializing)
		netif_start_queue(dev);
	return 0;
}

/* Cached routes are invalid if the device is opened again in another network namespace. */
static int qlink_stop(struct net_device *dev)
{
	struct qlink_end *end = netdev_priv(dev);

	local_bh_disable();
	qlink_routes_free(end);
	if (end->peer)
		end->peer->bucket = NULL;
	local_bh_enable();
	return 0;
}

static void qlink_get_stats64(struct net_device *dev, struct rtnl_link_stats64 *stats)
{
	const struct qlink_end *end = netdev_priv(dev);
	const struct qlink_end *peer = end->peer;

	stats->tx_packets = end->stats.sent;
	stats->tx_bytes = end->stats.sent_bytes;
	if (peer) {
		stats->rx_packets = peer->stats.delivered;
		stats->rx_bytes = peer->stats.delivered_bytes;
	}
}

static int qlink_get_iflink(const struct net_device *dev)
{
	const struct qlink_end *end = netdev_priv(dev);

	return end->peer ? READ_ONCE(end->peer->dev->ifindex) : 0;
}

static const struct net_device_ops qlink_netdev_ops = {
	.ndo_init = qlink_init,
	.ndo_uninit = qlink_uninit,
	.ndo_open = qlink_open,
	.ndo_stop = qlink_stop,
	.ndo_start_xmit = qlink_xmit,
	.ndo_features_check = qlink_features_check,
	.ndo_get_stats64 = qlink_get_stats64,
	.ndo_get_iflink = qlink_get_iflink,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_set_mac_address = eth_mac_addr,
};

static int qlink_get_link_ksettings(struct net_device *dev,
				    struct ethtool_link_ksettings *settings)
{
	const struct qlink_end *end = netdev_priv(dev);

	settings->base.speed = min_t(u64, div_u64(end->wire.params.rate_bps, 1000000),
				     INT_MAX);
	settings->base.duplex = DUPLEX_FULL;
	settings->base.port = PORT_OTHER;
	settings->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static const struct ethtool_ops qlink_ethtool_ops = {
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = qlink_get_link_ksettings,
	.get_ts_info = ethtool_op_get_ts_info,
};

static void qlink_setup(struct net_device *dev)
{
	ether_setup(dev);
	dev->netdev_ops = &qlink_netdev_ops;
	dev->ethtool_ops = &qlink_ethtool_ops;
	dev->needs_free_netdev = true;
	dev->priv_flags &= ~IFF_TX_SKB_SHARING;	/* skb->cb and ->next are used */
	dev->priv_flags |= IFF_LIVE_ADDR_CHANGE;
	dev->lltx = true;			/* one CPU, and the queue is stopped */
	dev->min_mtu = ETH_MIN_MTU;
	dev->max_mtu = ETH_MAX_MTU;
	/*
	 * Scatter/gather and checksum offload are free on this link (checksums of upper devices
	 * are left to software, for captures there). gso_max_segs is 1, so sockets do not build
	 * GSO packets unless IFLA_GSO_MAX_SEGS is set: then the core segments each as it leaves
	 * the qdisc, and all of its segments belong to the frame in transmission (gso_skb)
	 * until the last one is sent.
	 */
	dev->vlan_features = NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HIGHDMA;
	dev->hw_features |= NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HW_CSUM;
	dev->features |= dev->vlan_features | NETIF_F_HW_CSUM;
	dev->gso_max_segs = 1;
	/* The carrier is always on; linkwatch would not set this. */
	dev->operstate = IF_OPER_UP;
}

/* rtnetlink */

/* NLA_POLICY_MAX stores its bound in a signed 16-bit integer. */
static const struct netlink_range_validation qlink_overhead_range = {
	.max = QLINK_MAX_OVERHEAD_BYTES,
};

static const struct nla_policy qlink_policy[IFLA_QLINK_MAX + 1] = {
	[IFLA_QLINK_PEER] = { .type = NLA_BINARY },	/* ifinfomsg + attributes */
	[IFLA_QLINK_RATE] = NLA_POLICY_MIN(NLA_U64, 1),
	[IFLA_QLINK_DELAY] = { .type = NLA_U64 },
	[IFLA_QLINK_OVERHEAD] = NLA_POLICY_FULL_RANGE(NLA_U32, &qlink_overhead_range),
	[IFLA_QLINK_LOSS] = { .type = NLA_U32 },
	[IFLA_QLINK_PEER_RATE] = NLA_POLICY_MIN(NLA_U64, 1),
	[IFLA_QLINK_PEER_DELAY] = { .type = NLA_U64 },
	[IFLA_QLINK_PEER_OVERHEAD] = NLA_POLICY_FULL_RANGE(NLA_U32, &qlink_overhead_range),
	[IFLA_QLINK_PEER_LOSS] = { .type = NLA_U32 },
	[IFLA_QLINK_SENT] = { .type = NLA_REJECT },
	[IFLA_QLINK_DELIVERED] = { .type = NLA_REJECT },
	[IFLA_QLINK_LOST] = { .type = NLA_REJECT },
	[IFLA_QLINK_JITTER] = { .type = NLA_U64 },
	[IFLA_QLINK_REORDERING] = { .type = NLA_U32 },
	[IFLA_QLINK_PEER_JITTER] = { .type = NLA_U64 },
	[IFLA_QLINK_PEER_REORDERING] = { .type = NLA_U32 },
};

static int qlink_validate(struct nlattr *tb[], struct nlattr *data[],
			  struct netlink_ext_ack *extack)
{
	static const int delays[] = { IFLA_QLINK_DELAY, IFLA_QLINK_PEER_DELAY,
				      IFLA_QLINK_JITTER, IFLA_QLINK_PEER_JITTER };
	int i;

	if (tb[IFLA_ADDRESS]) {
		if (nla_len(tb[IFLA_ADDRESS]) != ETH_ALEN)
			return -EINVAL;
		if (!is_valid_ether_addr(nla_data(tb[IFLA_ADDRESS])))
			return -EADDRNOTAVAIL;
	}
	for (i = 0; data && i < ARRAY_SIZE(delays); i++) {
		if (data[delays[i]] && nla_get_u64(data[delays[i]]) > QLINK_MAX_DELAY_NS) {
			NL_SET_ERR_MSG_ATTR(extack, data[delays[i]], "delay above one hour");
			return -ERANGE;
		}
	}
	return 0;
}

/* Attributes of a transmitter are consecutive; @first is its rate. */
static void qlink_parse(struct nlattr *data[], int first, struct qlink_params *params)
{
	struct nlattr **tb = data + first - IFLA_QLINK_RATE;
	int more = first == IFLA_QLINK_RATE ? 0 : IFLA_QLINK_PEER_JITTER - IFLA_QLINK_JITTER;

	if (data[IFLA_QLINK_JITTER + more])
		params->jitter_ns = nla_get_u64(data[IFLA_QLINK_JITTER + more]);
	if (data[IFLA_QLINK_REORDERING + more])
		params->reordering = nla_get_u32(data[IFLA_QLINK_REORDERING + more]);
	if (tb[IFLA_QLINK_RATE])
		params->wire.rate_bps = nla_get_u64(tb[IFLA_QLINK_RATE]);
	if (tb[IFLA_QLINK_DELAY])
		params->delay_ns = nla_get_u64(tb[IFLA_QLINK_DELAY]);
	if (tb[IFLA_QLINK_OVERHEAD])
		params->wire.overhead_bytes = nla_get_u32(tb[IFLA_QLINK_OVERHEAD]);
	if (tb[IFLA_QLINK_LOSS])
		params->loss = nla_get_u32(tb[IFLA_QLINK_LOSS]);
}

static struct qlink_params qlink_get_params(const struct qlink_end *end)
{
	return (struct qlink_params) {
		.wire = end->wire.params,
		.delay_ns = end->delay_ns,
		.loss = end->loss,
		.jitter_ns = end->jitter_ns,
		.reordering = end->reordering,
	};
}

/* The frame in transmission continues at the new rate. */
static void qlink_set_wire(struct qlink_end *end, struct qlink_wire_params params)
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

static void qlink_set_params(struct qlink_end *end, const struct qlink_params *params)
{
	local_bh_disable();
	if (end->wire.params.rate_bps != params->wire.rate_bps ||
	    end->wire.params.overhead_bytes != params->wire.overhead_bytes)
		qlink_set_wire(end, params->wire);
	end->delay_ns = params->delay_ns;
	end->loss = params->loss;
	end->jitter_ns = params->jitter_ns;
	end->reordering = params->reordering;
	local_bh_enable();
}

/*
 * Creates the peer device that @nested describes. It holds a reference to its
 * namespace, which the caller releases after registering it. @src_net:
 * namespace of the device unless its attributes name another
 */
static struct net_device *qlink_new_peer(struct net *src_net, struct nlattr *nested,
					 struct netlink_ext_ack *extack)
{
	struct nlattr *tb[IFLA_MAX + 1];
	unsigned char name_type = NET_NAME_ENUM;
	char name[IFNAMSIZ] = QLINK_KIND "%d";
	struct net_device *peer;
	struct net *net;
	int err;

	if (nla_len(nested) < sizeof(struct ifinfomsg)) {
		NL_SET_ERR_MSG_ATTR(extack, nested, "IFLA_QLINK_PEER must begin with an ifinfomsg");
		return ERR_PTR(-EINVAL);
	}
	err = rtnl_nla_parse_ifinfomsg(tb, nested, extack);
	if (!err)
		err = qlink_validate(tb, NULL, extack);
	if (err)
		return ERR_PTR(err);
	if (tb[IFLA_IFNAME]) {
		nla_strscpy(name, tb[IFLA_IFNAME], IFNAMSIZ);
		name_type = NET_NAME_USER;
	}

	net = rtnl_link_get_net(src_net, tb);
	if (IS_ERR(net))
		return ERR_CAST(net);
	peer = rtnl_create_link(net, name, name_type, &qlink_link_ops, tb, extack);
	if (IS_ERR(peer)) {
		put_net(net);
		return peer;
	}
	if (!tb[IFLA_ADDRESS])
		eth_hw_addr_random(peer);
	return peer;
}

static int qlink_create(struct net *src_net, struct net_device *dev,
			struct nlattr *tb[], struct nlattr *data[],
			struct netlink_ext_ack *extack)
{
	struct qlink_end *end = netdev_priv(dev), *peer_end;
	struct qlink_params params = {}, peer_params;
	struct ifinfomsg *ifinfo;
	struct net_device *peer;
	struct net *net;
	int err;

	if (!data || !data[IFLA_QLINK_PEER] || !data[IFLA_QLINK_RATE]) {
		NL_SET_ERR_MSG(extack, "a qlink needs IFLA_QLINK_PEER and IFLA_QLINK_RATE");
		return -EINVAL;
	}
	qlink_parse(data, IFLA_QLINK_RATE, &params);
	peer_params = params;
	qlink_parse(data, IFLA_QLINK_PEER_RATE, &peer_params);

	peer = qlink_new_peer(src_net, data[IFLA_QLINK_PEER], extack);
	if (IS_ERR(peer))
		return PTR_ERR(peer);
	net = dev_net(peer);
	ifinfo = nla_data(data[IFLA_QLINK_PEER]);
	peer->ifindex = ifinfo->ifi_index;
	peer_end = netdev_priv(peer);
	qlink_set_params(peer_end, &peer_params);
	qlink_set_params(end, &params);
	end->dev = dev;
	peer_end->dev = peer;
	end->peer = peer_end;
	peer_end->peer = end;

	err = register_netdevice(peer);
	put_net(net);
	if (err) {
		free_netdev(peer);
		goto unpair;
	}
	err = rtnl_configure_link(peer, ifinfo, 0, NULL);
	if (err)
		goto unregister_peer;

	if (!tb[IFLA_ADDRESS])
		eth_hw_addr_random(dev);
	err = register_netdevice(dev);
	if (err)
		goto unregister_peer;
	return 0;

unregister_peer:
	peer_end->peer = NULL;
	unregister_netdevice(peer);
unpair:
	end->peer = NULL;
	return err;
}

#ifdef QLINK_HAVE_NEWLINK_PARAMS
static int qlink_newlink(struct net_device *dev, struct rtnl_newlink_params *params,
			 struct netlink_ext_ack *extack)
{
	return qlink_create(rtnl_newlink_peer_net(params), dev, params->tb, params->data,
			    extack);
}
#else
#define qlink_newlink qlink_create
#endif

static void qlink_dellink(struct net_device *dev, struct list_head *head)
{
	struct qlink_end *end = netdev_priv(dev);
	struct qlink_end *peer = end->peer;

	if (peer) {
		local_bh_disable();
		end->peer = NULL;
		peer->peer = NULL;
		local_bh_enable();
		unregister_netdevice_queue(peer->dev, head);
	}
	unregister_netdevice_queue(dev, head);
}

static int qlink_changelink(struct net_device *dev, struct nlattr *tb[],
			    struct nlattr *data[], struct netlink_ext_ack *extack)
{
	struct qlink_end *end = netdev_priv(dev);
	struct qlink_params params;

	if (!data)
		return 0;
	if (data[IFLA_QLINK_PEER]) {
		NL_SET_ERR_MSG_ATTR(extack, data[IFLA_QLINK_PEER],
				    "the other end is chosen at creation");
		return -EOPNOTSUPP;
	}
	params = qlink_get_params(end);
	qlink_parse(data, IFLA_QLINK_RATE, &params);
	qlink_set_params(end, &params);
	if (end->peer) {
		params = qlink_get_params(end->peer);
		qlink_parse(data, IFLA_QLINK_PEER_RATE, &params);
		qlink_set_params(end->peer, &params);
	}
	return 0;
}

static size_t qlink_get_size(const struct net_device *dev)
{
	return 2 * (2 * nla_total_size_64bit(sizeof(u64)) + 2 * nla_total_size(sizeof(u32))) +
	       3 * nla_total_size_64bit(sizeof(u64));
}

static int qlink_fill_transmitter(struct sk_buff *skb, int first, const struct qlink_end *end)
{
	int shift = first - IFLA_QLINK_RATE;

	if (nla_put_u64_64bit(skb, IFLA_QLINK_RATE + shift, end->wire.params.rate_bps,
			      IFLA_QLINK_PAD) ||
	    nla_put_u64_64bit(skb, IFLA_QLINK_DELAY + shift, end->delay_ns, IFLA_QLINK_PAD) ||
	    nla_put_u32(skb, IFLA_QLINK_OVERHEAD + shift, end->wire.params.overhead_bytes) ||
	    nla_put_u32(skb, IFLA_QLINK_LOSS + shift, end->loss))
		return -EMSGSIZE;
	return 0;
}

static int qlink_fill_info(struct sk_buff *skb, const struct net_device *dev)
{
	const struct qlink_end *end = netdev_priv(dev);

	if (qlink_fill_transmitter(skb, IFLA_QLINK_RATE, end) ||
	    (end->peer && qlink_fill_transmitter(skb, IFLA_QLINK_PEER_RATE, end->peer)) ||
	    nla_put_u64_64bit(skb, IFLA_QLINK_SENT, end->stats.sent, IFLA_QLINK_PAD) ||
	    nla_put_u64_64bit(skb, IFLA_QLINK_DELIVERED, end->stats.delivered,
			      IFLA_QLINK_PAD) ||
	    nla_put_u64_64bit(skb, IFLA_QLINK_LOST, end->stats.lost, IFLA_QLINK_PAD))
		return -EMSGSIZE;
	return 0;
}

static struct net *qlink_get_link_net(const struct net_device *dev)
{
	const struct qlink_end *end = netdev_priv(dev);

	return dev_net(end->peer ? end->peer->dev : dev);
}

static struct rtnl_link_ops qlink_link_ops = {
	.kind = QLINK_KIND,
	.priv_size = sizeof(struct qlink_end),
	.setup = qlink_setup,
	.policy = qlink_policy,
	.maxtype = IFLA_QLINK_MAX,
	.validate = qlink_validate,
	.newlink = qlink_newlink,
#ifdef QLINK_HAVE_NEWLINK_PARAMS
	.peer_type = IFLA_QLINK_PEER,
#endif
	.changelink = qlink_changelink,
	.dellink = qlink_dellink,
	.get_size = qlink_get_size,
	.fill_info = qlink_fill_info,
	.get_link_net = qlink_get_link_net,
};

static int __init qlink_module_init(void)
{
	if (time_travel_mode != TT_MODE_INFCPU) {
		pr_err("qlink needs time-travel=inf-cpu\n");
		return -ENODEV;
	}
	time_travel_set_event_fn(&qlink_clock.event, qlink_clock_event);
	tasklet_setup(&qlink_clock.tasklet, qlink_clock_run);
	return rtnl_link_register(&qlink_link_ops);
}

static void __exit qlink_module_exit(void)
{
	rtnl_link_unregister(&qlink_link_ops);
	time_travel_del_event(&qlink_clock.event);
	tasklet_kill(&qlink_clock.tasklet);
	kvfree(qlink_clock.agenda.later.entries);
}

module_init(qlink_module_init);
module_exit(qlink_module_exit);

MODULE_DESCRIPTION("Point-to-point link with exact rate and delay in virtual time");
MODULE_LICENSE("GPL");
MODULE_ALIAS_RTNL_LINK(QLINK_KIND);
