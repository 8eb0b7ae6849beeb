/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Route cache for forwarded packets. The result of a route lookup for an
 * address is valid until a route, an address or a setting of the node changes,
 * so a packet can use the route of the last packet to the same address. Linux
 * does this for packets that are received together (ip_route_use_hint(),
 * net/ipv4/route.c), with weaker conditions. The cache is used only where
 * nothing but the destination address determines the route: no policy rules, a
 * single path, no source filter (including local addresses), no DSCP, and no
 * early demux.
 */
#ifndef _QLINK_ROUTE_H
#define _QLINK_ROUTE_H

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

static u32 qlink_generation;		/* incremented when a link is removed */
static struct qlink_end *qlink_rx_end;	/* end whose frame the stack is processing */

/* Returns the IPv4 header if it has no options and follows an Ethernet header, else NULL. */
static inline const struct iphdr *qlink_ip(const struct sk_buff *skb)
{
	const struct ethhdr *eth = (const struct ethhdr *)skb->data;
	const struct iphdr *ip = (const struct iphdr *)(eth + 1);

	if (skb_headlen(skb) < sizeof(*eth) + sizeof(*ip) + sizeof(struct tcphdr) ||
	    eth->h_proto != htons(ETH_P_IP) || ip->ihl != 5)
		return NULL;
	return ip;
}

/* Addresses that are 1, 2, 4 or 256 apart map to different slots. */
static inline struct qlink_route *qlink_route_slot(const struct qlink_end *end, __be32 to)
{
	u32 address = ntohl(to);

	return &end->routes[(address + address / 4 + address / 256) % QLINK_ROUTES];
}

static bool qlink_rtable_is_valid(const struct rtable *route, struct net *net)
{
	return route->dst.obsolete == DST_OBSOLETE_FORCE_CHK &&
	       route->rt_genid == rt_genid_ipv4(net);
}

#ifdef QLINK_HAVE_HASH_HEADS

static const void *qlink_neigh_bucket(const struct neigh_hash_table *table, u32 hash)
{
	return &table->hash_heads[hash];
}

static const struct neighbour *qlink_neigh_first(const struct neigh_hash_table *table, u32 hash)
{
	return hlist_entry_safe(rcu_dereference(hlist_first_rcu(&table->hash_heads[hash])),
				struct neighbour, hash);
}

static const struct neighbour *qlink_neigh_next(const struct neighbour *neighbour)
{
	return hlist_entry_safe(rcu_dereference(hlist_next_rcu(&neighbour->hash)),
				struct neighbour, hash);
}

#else

static const void *qlink_neigh_bucket(const struct neigh_hash_table *table, u32 hash)
{
	return &table->hash_buckets[hash];
}

static const struct neighbour *qlink_neigh_first(const struct neigh_hash_table *table, u32 hash)
{
	return rcu_dereference(table->hash_buckets[hash]);
}

static const struct neighbour *qlink_neigh_next(const struct neighbour *neighbour)
{
	return rcu_dereference(neighbour->next);
}

#endif

/* Records the cache lines that __ipv4_neigh_lookup_noref() accesses. */
static void qlink_hop_learn(struct qlink_hop *hop, const struct net_device *dev, u32 key)
{
	struct neigh_hash_table *table = rcu_dereference(arp_tbl.nht);
	u32 hash = arp_hashfn(&key, dev, table->hash_rnd) >> (32 - table->hash_shift);
	const struct neighbour *n;
	unsigned int before = 0;

	memset(hop, 0, sizeof(*hop));
	hop->key = key;
	hop->neighbours = atomic_read(&arp_tbl.entries);
	hop->list = qlink_neigh_bucket(table, hash);
	for (n = qlink_neigh_first(table, hash); n; n = qlink_neigh_next(n)) {
		if (n->dev == dev && *(const u32 *)n->primary_key == key) {
			hop->neighbour = n;
			return;
		}
		if (before < ARRAY_SIZE(hop->before))
			hop->before[before++] = n;
	}
}

/* A new neighbour is inserted before the others of its bucket, or into a larger table. */
static inline bool qlink_hop_is_current(const struct qlink_hop *hop)
{
	return hop->neighbours == atomic_read(&arp_tbl.entries);
}

static void qlink_route_learn_path(struct qlink_route *cached, const struct fib_result *found, struct net *net)
{
	unsigned int i, paths = fib_info_num_path(found->fi);
	struct net_device *dev = cached->out->dev;

	for (i = 0; i < paths; i++) {
		struct fib_nh_common *hop = fib_info_nhc(found->fi, i);
		struct rtable *route = rcu_dereference(hop->nhc_rth_input);
		u32 key;

		if (hop->nhc_dev != dev)
			continue;
		key = (__force u32)(hop->nhc_gw_family == AF_INET ? hop->nhc_gw.ipv4 : cached->daddr);
		cached->lookup[3] = hop;
		cached->lookup[4] = route;
		qlink_hop_learn(&cached->hop, dev, key);
		if (paths == 1 && found->type == RTN_UNICAST && !net->ipv4.fib_has_custom_rules &&
		    !rcu_access_pointer(hop->nhc_exceptions) && route &&
		    qlink_rtable_is_valid(route, net) && dst_hold_safe(&route->dst))
			cached->rt = route;
		return;
	}
}

static void qlink_route_clear(struct qlink_route *cached)
{
	if (cached->rt)
		dst_release(&cached->rt->dst);
	memset(cached, 0, sizeof(*cached));
}

/*
 * Caches the forwarding decision of a packet from @end to @out, while its data
 * is in the CPU cache.
 */
static void qlink_route_learn(struct qlink_end *end, struct qlink_end *out, const struct sk_buff *skb)
{
	const struct iphdr *ip = qlink_ip(skb);
	struct flowi4 flow = { .flowi4_scope = RT_SCOPE_UNIVERSE };
	struct net *net = dev_net(out->dev);
	struct fib_table *table = rcu_dereference(net->ipv4.fib_main);
	struct fib_result found;
	struct qlink_route *cached;

	/* The packet may have been queued before, and received on another device. */
	if (!ip || !table || skb->skb_iif != end->dev->ifindex || !net_eq(net, dev_net(end->dev)))
		return;
	if (!end->routes)
		end->routes = kcalloc(QLINK_ROUTES, sizeof(*end->routes), GFP_ATOMIC | __GFP_NOWARN);
	if (!end->routes)
		return;
	cached = qlink_route_slot(end, ip->daddr);
	if (cached->daddr == ip->daddr && cached->out == out && cached->generation == qlink_generation &&
	    cached->genid == rt_genid_ipv4(net)) {
		if (unlikely(!qlink_hop_is_current(&cached->hop)))
			qlink_hop_learn(&cached->hop, out->dev, cached->hop.key);
		return;
	}
	qlink_route_clear(cached);
	cached->daddr = ip->daddr;
	cached->out = out;
	cached->generation = qlink_generation;
	cached->genid = rt_genid_ipv4(net);
	flow.daddr = ip->daddr;
	if (fib_table_lookup(table, &flow, &found, FIB_LOOKUP_NOREF))
		return;
	cached->lookup[0] = found.fa_head;
	cached->lookup[1] = rcu_access_pointer(hlist_first_rcu(found.fa_head));
	cached->lookup[2] = found.fi;
	qlink_route_learn_path(cached, &found, net);
}

/*
 * Caches the neighbour lookup of a locally generated packet sent on @out, again
 * after some packets, as the route may change.
 */
static void qlink_local_hop_learn(struct qlink_end *out, const struct sk_buff *skb)
{
	const struct rtable *route;
	const struct iphdr *ip;

	if (likely(qlink_hop_is_current(&out->local_hop) && out->stats.sent % 256))
		return;
	ip = qlink_ip(skb);
	if (!ip || !sk_fullsock(skb->sk))
		return;
	route = (const struct rtable *)rcu_access_pointer(skb->sk->sk_dst_cache);
	if (!route || skb->sk->sk_family != AF_INET)
		return;
	qlink_hop_learn(&out->local_hop, out->dev, (__force u32)(route->rt_gw_family == AF_INET ?
							   route->rt_gw4 : ip->daddr));
}

static void qlink_routes_free(struct qlink_end *end)
{
	unsigned int i;

	for (i = 0; end->routes && i < QLINK_ROUTES; i++)
		qlink_route_clear(&end->routes[i]);
	kfree(end->routes);
	end->routes = NULL;
}

/*
 * Returns the cached route of a frame received on @end, or NULL if the stack
 * has to look it up.
 */
static struct rtable *qlink_route_lookup(struct qlink_end *end, const struct sk_buff *skb)
{
	const struct iphdr *ip = end->routes ? qlink_ip(skb) : NULL;
	struct net *net = dev_net(end->dev);
	const struct qlink_route *cached;
	struct in_device *in_dev;

	if (!ip || ip->tos & ~INET_ECN_MASK)
		return NULL;
	cached = qlink_route_slot(end, ip->daddr);
	if (cached->daddr != ip->daddr || !cached->rt || cached->rt->dst.dev == end->dev ||
	    !qlink_rtable_is_valid(cached->rt, net) ||
	    !netif_carrier_ok(cached->rt->dst.dev))
		return NULL;
	if (ipv4_is_multicast(ip->saddr) || ipv4_is_lbcast(ip->saddr) ||
	    ipv4_is_zeronet(ip->saddr) || ipv4_is_loopback(ip->saddr))
		return NULL;
	in_dev = __in_dev_get_rcu(end->dev);
	if (!in_dev || !IN_DEV_FORWARD(in_dev) || IN_DEV_RPFILTER(in_dev) ||
	    !IN_DEV_ACCEPT_LOCAL(in_dev) || READ_ONCE(net->ipv4.sysctl_ip_early_demux))
		return NULL;
	return cached->rt;
}

#endif /* _QLINK_ROUTE_H */
