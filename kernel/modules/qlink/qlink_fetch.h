/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fetching ahead. Among a thousand nodes a frame finds nothing in the cache: what
 * it needs at its next stop, some thirty lines, has last been used a thousand
 * deadlines ago, and each of them is waited for. But the agenda tells who comes
 * next: while others are served, what a deadline needs is fetched in steps, each
 * of which follows the pointers that the one before has fetched.
 *
 * Nothing is changed here and nothing is waited for; whatever is read belongs to
 * a frame or a device that cannot go before its deadline, or is under RCU.
 */
#ifndef _QLINK_FETCH_H
#define _QLINK_FETCH_H

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/prefetch.h>
#include <linux/tcp.h>
#include <net/arp.h>
#include <net/ip_fib.h>
#include <net/nexthop.h>
#include <net/inet_hashtables.h>
#include <net/tcp.h>

#include "qlink_agenda.h"
#include "qlink_end.h"

/* Deadlines between two steps. */
#define QLINK_FETCH_STRIDE 2u

static inline void qlink_prefetch(const void *begin, size_t length)
{
	const char *line = begin;

	for (; line < (const char *)begin + length; line += L1_CACHE_BYTES)
		prefetchw(line);
}

static inline void qlink_prefetch_skb(const struct sk_buff *skb)
{
	qlink_prefetch(skb, sizeof(*skb));
}

/* A frame leaves the transmitter, and the qdisc gives the next one. */

static inline struct Qdisc *qlink_qdisc(const struct qlink_end *end)
{
	return rcu_dereference(end->dev->_tx->qdisc);
}

static void qlink_fetch_leaving(struct qlink_end *end, unsigned int step)
{
	struct Qdisc *q;

	switch (step) {
	case 1:
		qlink_prefetch_skb(end->serializing);
		qlink_prefetch(end->dev, 192);
		if (end->link.watch)
			end->link.watch->soon(end->link.watch, false);
		break;
	case 2:
		qlink_prefetch(end->dev->_tx, 192);
		if (end->serializing->sk)
			qlink_prefetch(end->serializing->sk, 448);
		break;
	case 3:
		qlink_prefetch(qlink_qdisc(end), sizeof(struct Qdisc));
		break;
	case 4:
		q = qlink_qdisc(end);
		if (q->q.head)
			qlink_prefetch_skb(q->q.head);
		if (end->link.watch)
			end->link.watch->soon(end->link.watch, true);
		break;
	case 5:
		q = qlink_qdisc(end);
		if (q->q.head) {
			prefetchw(q->q.head->next);
			prefetchw(q->q.head->data);
			prefetchw(skb_end_pointer(q->q.head));
		}
		break;
	}
}

/* A frame arrives. */

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

/* Where the frame's connection is listed, if it is one of IPv4's TCP. */
static struct inet_ehash_bucket *qlink_bucket(const struct iphdr *ip, struct net *net)
{
	const struct tcphdr *tcp = (const struct tcphdr *)(ip + 1);

	if (ip->protocol != IPPROTO_TCP)
		return NULL;
	return inet_ehash_bucket(net->ipv4.tcp_death_row.hashinfo,
				 inet_ehashfn(net, ip->daddr, ntohs(tcp->dest),
					      ip->saddr, tcp->source));
}

/* The first connection of a bucket, which nearly always is the only one. */
static struct sock *qlink_socket(const struct inet_ehash_bucket *bucket)
{
	struct hlist_nulls_node *node;

	if (!bucket)
		return NULL;
	node = rcu_dereference(bucket->chain.first);
	if (is_a_nulls(node))
		return NULL;
	return hlist_nulls_entry(node, struct sock, sk_nulls_node);
}

static struct qlink_way *qlink_way(struct qlink_end *end, __be32 to)
{
	return &end->ways[ntohl(to) / 4 % QLINK_WAYS];
}

/* The way of a packet that goes on, from @end to @out: all of it is in the cache now. */
static void qlink_learn(struct qlink_end *end, struct qlink_end *out, const struct sk_buff *skb)
{
	const struct iphdr *ip = qlink_ip(skb);
	struct flowi4 flow = { .flowi4_scope = RT_SCOPE_UNIVERSE };
	struct fib_table *table = rcu_dereference(dev_net(out->dev)->ipv4.fib_main);
	struct qlink_way *way;
	struct fib_result result;
	unsigned int i;

	if (!ip || !table)
		return;
	way = qlink_way(end, ip->daddr);
	if (way->to == ip->daddr && way->out == out && way->generation == qlink_generation)
		return;
	*way = (struct qlink_way) {
		.to = ip->daddr, .generation = qlink_generation, .out = out,
	};
	flow.daddr = ip->daddr;
	if (fib_table_lookup(table, &flow, &result, FIB_LOOKUP_NOREF))
		return;
	way->route = result.fa_head;
	way->alias = rcu_access_pointer(hlist_first_rcu(result.fa_head));
	way->info = result.fi;
	for (i = 0; i < fib_info_num_path(result.fi); i++) {
		struct fib_nh_common *hop = fib_info_nhc(result.fi, i);

		if (hop->nhc_dev != out->dev)
			continue;
		way->hop = hop;
		way->cached = rcu_access_pointer(hop->nhc_rth_input);
		way->neighbour = __ipv4_neigh_lookup_noref(out->dev,
			hop->nhc_gw_family == AF_INET ? (__force u32)hop->nhc_gw.ipv4 :
							(__force u32)ip->daddr);
		break;
	}
}

static void qlink_fetch_way(struct qlink_way *way, unsigned int step)
{
	struct qlink_end *out = way->out;

	if (way->generation != qlink_generation || !out)
		return;
	switch (step) {
	case 4:
		prefetch(way->route);
		prefetch(way->alias);
		prefetch(way->info);
		qlink_prefetch(way->hop, 128);
		qlink_prefetch(way->cached, 128);
		qlink_prefetch(way->neighbour, sizeof(struct neighbour));
		qlink_prefetch(out, 256);
		break;
	case 5:
		qlink_prefetch(out->dev, 192);
		if (out->link.watch)
			out->link.watch->soon(out->link.watch, false);
		break;
	case 6:
		qlink_prefetch(out->dev->_tx, 192);
		if (out->link.watch)
			out->link.watch->soon(out->link.watch, true);
		break;
	case 7:
		qlink_prefetch(qlink_qdisc(out), sizeof(struct Qdisc));
		break;
	}
}

static void qlink_fetch_socket(struct sock *sk, const struct sk_buff *skb, unsigned int step)
{
	struct rb_node *node;

	if (step == 4) {
		qlink_prefetch(sk, sizeof(struct tcp_sock));
		if (skb_shinfo(skb)->nr_frags)
			qlink_prefetch(skb_frag_address(skb_shinfo(skb)->frags), 256);
		return;
	}
	if (!sk_fullsock(sk))
		return;
	node = sk->tcp_rtx_queue.rb_node;
	switch (step) {
	case 5:
		prefetchw(node);
		qlink_prefetch_skb((struct sk_buff *)sk->sk_write_queue.next);
		prefetchw(sk->sk_receive_queue.prev);
		prefetchw(rcu_access_pointer(sk->sk_rx_dst));
		prefetchw(rcu_access_pointer(sk->sk_dst_cache));
		break;
	case 6:
		if (node) {
			prefetchw(node->rb_left);
			prefetchw(node->rb_right);
		}
		break;
	case 7:
		if (node && node->rb_right)
			prefetchw(node->rb_right->rb_right);
		if (node && node->rb_left)
			prefetchw(node->rb_left->rb_left);
		break;
	}
}

static void qlink_fetch_arriving(struct qlink_end *end, unsigned int step)
{
	struct sk_buff *skb = end->flight_head;
	struct qlink_end *peer = end->peer;
	const struct iphdr *ip;
	struct sock *sk;
	struct net *net;

	if (!peer)
		return;
	switch (step) {
	case 1:
		qlink_prefetch_skb(skb);
		qlink_prefetch(peer, 128);
		return;
	case 2:
		qlink_prefetch(skb->data, 128);
		prefetchw(skb_end_pointer(skb));
		prefetchw(skb->next);
		qlink_prefetch(peer->dev, 384);
		return;
	case 3:
		prefetch(rcu_access_pointer(peer->dev->ip_ptr));
		prefetch(peer->dev->dev_addr);
		net = dev_net(peer->dev);
		prefetch(&net->mib);
		prefetch(&net->ipv4);
		prefetch(virt_to_page(skb->head));
		ip = qlink_ip(skb);
		end->bucket = NULL;
		if (ip) {
			end->bucket = qlink_bucket(ip, net);
			prefetch(end->bucket);
			prefetch(qlink_way(peer, ip->daddr));
		}
		return;
	}
	sk = qlink_socket(end->bucket);
	if (sk) {
		qlink_fetch_socket(sk, skb, step);
	} else {
		ip = qlink_ip(skb);
		if (ip && qlink_way(peer, ip->daddr)->to == ip->daddr)
			qlink_fetch_way(qlink_way(peer, ip->daddr), step);
	}
}

static void qlink_fetch(struct qlink_agenda *agenda)
{
	unsigned int step, steps = QLINK_NEAR / QLINK_FETCH_STRIDE;

	for (step = 0; step < steps; step++) {
		const struct qlink_deadline *deadline =
			qlink_agenda_at(agenda, QLINK_NEAR - 1 - QLINK_FETCH_STRIDE * step);
		struct qlink_end *end;

		if (!deadline)
			continue;
		end = (struct qlink_end *)(deadline->owner & QLINK_OWNER_MASK);
		if (!step)
			qlink_prefetch(end, sizeof(*end));
		else if (deadline->owner & QLINK_ARRIVED)
			qlink_fetch_arriving(end, step);
		else
			qlink_fetch_leaving(end, step);
	}
}

#endif /* _QLINK_FETCH_H */
