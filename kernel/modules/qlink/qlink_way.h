/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ways through a node. What routing gives for an address holds until a route, an
 * address or a setting of the node changes, so a packet gets the route that the
 * last one to its address took: Linux does so with packets that arrive together
 * (ip_route_use_hint(), net/ipv4/route.c), and asks less of them. It is for what
 * is forwarded only, where nothing but the address decides: no rules, one path,
 * no filter of sources, be it of the node's own addresses, no DSCP, and no socket
 * that may claim the packet before.
 */
#ifndef _QLINK_WAY_H
#define _QLINK_WAY_H

#include <linux/if_ether.h>
#include <linux/inetdevice.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <net/arp.h>
#include <net/dst.h>
#include <net/inet_ecn.h>
#include <net/ip_fib.h>
#include <net/nexthop.h>
#include <net/route.h>

#include "qlink_end.h"

static u32 qlink_generation;		/* of links: counts those that went */
static struct qlink_end *qlink_entering;	/* whose frame the stack has just got */

/* An IPv4 header without options behind an Ethernet header, or NULL. */
static inline const struct iphdr *qlink_ip(const struct sk_buff *skb)
{
	const struct ethhdr *eth = (const struct ethhdr *)skb->data;
	const struct iphdr *ip = (const struct iphdr *)(eth + 1);

	if (skb_headlen(skb) < sizeof(*eth) + sizeof(*ip) + sizeof(struct tcphdr) ||
	    eth->h_proto != htons(ETH_P_IP) || ip->ihl != 5)
		return NULL;
	return ip;
}

/* Neighbours' places differ, whether their addresses are 1, 2, 4 or 256 apart. */
static inline struct qlink_way *qlink_way(struct qlink_end *end, __be32 to)
{
	u32 address = ntohl(to);

	return &end->ways[(address + address / 4 + address / 256) % QLINK_WAYS];
}

static bool qlink_route_holds(const struct rtable *route, struct net *net)
{
	return route->dst.obsolete == DST_OBSOLETE_FORCE_CHK &&
	       route->rt_genid == rt_genid_ipv4(net);
}

#ifdef QLINK_HAVE_HASH_HEADS

static const void *qlink_list(const struct neigh_hash_table *table, u32 hash)
{
	return &table->hash_heads[hash];
}

static const struct neighbour *qlink_first_listed(const struct neigh_hash_table *table, u32 hash)
{
	return hlist_entry_safe(rcu_dereference(hlist_first_rcu(&table->hash_heads[hash])),
				struct neighbour, hash);
}

static const struct neighbour *qlink_next_listed(const struct neighbour *neighbour)
{
	return hlist_entry_safe(rcu_dereference(hlist_next_rcu(&neighbour->hash)),
				struct neighbour, hash);
}

#else

static const void *qlink_list(const struct neigh_hash_table *table, u32 hash)
{
	return &table->hash_buckets[hash];
}

static const struct neighbour *qlink_first_listed(const struct neigh_hash_table *table, u32 hash)
{
	return rcu_dereference(table->hash_buckets[hash]);
}

static const struct neighbour *qlink_next_listed(const struct neighbour *neighbour)
{
	return rcu_dereference(neighbour->next);
}

#endif

/* What __ipv4_neigh_lookup_noref() looks at. */
static void qlink_learn_hop(struct qlink_hop *hop, const struct net_device *dev, u32 key)
{
	struct neigh_hash_table *table = rcu_dereference(arp_tbl.nht);
	u32 hash = arp_hashfn(&key, dev, table->hash_rnd) >> (32 - table->hash_shift);
	const struct neighbour *n;
	unsigned int before = 0;

	memset(hop, 0, sizeof(*hop));
	hop->list = qlink_list(table, hash);
	for (n = qlink_first_listed(table, hash); n; n = qlink_next_listed(n)) {
		if (n->dev == dev && *(const u32 *)n->primary_key == key) {
			hop->neighbour = n;
			return;
		}
		if (before < ARRAY_SIZE(hop->before))
			hop->before[before++] = n;
	}
}

static void qlink_learn_path(struct qlink_way *way, const struct fib_result *found, struct net *net)
{
	unsigned int i, paths = fib_info_num_path(found->fi);
	struct net_device *dev = way->out->dev;

	for (i = 0; i < paths; i++) {
		struct fib_nh_common *hop = fib_info_nhc(found->fi, i);
		struct rtable *route = rcu_dereference(hop->nhc_rth_input);
		u32 key;

		if (hop->nhc_dev != dev)
			continue;
		key = (__force u32)(hop->nhc_gw_family == AF_INET ? hop->nhc_gw.ipv4 : way->to);
		way->lookup[3] = hop;
		way->lookup[4] = route;
		qlink_learn_hop(&way->hop, dev, key);
		if (paths == 1 && found->type == RTN_UNICAST && !net->ipv4.fib_has_custom_rules &&
		    !rcu_access_pointer(hop->nhc_exceptions) && route &&
		    qlink_route_holds(route, net) && dst_hold_safe(&route->dst))
			way->route = route;
		return;
	}
}

static void qlink_forget_way(struct qlink_way *way)
{
	if (way->route)
		dst_release(&way->route->dst);
	memset(way, 0, sizeof(*way));
}

/* The way of a packet that goes on, from @end to @out: all of it is in the cache now. */
static void qlink_learn(struct qlink_end *end, struct qlink_end *out, const struct sk_buff *skb)
{
	const struct iphdr *ip = qlink_ip(skb);
	struct flowi4 flow = { .flowi4_scope = RT_SCOPE_UNIVERSE };
	struct net *net = dev_net(out->dev);
	struct fib_table *table = rcu_dereference(net->ipv4.fib_main);
	struct fib_result found;
	struct qlink_way *way;

	/* It may have waited in a queue that now gives it, having come from elsewhere. */
	if (!ip || !table || skb->skb_iif != end->dev->ifindex || !net_eq(net, dev_net(end->dev)))
		return;
	if (!end->ways)
		end->ways = kcalloc(QLINK_WAYS, sizeof(*end->ways), GFP_ATOMIC | __GFP_NOWARN);
	if (!end->ways)
		return;
	way = qlink_way(end, ip->daddr);
	if (way->to == ip->daddr && way->out == out && way->generation == qlink_generation &&
	    way->genid == rt_genid_ipv4(net))
		return;
	qlink_forget_way(way);
	way->to = ip->daddr;
	way->out = out;
	way->generation = qlink_generation;
	way->genid = rt_genid_ipv4(net);
	flow.daddr = ip->daddr;
	if (fib_table_lookup(table, &flow, &found, FIB_LOOKUP_NOREF))
		return;
	way->lookup[0] = found.fa_head;
	way->lookup[1] = rcu_access_pointer(hlist_first_rcu(found.fa_head));
	way->lookup[2] = found.fi;
	qlink_learn_path(way, &found, net);
}

/* Where a packet of the node itself goes from @out. */
static void qlink_learn_home(struct qlink_end *out, const struct sk_buff *skb)
{
	int genid = rt_genid_ipv4(dev_net(out->dev));
	const struct iphdr *ip = qlink_ip(skb);
	const struct rtable *route;

	if (out->home_genid == genid || !ip || !sk_fullsock(skb->sk))
		return;
	route = (const struct rtable *)rcu_access_pointer(skb->sk->sk_dst_cache);
	if (!route || skb->sk->sk_family != AF_INET)
		return;
	out->home_genid = genid;
	qlink_learn_hop(&out->home, out->dev, (__force u32)(route->rt_gw_family == AF_INET ?
							   route->rt_gw4 : ip->daddr));
}

static void qlink_forget(struct qlink_end *end)
{
	unsigned int i;

	for (i = 0; end->ways && i < QLINK_WAYS; i++)
		qlink_forget_way(&end->ways[i]);
	kfree(end->ways);
	end->ways = NULL;
}

/* The route of a frame that @end has got, if it is known; else the stack looks for it. */
static struct rtable *qlink_route(struct qlink_end *end, const struct sk_buff *skb)
{
	const struct iphdr *ip = end->ways ? qlink_ip(skb) : NULL;
	struct net *net = dev_net(end->dev);
	const struct qlink_way *way;
	struct in_device *in_dev;

	if (!ip || ip->tos & ~INET_ECN_MASK)
		return NULL;
	way = qlink_way(end, ip->daddr);
	if (way->to != ip->daddr || !way->route || way->route->dst.dev == end->dev ||
	    !qlink_route_holds(way->route, net) ||
	    !netif_carrier_ok(way->route->dst.dev))
		return NULL;
	if (ipv4_is_multicast(ip->saddr) || ipv4_is_lbcast(ip->saddr) ||
	    ipv4_is_zeronet(ip->saddr) || ipv4_is_loopback(ip->saddr))
		return NULL;
	in_dev = __in_dev_get_rcu(end->dev);
	if (!in_dev || !IN_DEV_FORWARD(in_dev) || IN_DEV_RPFILTER(in_dev) ||
	    !IN_DEV_ACCEPT_LOCAL(in_dev) || READ_ONCE(net->ipv4.sysctl_ip_early_demux))
		return NULL;
	return way->route;
}

#endif /* _QLINK_WAY_H */
