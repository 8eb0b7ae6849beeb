/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The input side of a port: a netfilter hook before routing takes the pure
 * acknowledgements that arrive while their port holds, and a tasklet sends them
 * on to routing when the port releases them.
 *
 * Locks: a port's lock is inside the qdisc's. Nothing is sent on under either
 * of them: what leaves is forwarded to other qdiscs, or to this one again.
 */
#ifndef _SCH_ABQ_INPUT_H
#define _SCH_ABQ_INPUT_H

#include <linux/hashtable.h>
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
	struct abq_stats stats;		/* releases and entries: under the qdisc's lock */

	spinlock_t lock;		/* of all below, and of the other stats */
	u32 hold_limit;
	bool holding;			/* arriving acknowledgements are held */
	bool draining;			/* some are leaving: those that arrive follow them */
	struct sk_buff_head held;	/* the input queue */
	struct sk_buff_head leaving;	/* released, for the tasklet */
	struct abq_input input;

	struct tasklet_struct tasklet;
};

/* Of a namespace. The hooks are there as long as it has a port. */
struct abq_net {
	DECLARE_HASHTABLE(ports, 6);	/* changed under RTNL */
	unsigned int users;
};

static unsigned int abq_net_id;

/* Of a held packet, in the bytes of skb->cb beyond those of IP. */
struct abq_cb {
	int (*okfn)(struct net *net, struct sock *sk, struct sk_buff *skb);
	bool set_ece;
};

#define ABQ_CB_OFFSET (sizeof_field(struct sk_buff, cb) - sizeof(struct abq_cb))
static_assert(sizeof(struct inet_skb_parm) <= ABQ_CB_OFFSET);
static_assert(sizeof(struct inet6_skb_parm) <= ABQ_CB_OFFSET);

static struct abq_cb *abq_cb(struct sk_buff *skb)
{
	return (struct abq_cb *)(skb->cb + ABQ_CB_OFFSET);
}

/* Leaving */

/* Send on to where the hook took it from. Returns whether ECE was @present and @set here. */
static void abq_send_on(struct abq_port *port, struct sk_buff *skb, bool *present, bool *set)
{
	struct tcp_segment segment;

	*present = false;
	*set = false;
	if (abq_cb(skb)->set_ece && tcp_segment_parse(skb, &segment)) {
		*set = tcp_segment_set_ece(skb, &segment);
		*present = segment.th->ece;
	}
	abq_cb(skb)->okfn(port->net, NULL, skb);
}

static void abq_port_drain(struct tasklet_struct *tasklet)
{
	struct abq_port *port = container_of(tasklet, struct abq_port, tasklet);
	u64 released_with_ece = 0, corrected = 0;
	bool present, set, more;
	struct sk_buff_head batch;
	struct sk_buff *skb;

	__skb_queue_head_init(&batch);
	do {
		rcu_read_lock();
		while ((skb = __skb_dequeue(&batch))) {
			abq_send_on(port, skb, &present, &set);
			released_with_ece += present;
			corrected += set;
		}
		rcu_read_unlock();

		spin_lock_bh(&port->lock);
		skb_queue_splice_init(&port->leaving, &batch);
		more = !skb_queue_empty(&batch);
		port->draining = more;
		port->stats.released_with_ece += released_with_ece;
		port->stats.corrected += corrected;
		spin_unlock_bh(&port->lock);
		released_with_ece = 0;
		corrected = 0;
	} while (more);
}

/* Under the port's lock. */
static void abq_port_leave(struct abq_port *port, struct sk_buff *skb, bool set_ece)
{
	abq_cb(skb)->set_ece = set_ece;
	__skb_queue_tail(&port->leaving, skb);
	port->draining = true;
	tasklet_schedule(&port->tasklet);
}

/* All that are held leave, in order, as soon as the caller's locks are released. */
static void abq_port_release(struct abq_port *port, bool set_ece, bool holding)
{
	struct sk_buff *skb;

	spin_lock_bh(&port->lock);
	abq_input_set(&port->input, &port->stats, ktime_get_ns(), 0);
	port->stats.released += skb_queue_len(&port->held);
	while ((skb = __skb_dequeue(&port->held)))
		abq_port_leave(port, skb, set_ece);
	WRITE_ONCE(port->holding, holding);
	spin_unlock_bh(&port->lock);
}

/* Arriving */

static void abq_port_hold(struct abq_port *port)
{
	spin_lock_bh(&port->lock);
	WRITE_ONCE(port->holding, true);
	spin_unlock_bh(&port->lock);
}

static bool abq_port_passes(const struct abq_port *port)
{
	return !READ_ONCE(port->holding) && !READ_ONCE(port->draining);
}

/* For the switch itself, such as BGP's: holding it would stop nobody's data. */
static bool abq_is_own(const struct nf_hook_state *state, const struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (skb->protocol == htons(ETH_P_IPV6))
		return ipv6_chk_addr(state->net, &ipv6_hdr(skb)->daddr, state->in, 0);
#endif
	return inet_addr_type_dev_table(state->net, state->in, ip_hdr(skb)->daddr) == RTN_LOCAL;
}

/* A full input queue lets its oldest go, so the order stays; with ECE, as Qout is congested. */
static void abq_port_enqueue(struct abq_port *port, struct sk_buff *skb)
{
	if (skb_queue_len(&port->held) >= port->hold_limit) {
		abq_port_leave(port, __skb_dequeue(&port->held), true);
		port->stats.overflow++;
	}
	__skb_queue_tail(&port->held, skb);
	port->stats.holds++;
	abq_input_set(&port->input, &port->stats, ktime_get_ns(), skb_queue_len(&port->held));
}

/*
 * What of @segment's connection is held leaves ahead of it: it acknowledges as much
 * as they do, and behind it PAWS would discard them, with their ECE.
 */
static void abq_port_overtake(struct abq_port *port, const struct tcp_segment *segment)
{
	struct sk_buff *skb, *next;
	struct tcp_segment held;
	u32 left = 0;

	skb_queue_walk_safe(&port->held, skb, next) {
		if (!tcp_segment_parse(skb, &held) ||
		    memcmp(&held.flow, &segment->flow, sizeof(held.flow)))
			continue;
		__skb_unlink(skb, &port->held);
		abq_port_leave(port, skb, true);
		left++;
	}
	if (left)
		abq_input_set(&port->input, &port->stats, ktime_get_ns(),
			      skb_queue_len(&port->held));
	port->stats.overtaken += left;
}

static unsigned int abq_port_arrival(struct abq_port *port, struct sk_buff *skb,
				     const struct tcp_segment *segment,
				     const struct nf_hook_state *state)
{
	unsigned int verdict = NF_STOLEN;

	abq_cb(skb)->okfn = state->okfn;
	spin_lock_bh(&port->lock);
	if (port->holding && tcp_segment_is_pure_ack(segment)) {
		abq_port_enqueue(port, skb);
	} else {
		abq_port_overtake(port, segment);
		if (port->draining)
			abq_port_leave(port, skb, false);
		else
			verdict = NF_ACCEPT;
	}
	spin_unlock_bh(&port->lock);
	return verdict;
}

/* The last one added: a qdisc that replaces another is there before the other goes. */
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
	if (!tcp_segment_parse(skb, &segment) || abq_is_own(state, skb))
		return NF_ACCEPT;
	/* What does not outlive this call cannot wait. */
	if (skb->sk || (skb_dst(skb) && !skb_dst_force(skb)))
		return NF_ACCEPT;
	return abq_port_arrival(port, skb, &segment, state);
}

/* Last, so that routing is what comes next: hooks after this one would be passed over. */
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

/* A port's life, under RTNL */

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

static void abq_port_limit(struct abq_port *port, u32 hold_limit)
{
	spin_lock_bh(&port->lock);
	port->hold_limit = hold_limit;
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

/* Under the qdisc's lock, too. */
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
	/* A hook that has found the port before may still add to it. */
	synchronize_net();
	abq_port_release(port, false, false);
	tasklet_kill(&port->tasklet);
	kfree(port);
}

static struct pernet_operations abq_net_operations = {
	.id = &abq_net_id,
	.size = sizeof(struct abq_net),
};

#endif /* _SCH_ABQ_INPUT_H */
