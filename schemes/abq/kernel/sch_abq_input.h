/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Input side of a port: a netfilter hook before routing holds received pure
 * acknowledgements, and a tasklet passes them on to routing when they are
 * released.
 *
 * Locking: a port's lock nests inside the qdisc's. No packet is passed on under
 * either lock, since it is forwarded to other qdiscs, or to this one.
 */
#ifndef _SCH_ABQ_INPUT_H
#define _SCH_ABQ_INPUT_H

#include <linux/hashtable.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/rculist.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <net/addrconf.h>
#include <net/ip.h>
#include <net/ip_fib.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include <qbed/tcp_segment.h>

#include "abq_algorithm.h"

struct abq_port {
	struct hlist_node by_ifindex;
	struct net *net;
	int ifindex;
	struct abq_stats stats;		/* releases and entries_*: protected by the qdisc's lock */

	bool idle;			/* the last dequeue found the output queue empty: likewise */

	spinlock_t lock;		/* protects the members below and the other stats */
	struct abq_params params;
	u32 k_bytes;			/* the threshold */
	u32 segment_bytes;		/* payload of a frame of maximum size */
	bool holding;			/* received acknowledgements are held */
	bool draining;			/* packets are being released: later ones are queued behind
					 * them
					 */
	struct sk_buff_head held;	/* the input queue */
	struct sk_buff_head leaving;	/* released packets, for the tasklet */
	struct abq_input input;

	struct tasklet_struct tasklet;
	struct hrtimer timer;		/* for held ACKs that `release: window` leaves in the queue */
};

/* State of a network namespace. The hooks are registered as long as it has a port. */
struct abq_net {
	DECLARE_HASHTABLE(ports, 6);	/* changed under RTNL */
	unsigned int users;
};

static unsigned int abq_net_id;

/* Control block of a held packet, in the bytes of skb->cb behind those of IP. */
struct abq_cb {
	int (*okfn)(struct net *net, struct sock *sk, struct sk_buff *skb);
	u16 window;			/* maximum advertised window */
	bool set_ece;
};

#define ABQ_CB_OFFSET (sizeof_field(struct sk_buff, cb) - sizeof(struct abq_cb))
static_assert(sizeof(struct inet_skb_parm) <= ABQ_CB_OFFSET);
static_assert(sizeof(struct inet6_skb_parm) <= ABQ_CB_OFFSET);

static struct abq_cb *abq_cb(struct sk_buff *skb)
{
	return (struct abq_cb *)(skb->cb + ABQ_CB_OFFSET);
}

/* Release */

/* Increments of the statistics of the same names. */
struct abq_sent {
	u64 released_with_ece;
	u64 corrected;
	u64 windowed;
};

/* Modifies a released packet and continues its processing after the hook. */
static void abq_forward(struct abq_port *port, struct sk_buff *skb, struct abq_sent *sent)
{
	const struct abq_cb *cb = abq_cb(skb);
	struct tcp_segment segment;

	if ((cb->set_ece || cb->window < U16_MAX) && tcp_segment_parse(skb, &segment)) {
		if (cb->set_ece)
			sent->corrected += tcp_segment_set_ece(skb, &segment);
		sent->windowed += tcp_segment_limit_window(skb, &segment, cb->window);
		sent->released_with_ece += cb->set_ece && segment.th->ece;
	}
	cb->okfn(port->net, NULL, skb);
}

static void abq_port_drain(struct tasklet_struct *tasklet)
{
	struct abq_port *port = container_of(tasklet, struct abq_port, tasklet);
	struct sk_buff_head batch;
	struct sk_buff *skb;
	bool more;

	__skb_queue_head_init(&batch);
	do {
		struct abq_sent sent = {};

		rcu_read_lock();
		while ((skb = __skb_dequeue(&batch)))
			abq_forward(port, skb, &sent);
		rcu_read_unlock();

		spin_lock_bh(&port->lock);
		skb_queue_splice_init(&port->leaving, &batch);
		more = !skb_queue_empty(&batch);
		port->draining = more;
		port->stats.released_with_ece += sent.released_with_ece;
		port->stats.corrected += sent.corrected;
		port->stats.windowed += sent.windowed;
		spin_unlock_bh(&port->lock);
	} while (more);
}

/*
 * Queues a packet for the tasklet. Called under the port's lock. @answered:
 * modify it as the parameter `answer` specifies
 */
static void abq_port_queue_release(struct abq_port *port, struct sk_buff *skb, bool answered)
{
	abq_cb(skb)->set_ece = answered && abq_echoes(&port->params);
	if (!answered)
		abq_cb(skb)->window = U16_MAX;
	__skb_queue_tail(&port->leaving, skb);
	port->draining = true;
	tasklet_schedule(&port->tasklet);
}

/* Updates the statistics after a change of the input queue. Called under the port's lock. */
static void abq_port_update_held(struct abq_port *port)
{
	abq_input_set(&port->input, &port->stats, ktime_get_ns(), skb_queue_len(&port->held));
}

/*
 * Releases all held ACKs unmodified, in order. They are sent after the caller
 * releases its locks.
 */
static void abq_port_flush(struct abq_port *port)
{
	struct sk_buff *skb;

	spin_lock_bh(&port->lock);
	port->stats.released += skb_queue_len(&port->held);
	while ((skb = __skb_dequeue(&port->held)))
		abq_port_queue_release(port, skb, false);
	abq_port_update_held(port);
	WRITE_ONCE(port->holding, false);
	spin_unlock_bh(&port->lock);
}

/* Limits the advertised window of each held ACK to its part of K. */
static void abq_port_assign(struct abq_port *port)
{
	u32 held = skb_queue_len(&port->held);
	u32 window = abq_window(port->k_bytes, held, port->segment_bytes);
	struct sk_buff *skb;

	skb_queue_walk(&port->held, skb)
		abq_cb(skb)->window = min_t(u32, abq_cb(skb)->window, window);
}

/*
 * Releases held ACKs as the parameter `release` specifies. They are sent after
 * the caller releases its locks. ACKs that remain when the output queue is
 * empty are released later by a timer, since no other event may occur on this
 * port. Called under the port's lock.
 */
static void abq_port_batch(struct abq_port *port)
{
	bool newest = port->params.release == ABQ_RELEASE_WINDOW;
	u32 leave = skb_queue_len(&port->held);

	if (port->params.answer != ABQ_ANSWER_ECE)
		abq_port_assign(port);
	if (newest)
		leave = abq_batch(port->k_bytes, leave, port->segment_bytes);
	else if (port->params.release == ABQ_RELEASE_COUNT && port->holding)
		leave = min(leave, port->params.release_count_packets);
	port->stats.released += leave;
	for (; leave; leave--) {
		abq_port_queue_release(port, newest ? __skb_dequeue_tail(&port->held) :
					      __skb_dequeue(&port->held), true);
	}
	abq_port_update_held(port);
	if (!port->holding && !skb_queue_empty(&port->held))
		hrtimer_start(&port->timer, ns_to_ktime(port->params.pause_us * (u64)NSEC_PER_USEC),
			      HRTIMER_MODE_REL_SOFT);
}

/* The output queue fell to X: release held ACKs. @holding: hold later ones */
static void abq_port_release(struct abq_port *port, bool holding)
{
	spin_lock_bh(&port->lock);
	WRITE_ONCE(port->holding, holding);
	abq_port_batch(port);
	spin_unlock_bh(&port->lock);
}

/* The output queue is empty and uncongested: release a batch of the remaining held ACKs. */
static void abq_port_idle(struct abq_port *port)
{
	if (skb_queue_empty_lockless(&port->held))
		return;
	spin_lock_bh(&port->lock);
	abq_port_batch(port);
	spin_unlock_bh(&port->lock);
}

static enum hrtimer_restart abq_port_timer(struct hrtimer *timer)
{
	struct abq_port *port = container_of(timer, struct abq_port, timer);

	spin_lock(&port->lock);
	if (READ_ONCE(port->idle) && !port->holding && !skb_queue_empty(&port->held))
		abq_port_batch(port);
	spin_unlock(&port->lock);
	return HRTIMER_NORESTART;
}

/* Reception */

static void abq_port_hold(struct abq_port *port)
{
	spin_lock_bh(&port->lock);
	WRITE_ONCE(port->holding, true);
	spin_unlock_bh(&port->lock);
}

static bool abq_port_passes(const struct abq_port *port)
{
	return !READ_ONCE(port->holding) && !READ_ONCE(port->draining) &&
	       skb_queue_empty_lockless(&port->held);
}

/*
 * True if the packet is for the switch itself, such as BGP: holding it would
 * not throttle any sender.
 */
static bool abq_is_local(const struct nf_hook_state *state, const struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (skb->protocol == htons(ETH_P_IPV6))
		return ipv6_chk_addr(state->net, &ipv6_hdr(skb)->daddr, state->in, 0);
#endif
	return inet_addr_type_dev_table(state->net, state->in, ip_hdr(skb)->daddr) == RTN_LOCAL;
}

/* True if a held packet belongs to @flow. */
static bool abq_is_same_flow(struct sk_buff *skb, const struct tcp_flow *flow)
{
	struct tcp_segment held;

	return tcp_segment_parse(skb, &held) && !memcmp(&held.flow, flow, sizeof(*flow));
}

/* `coalesce`: replaces the held ACK of the same connection. Returns false if there is none. */
static bool abq_port_replace(struct abq_port *port, struct sk_buff *skb,
			     const struct tcp_segment *segment)
{
	struct sk_buff *old;

	skb_queue_walk(&port->held, old) {
		if (!abq_is_same_flow(old, &segment->flow))
			continue;
		abq_cb(skb)->window = abq_cb(old)->window;
		__skb_queue_after(&port->held, old, skb);
		__skb_unlink(old, &port->held);
		if (old->protocol == htons(ETH_P_IPV6))
			port->stats.coalesced_ipv6++;
		else
			port->stats.coalesced_ipv4++;
		consume_skb(old);
		return true;
	}
	return false;
}

/*
 * Holds a packet. A full input queue releases its oldest packet, to keep the
 * order, with ECE, since Qout is congested.
 */
static void abq_port_enqueue(struct abq_port *port, struct sk_buff *skb,
			     const struct tcp_segment *segment)
{
	port->stats.holds++;
	abq_cb(skb)->window = U16_MAX;
	if (port->params.coalesce && abq_port_replace(port, skb, segment))
		return;
	if (skb_queue_len(&port->held) >= port->params.hold_limit_packets) {
		abq_port_queue_release(port, __skb_dequeue(&port->held), true);
		port->stats.overflow++;
	}
	__skb_queue_tail(&port->held, skb);
	abq_port_update_held(port);
}

/*
 * Releases the held ACKs of @segment's connection ahead of it. It acknowledges
 * at least as much; behind it, PAWS would discard them and their ECE.
 */
static void abq_port_release_flow(struct abq_port *port, const struct tcp_segment *segment)
{
	struct sk_buff *skb, *next;

	skb_queue_walk_safe(&port->held, skb, next) {
		if (!abq_is_same_flow(skb, &segment->flow))
			continue;
		__skb_unlink(skb, &port->held);
		abq_port_queue_release(port, skb, true);
		port->stats.overtaken++;
	}
	abq_port_update_held(port);
}

static unsigned int abq_port_arrival(struct abq_port *port, struct sk_buff *skb,
				     const struct tcp_segment *segment,
				     const struct nf_hook_state *state)
{
	unsigned int verdict = NF_STOLEN;

	abq_cb(skb)->okfn = state->okfn;
	spin_lock_bh(&port->lock);
	if (port->holding && tcp_segment_is_pure_ack(segment)) {
		abq_port_enqueue(port, skb, segment);
	} else {
		abq_port_release_flow(port, segment);
		if (port->draining)
			abq_port_queue_release(port, skb, false);
		else
			verdict = NF_ACCEPT;
	}
	spin_unlock_bh(&port->lock);
	return verdict;
}

/*
 * Finds the port added last: a new qdisc is added before the one that it
 * replaces is removed.
 */
static struct abq_port *abq_port_find(const struct net *net, int ifindex)
{
	struct abq_net *abq_net = net_generic(net, abq_net_id);
	struct abq_port *port;

	hash_for_each_possible_rcu(abq_net->ports, port, by_ifindex, ifindex) {
		if (port->ifindex == ifindex)
			return port;
	}
	return NULL;
}

static unsigned int abq_hook(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct abq_port *port = abq_port_find(state->net, state->in->ifindex);
	struct tcp_segment segment;

	if (!port || abq_port_passes(port))
		return NF_ACCEPT;
	if (!tcp_segment_parse(skb, &segment) || abq_is_local(state, skb))
		return NF_ACCEPT;
	/* A packet whose references do not outlive this call cannot be held. */
	if (skb->sk || (skb_dst(skb) && !skb_dst_force(skb)))
		return NF_ACCEPT;
	return abq_port_arrival(port, skb, &segment, state);
}

/* Last priority, so that routing follows: later hooks would be skipped. */
static const struct nf_hook_ops abq_hooks[] = {
	{
		.hook = abq_hook,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_PRE_ROUTING,
		.priority = NF_IP_PRI_LAST,
	},
	{
		.hook = abq_hook,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_PRE_ROUTING,
		.priority = NF_IP6_PRI_LAST,
	},
};

/* Lifetime of a port, under RTNL */

static struct abq_port *abq_port_create(struct net_device *dev)
{
	struct abq_net *abq_net = net_generic(dev_net(dev), abq_net_id);
	struct abq_port *port;
	int err;

	port = kzalloc(sizeof(*port), GFP_KERNEL);
	if (!port)
		return ERR_PTR(-ENOMEM);
	port->net = dev_net(dev);
	port->ifindex = dev->ifindex;
	spin_lock_init(&port->lock);
	__skb_queue_head_init(&port->held);
	__skb_queue_head_init(&port->leaving);
	tasklet_setup(&port->tasklet, abq_port_drain);
#ifdef ABQ_HAVE_HRTIMER_SETUP
	hrtimer_setup(&port->timer, abq_port_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
#else
	hrtimer_init(&port->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	port->timer.function = abq_port_timer;
#endif
	port->input.changed_ns = ktime_get_ns();

	if (!abq_net->users) {
		err = nf_register_net_hooks(port->net, abq_hooks, ARRAY_SIZE(abq_hooks));
		if (err) {
			kfree(port);
			return ERR_PTR(err);
		}
	}
	abq_net->users++;
	hash_add_rcu(abq_net->ports, &port->by_ifindex, port->ifindex);
	return port;
}

static void abq_port_set(struct abq_port *port, const struct abq_params *params)
{
	bool bytes = params->threshold_bytes != ABQ_NO_BOUND;
	u64 k_bytes = bytes ? params->threshold_bytes : (u64)params->threshold_packets * params->mtu;
	u32 headers = ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr);

	spin_lock_bh(&port->lock);
	port->params = *params;
	port->k_bytes = min_t(u64, k_bytes, U32_MAX);
	port->segment_bytes = params->mtu > headers ? params->mtu - headers : 1;
	spin_unlock_bh(&port->lock);
}

static u32 abq_count(const struct sk_buff_head *queue, __be16 protocol)
{
	const struct sk_buff *skb;
	u32 found = 0;

	skb_queue_walk(queue, skb)
		found += skb->protocol == protocol;
	return found;
}

/* Called under the qdisc's lock. */
static void abq_port_stats(struct abq_port *port, struct abq_stats *shown)
{
	spin_lock_bh(&port->lock);
	abq_input_advance(&port->input, &port->stats, ktime_get_ns());
	*shown = port->stats;
	shown->held_ipv4 = abq_count(&port->held, htons(ETH_P_IP));
	shown->held_ipv6 = abq_count(&port->held, htons(ETH_P_IPV6));
	spin_unlock_bh(&port->lock);
}

static void abq_port_destroy(struct abq_port *port)
{
	struct abq_net *abq_net = net_generic(port->net, abq_net_id);

	hash_del_rcu(&port->by_ifindex);
	if (!--abq_net->users)
		nf_unregister_net_hooks(port->net, abq_hooks, ARRAY_SIZE(abq_hooks));
	/* A concurrent hook may still add packets to the port. */
	synchronize_net();
	abq_port_flush(port);
	hrtimer_cancel(&port->timer);
	tasklet_kill(&port->tasklet);
	kfree(port);
}

static struct pernet_operations abq_net_operations = {
	.id = &abq_net_id,
	.size = sizeof(struct abq_net),
};

#endif /* _SCH_ABQ_INPUT_H */
