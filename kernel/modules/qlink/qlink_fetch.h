/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Prefetching. With a thousand nodes all cache lines that a frame needs at its
 * next stop, some thirty, were last used a thousand deadlines ago. Since the
 * agenda lists the following deadlines, their cache lines are prefetched while
 * others are processed, in steps that follow the pointers fetched by the
 * previous step.
 *
 * Nothing is modified here. Everything that is read belongs to a frame or a
 * device that exists until its deadline, or is protected by RCU. The output
 * port of a packet is that of the last packet to its address (qlink_route.h).
 */
#ifndef _QLINK_FETCH_H
#define _QLINK_FETCH_H

#include <linux/ip.h>
#include <linux/prefetch.h>
#include <linux/tcp.h>
#include <net/inet_hashtables.h>
#include <net/tcp.h>

#include "qlink_agenda.h"
#include "qlink_end.h"
#include "qlink_route.h"

#define QLINK_FETCH_STEPS 11u

static inline void qlink_prefetch(const void *begin, size_t length)
{
	const char *line = PTR_ALIGN_DOWN((const char *)begin, L1_CACHE_BYTES);

	for (; line < (const char *)begin + length; line += L1_CACHE_BYTES)
		prefetchw(line);
}

static inline void qlink_prefetch_skb(const struct sk_buff *skb)
{
	qlink_prefetch(skb, sizeof(*skb));
}

static void qlink_prefetch_dev(const struct net_device *dev)
{
	qlink_prefetch(dev, 192);
	prefetch(&dev->nd_net);
	prefetch(&dev->ptype_all);
}

static void qlink_prefetch_hop(const struct qlink_hop *hop)
{
	unsigned int i;

	prefetch(hop->list);
	for (i = 0; i < ARRAY_SIZE(hop->before) && hop->before[i]; i++) {
		prefetch(hop->before[i]);
		prefetch(&((const struct neighbour *)hop->before[i])->dev);
	}
	qlink_prefetch(hop->neighbour, sizeof(struct neighbour));
}

static void qlink_prefetch_dst(const struct dst_entry *dst)
{
	qlink_prefetch(dst, sizeof(struct rtable));
}

/*
 * Prefetches the paths to the first and the last packet in the tree of
 * unacknowledged packets: from the root down and from these packets up.
 */
static void qlink_fetch_unacknowledged(const struct sock *sk, unsigned int depth)
{
	const struct list_head *sent = &tcp_sk(sk)->tsorted_sent_queue;
	const struct rb_node *first = sk->tcp_rtx_queue.rb_node, *last = first;
	const struct rb_node *oldest, *newest;

	if (!first || list_empty(sent))
		return;
	oldest = &list_entry(sent->next, struct sk_buff, tcp_tsorted_anchor)->rbnode;
	newest = &list_entry(sent->prev, struct sk_buff, tcp_tsorted_anchor)->rbnode;
	for (; depth; depth--) {
		first = first ? first->rb_left : NULL;
		last = last ? last->rb_right : NULL;
		oldest = oldest ? rb_parent(oldest) : NULL;
		newest = newest ? rb_parent(newest) : NULL;
	}
	prefetchw(first);
	prefetchw(last);
	prefetchw(oldest);
	prefetchw(newest);
}

/* Prefetches for a socket that is about to send. */
static void qlink_fetch_sender(const struct sock *sk, unsigned int depth)
{
	if (!depth) {
		qlink_prefetch_skb((const struct sk_buff *)sk->sk_write_queue.next);
		qlink_prefetch_dst(rcu_access_pointer(sk->sk_dst_cache));
	}
	qlink_fetch_unacknowledged(sk, depth);
}

/* A frame leaves the transmitter and the next one is dequeued. */

static inline struct Qdisc *qlink_qdisc(const struct qlink_end *end)
{
	return rcu_dereference(end->dev->_tx->qdisc);
}

static void qlink_fetch_observer(struct qlink_end *end, bool second)
{
	if (end->link.observer)
		end->link.observer->prefetch_dequeue(end->link.observer, second);
}

/* Returns the socket throttled by TCP small queues until @skb is sent, or NULL. */
static const struct sock *qlink_throttled_sock(const struct sk_buff *skb)
{
	const struct sock *sk = skb->sk;

	if (!sk || !sk_fullsock(sk) || sk->sk_protocol != IPPROTO_TCP ||
	    !test_bit(TSQ_THROTTLED, &sk->sk_tsq_flags))
		return NULL;
	return sk;
}

static void qlink_fetch_leaving(struct qlink_end *end, unsigned int step)
{
	const struct sock *sk;
	struct Qdisc *q;

	if (step >= 3) {
		sk = qlink_throttled_sock(end->serializing);
		if (sk && step == 3) {
			qlink_prefetch(sk, sizeof(struct tcp_sock));
			qlink_prefetch_hop(&end->local_hop);
		} else if (sk) {
			qlink_fetch_sender(sk, step - 4);
		}
	}

	switch (step) {
	case 1:
		qlink_prefetch_skb(end->serializing);
		qlink_prefetch_dev(end->dev);
		prefetch(end->link.observer);
		prefetchw(end->flight_tail);
		break;
	case 2:
		qlink_prefetch(end->dev->_tx, 192);
		qlink_fetch_observer(end, false);
		if (end->serializing->sk)
			qlink_prefetch(end->serializing->sk, sizeof(struct sock));
		break;
	case 3:
		qlink_prefetch(qlink_qdisc(end), sizeof(struct Qdisc));
		break;
	case 4:
		q = qlink_qdisc(end);
		if (q->q.head)
			qlink_prefetch_skb(q->q.head);
		qlink_fetch_observer(end, true);
		break;
	case 5:
		q = qlink_qdisc(end);
		if (q->q.head) {
			prefetchw(q->q.head->next);
			qlink_prefetch(q->q.head->data, 64);
			prefetchw(skb_end_pointer(q->q.head));
		}
		break;
	}
}

/* A frame arrives. */

/* Hash bucket of the frame's connection, or NULL if it is not TCP. */
static struct inet_ehash_bucket *qlink_bucket(const struct iphdr *ip, struct net *net)
{
	const struct tcphdr *tcp = (const struct tcphdr *)(ip + 1);

	if (ip->protocol != IPPROTO_TCP)
		return NULL;
	return inet_ehash_bucket(net->ipv4.tcp_death_row.hashinfo,
				 inet_ehashfn(net, ip->daddr, ntohs(tcp->dest),
					      ip->saddr, tcp->source));
}

/* The first connection of a bucket, nearly always the only one. */
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

static void qlink_fetch_route(struct qlink_route *cached, unsigned int step)
{
	struct qlink_end *out = cached->out;
	unsigned int i;

	if (cached->generation != qlink_generation || !out)
		return;
	switch (step) {
	case 4:
		qlink_prefetch(out, 320);
		if (cached->rt)
			qlink_prefetch_dst(&cached->rt->dst);
		else
			for (i = 0; i < ARRAY_SIZE(cached->lookup); i++)
				qlink_prefetch(cached->lookup[i], 128);
		break;
	case 5:
		qlink_prefetch_dev(out->dev);
		qlink_prefetch_hop(&cached->hop);
		prefetch(out->link.observer);
		break;
	case 6:
		qlink_prefetch(out->dev->_tx, 192);
		qlink_fetch_observer(out, false);
		break;
	case 7:
		qlink_prefetch(qlink_qdisc(out), sizeof(struct Qdisc));
		qlink_fetch_observer(out, true);
		break;
	}
}

static void qlink_fetch_socket(struct sock *sk, const struct sk_buff *skb, unsigned int step)
{
	if (step == 4) {
		qlink_prefetch(sk, sizeof(struct tcp_sock));
		if (skb_shinfo(skb)->nr_frags)
			qlink_prefetch(skb_frag_address(skb_shinfo(skb)->frags), 256);
		return;
	}
	if (!sk_fullsock(sk))
		return;
	if (step == 5) {
		prefetchw(sk->sk_receive_queue.prev);
		qlink_prefetch_dst(rcu_access_pointer(sk->sk_rx_dst));
	}
	if (step == 6 && rcu_access_pointer(sk->sk_rx_dst))
		prefetch(&rcu_access_pointer(sk->sk_rx_dst)->dev->nd_net);
	qlink_fetch_sender(sk, step - 5);
}

/* Prefetches the per-device and per-namespace data that every IPv4 packet uses. */
static void qlink_prefetch_node(const struct net_device *dev, struct net *net)
{
	const struct in_device *in_dev = rcu_access_pointer(dev->ip_ptr);

	prefetch(dev->dev_addr);
	prefetch(in_dev);
	prefetch(&in_dev->cnf.data[IPV4_DEVCONF_RP_FILTER - 1]);
	prefetch(&in_dev->cnf.data[IPV4_DEVCONF_NOPOLICY - 1]);
	prefetch(&in_dev->cnf.data[IPV4_DEVCONF_ACCEPT_LOCAL - 1]);
	prefetch(&net->mib);
	prefetch(&net->ipv4);
	prefetch(&net->ipv4.devconf_all);
	prefetch(&net->ipv4.rt_genid);
	prefetch(&net->ipv4.sysctl_ip_fwd_use_pmtu);
	prefetch(&net->ipv4.sysctl_ip_early_demux);
	prefetch(&net->nf.hooks_ipv4[NF_INET_PRE_ROUTING]);
}

static void qlink_prefetch_node_indirect(struct net *net)
{
	const struct ipstats_mib *mib = raw_cpu_ptr(net->mib.ip_statistics);

	prefetch(&net->ipv4.devconf_all->data[IPV4_DEVCONF_RP_FILTER - 1]);
	prefetch(&net->ipv4.devconf_all->data[IPV4_DEVCONF_NOPOLICY - 1]);
	prefetchw(&mib->mibs[IPSTATS_MIB_INPKTS]);
	prefetchw(&mib->mibs[IPSTATS_MIB_OUTPKTS]);
	prefetchw(&mib->mibs[IPSTATS_MIB_NOECTPKTS]);
}

static void qlink_fetch_arriving(struct qlink_end *end, unsigned int step)
{
	struct sk_buff *skb = end->flight_head;
	struct qlink_end *peer = end->peer;
	const struct iphdr *ip;
	struct sock *sk;

	if (!peer)
		return;
	switch (step) {
	case 1:
		qlink_prefetch_skb(skb);
		qlink_prefetch(peer, sizeof(*peer));
		return;
	case 2:
		qlink_prefetch(skb->data, 128);
		prefetchw(skb_end_pointer(skb));
		qlink_prefetch_dev(peer->dev);
		qlink_prefetch((const char *)peer->dev + 192, 192);
		prefetch(&peer->dev->ip_ptr);
		prefetch(&peer->dev->dev_addr);
		return;
	case 3:
		qlink_prefetch_node(peer->dev, dev_net(peer->dev));
		prefetch(virt_to_page(skb->head));
		ip = qlink_ip(skb);
		end->bucket = NULL;
		if (ip && peer->routes) {
			qlink_prefetch(qlink_route_slot(peer, ip->daddr), sizeof(struct qlink_route));
		} else if (ip) {
			end->bucket = qlink_bucket(ip, dev_net(peer->dev));
			prefetch(end->bucket);
			qlink_prefetch_hop(&peer->local_hop);
		}
		return;
	case 4:
		qlink_prefetch_node_indirect(dev_net(peer->dev));
		break;
	}
	sk = qlink_socket(end->bucket);
	if (sk) {
		qlink_fetch_socket(sk, skb, step);
	} else if (peer->routes) {
		ip = qlink_ip(skb);
		if (ip && qlink_route_slot(peer, ip->daddr)->daddr == ip->daddr)
			qlink_fetch_route(qlink_route_slot(peer, ip->daddr), step);
	}
}

static void qlink_fetch(struct qlink_agenda *agenda)
{
	unsigned int step;

	for (step = 0; step < QLINK_FETCH_STEPS; step++) {
		const struct qlink_deadline *deadline =
			qlink_agenda_at(agenda, QLINK_FETCH_STEPS + 1 - step);
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
