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
#include <linux/tcp.h>
#include <net/inet_hashtables.h>
#include <net/tcp.h>

#include <qbed/prefetch.h>

#include "qlink_agenda.h"
#include "qlink_end.h"
#include "qlink_route.h"

#define QLINK_FETCH_STEPS 11u

/* Ethernet, IPv4, and TCP with timestamps. */
#define QLINK_HEADERS (ETH_HLEN + 20 + 32)

static inline void qlink_prefetch(const void *begin, size_t length)
{
	const char *line = PTR_ALIGN_DOWN((const char *)begin, L1_CACHE_BYTES);

	for (; line < (const char *)begin + length; line += L1_CACHE_BYTES)
		qbed_prefetch(line);
}

static inline void qlink_prefetch_skb(const struct sk_buff *skb)
{
	qlink_prefetch(skb, sizeof(*skb));
}

/* The page structures of a packet's head, which kfree() reads, in two steps. */
static inline void qlink_fetch_head_page(const struct sk_buff *skb, bool second)
{
	qbed_prefetch(second ? virt_to_head_page(skb->head) : virt_to_page(skb->head));
}

/* Without the second line, which no packet uses. */
static void qlink_prefetch_dev(const struct net_device *dev)
{
	qbed_prefetch(dev);
	qbed_prefetch((const char *)dev + 2 * L1_CACHE_BYTES);
	qbed_prefetch(&dev->nd_net);
	qbed_prefetch(&dev->ptype_all);
}

static void qlink_prefetch_hop(const struct qlink_hop *hop)
{
	unsigned int i;

	qbed_prefetch(hop->list);
	for (i = 0; i < ARRAY_SIZE(hop->before) && hop->before[i]; i++) {
		qbed_prefetch(hop->before[i]);
		qbed_prefetch(&((const struct neighbour *)hop->before[i])->dev);
	}
	qlink_prefetch(hop->neighbour, 192);
	qbed_prefetch(&((const struct neighbour *)hop->neighbour)->dev);
}

static void qlink_prefetch_dst(const struct dst_entry *dst)
{
	qbed_prefetch(dst);
	qbed_prefetch(&((const struct rtable *)dst)->rt_genid);
}

/* Prefetches a TCP socket without the lines for multicast, listening and reordering. */
static void qlink_prefetch_socket(const struct sock *sk)
{
	const struct inet_connection_sock *connection = inet_csk(sk);
	const struct tcp_sock *tcp = tcp_sk(sk);

	qlink_prefetch(sk, offsetof(struct sock, sk_cgrp_data));
	qbed_prefetch(&inet_sk(sk)->inet_flags);
	qbed_prefetch(&inet_sk(sk)->cork.fl);
	qlink_prefetch(&connection->icsk_bind_hash,
		       (const char *)&tcp->pacing_timer - (const char *)&connection->icsk_bind_hash);
	qbed_prefetch(&tcp->high_seq);
	qbed_prefetch(&tcp->mtu_probe);
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
	qbed_prefetch(first);
	qbed_prefetch(last);
	qbed_prefetch(oldest);
	qbed_prefetch(newest);
}

/* The oldest unacknowledged packet, or NULL. */
static const struct sk_buff *qlink_oldest_sent(const struct sock *sk)
{
	const struct list_head *sent = &tcp_sk(sk)->tsorted_sent_queue;

	return list_empty(sent) ? NULL : list_first_entry(sent, struct sk_buff, tcp_tsorted_anchor);
}

/* Prefetches the packets that an acknowledgment frees and the one that is sent next. */
static void qlink_fetch_sender_packets(const struct sock *sk, unsigned int depth)
{
	const struct sk_buff *oldest = qlink_oldest_sent(sk);
	const struct sk_buff *next = skb_peek(&sk->sk_write_queue);

	if (oldest && !depth) {
		qlink_prefetch_skb(oldest);
		qbed_prefetch(&container_of(oldest, struct sk_buff_fclones, skb1)->fclone_ref);
		qbed_prefetch(tcp_sk(sk)->tsorted_sent_queue.prev);
	} else if (oldest && depth <= 2) {
		qbed_prefetch(oldest->tcp_tsorted_anchor.next);
		qbed_prefetch(skb_end_pointer(oldest));
		qlink_fetch_head_page(oldest, depth == 2);
	}
	if (next && !depth) {
		qlink_prefetch(next, sizeof(struct sk_buff_fclones));
	} else if (next && depth == 1) {
		qlink_prefetch(skb_end_pointer(next), 128);
		qlink_prefetch(next->data - QLINK_HEADERS, QLINK_HEADERS);
		qbed_prefetch(next->next);
	}
}

/* Prefetches for a socket that is about to send. */
static void qlink_fetch_sender(const struct sock *sk, unsigned int depth)
{
	if (!depth)
		qlink_prefetch_dst(rcu_access_pointer(sk->sk_dst_cache));
	qlink_fetch_sender_packets(sk, depth);
	qlink_fetch_unacknowledged(sk, depth);
}

/* Prefetches the per-device and per-namespace data that every IPv4 packet uses. */
static void qlink_prefetch_node(const struct net_device *dev, struct net *net)
{
	const struct in_device *in_dev = rcu_access_pointer(dev->ip_ptr);

	qbed_prefetch(dev->dev_addr);
	qbed_prefetch(in_dev);
	qbed_prefetch(&in_dev->cnf.data[IPV4_DEVCONF_RP_FILTER - 1]);
	qbed_prefetch(&in_dev->cnf.data[IPV4_DEVCONF_NOPOLICY - 1]);
	qbed_prefetch(&in_dev->cnf.data[IPV4_DEVCONF_ACCEPT_LOCAL - 1]);
	qbed_prefetch(&net->mib);
	qbed_prefetch(&net->ipv4.devconf_all);
	qbed_prefetch(&net->ipv4.rt_genid);
	qbed_prefetch(&net->ipv4.sysctl_ip_early_demux);
	qbed_prefetch(&net->nf.hooks_ipv4[NF_INET_PRE_ROUTING]);
	qbed_prefetch(&net->nf.hooks_ipv4[NF_INET_POST_ROUTING]);
}

static void qlink_prefetch_node_indirect(struct net *net)
{
	const struct ipstats_mib *mib = raw_cpu_ptr(net->mib.ip_statistics);

	qbed_prefetch(&net->ipv4.devconf_all->data[IPV4_DEVCONF_NOPOLICY - 1]);
	qbed_prefetch(&mib->mibs[IPSTATS_MIB_INPKTS]);
	qbed_prefetch(&mib->mibs[IPSTATS_MIB_OUTPKTS]);
	qbed_prefetch(&mib->mibs[IPSTATS_MIB_NOECTPKTS]);
}

/* Prefetches the per-namespace data that TCP uses. */
static void qlink_prefetch_host(const struct net *net)
{
	qbed_prefetch(&net->loopback_dev);
	qbed_prefetch(&net->hash_mix);
	qbed_prefetch(&net->ipv4.sysctl_tcp_shrink_window);
	qbed_prefetch(&net->ipv4.sysctl_tcp_l3mdev_accept);
	qbed_prefetch(&net->ipv4.sysctl_tcp_comp_sack_nr);
	qbed_prefetch(&net->ipv4.sysctl_tcp_pacing_ss_ratio);
	qbed_prefetch(&net->ipv4.tcp_death_row);
}

static void qlink_prefetch_host_indirect(const struct net *net)
{
	const struct tcp_mib *tcp = raw_cpu_ptr(net->mib.tcp_statistics);
	const struct linux_mib *linux_mib = raw_cpu_ptr(net->mib.net_statistics);

	qbed_prefetch(&net->loopback_dev->nd_net);
	qbed_prefetch(&tcp->mibs[TCP_MIB_INSEGS]);
	qbed_prefetch(&linux_mib->mibs[LINUX_MIB_TCPHPACKS]);
	qbed_prefetch(&linux_mib->mibs[LINUX_MIB_TCPRCVCOALESCE]);
	qbed_prefetch(&linux_mib->mibs[LINUX_MIB_TCPORIGDATASENT]);
	qbed_prefetch(&linux_mib->mibs[LINUX_MIB_TCPDELIVERED]);
}

/* A frame leaves the transmitter and the next one is dequeued. */

static inline struct Qdisc *qlink_qdisc(const struct qlink_end *end)
{
	return rcu_dereference(end->dev->_tx->qdisc);
}

/*
 * The queue and the tap of a transmitter whose end and device were prefetched,
 * in three steps.
 */
static void qlink_fetch_output(struct qlink_end *end, unsigned int step)
{
	struct qbed_observer *observer = end->link.observer;

	if (step == 0)
		qlink_prefetch(end->dev->_tx, 192);
	else if (step == 1)
		qlink_prefetch(qlink_qdisc(end), 256);
	else if (step == 2)
		qbed_prefetch(qlink_qdisc(end)->q.tail);
	if (!observer)
		return;
	if (step == 0)
		qbed_prefetch(&observer->prefetch_dequeue);
	else if (step <= 2)
		observer->prefetch_dequeue(observer, step == 2);
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

/* Prefetches what a socket's packet accesses when it leaves the transmitter. */
static void qlink_prefetch_released(const struct sock *sk)
{
	qbed_prefetch(&sk->sk_state);
	qbed_prefetch(&sk->sk_wmem_alloc);
	qbed_prefetch(&sk->sk_tsq_flags);
	qbed_prefetch(&sk->sk_protocol);
}

static void qlink_fetch_throttled(struct qlink_end *end, const struct sock *sk, unsigned int step)
{
	if (step == 3) {
		qlink_prefetch_socket(sk);
		qbed_prefetch(&end->local_hop);
		qlink_prefetch_node(end->dev, dev_net(end->dev));
		qlink_prefetch_host(dev_net(end->dev));
		return;
	}
	if (step == 4) {
		qlink_prefetch_hop(&end->local_hop);
		qlink_prefetch_node_indirect(dev_net(end->dev));
		qlink_prefetch_host_indirect(dev_net(end->dev));
	}
	qlink_fetch_sender(sk, step - 4);
}

static void qlink_fetch_leaving(struct qlink_end *end, unsigned int step)
{
	const struct sk_buff *skb = end->serializing, *next;
	const struct sock *sk = step >= 3 ? qlink_throttled_sock(skb) : NULL;

	if (sk)
		qlink_fetch_throttled(end, sk, step);
	if (step >= 2)
		qlink_fetch_output(end, step - 2);

	switch (step) {
	case 1:
		qlink_prefetch_skb(skb);
		qlink_prefetch_dev(end->dev);
		break;
	case 2:
		if (skb->sk)
			qlink_prefetch_released(skb->sk);
		break;
	case 4:
		next = qlink_qdisc(end)->q.head;
		if (next)
			qlink_prefetch_skb(next);
		break;
	case 5:
		next = qlink_qdisc(end)->q.head;
		if (next) {
			qlink_prefetch(next->data + ETH_HLEN, sizeof(struct iphdr));
			qbed_prefetch(skb_end_pointer(next));
		}
		if (end->flight_tail)
			qlink_prefetch(end->flight_tail->cb, 32);
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
		qlink_prefetch(out, 192);
		if (cached->rt)
			qlink_prefetch_dst(&cached->rt->dst);
		else
			for (i = 0; i < ARRAY_SIZE(cached->lookup); i++)
				qlink_prefetch(cached->lookup[i], 128);
		break;
	case 5:
		qlink_prefetch_dev(out->dev);
		qlink_prefetch_hop(&cached->hop);
		break;
	case 6:
	case 7:
	case 8:
		qlink_fetch_output(out, step - 6);
		break;
	}
}

static void qlink_fetch_socket(const struct sock *sk, unsigned int step)
{
	const struct sk_buff *last;

	if (step == 0) {
		qlink_prefetch_socket(sk);
		return;
	}
	if (!sk_fullsock(sk))
		return;
	last = skb_peek_tail(&sk->sk_receive_queue);
	switch (step) {
	case 1:
		if (last)
			qlink_prefetch_skb(last);
		qbed_prefetch(sk->sk_socket);
		qlink_prefetch_dst(rcu_access_pointer(sk->sk_rx_dst));
		break;
	case 2:
		if (last)
			qbed_prefetch(skb_end_pointer(last));
		break;
	case 3:
		if (last)
			qbed_prefetch(&skb_shinfo(last)->frags[skb_shinfo(last)->nr_frags]);
		break;
	}
	qlink_fetch_sender(sk, step - 1);
}

/* A packet that @peer's node forwards. */
static void qlink_fetch_forwarded(struct qlink_end *peer, const struct sk_buff *skb, unsigned int step)
{
	const struct iphdr *ip = qlink_ip(skb);

	if (ip && qlink_route_slot(peer, ip->daddr)->daddr == ip->daddr)
		qlink_fetch_route(qlink_route_slot(peer, ip->daddr), step);
}

/* A packet for the node of @end's peer, which may reply. */
static void qlink_fetch_received(struct qlink_end *end, const struct sk_buff *skb, unsigned int step)
{
	struct qlink_end *peer = end->peer;
	struct net *net = dev_net(peer->dev);
	const struct iphdr *ip;
	const struct sock *sk;

	qlink_fetch_output(peer, step - 3);
	switch (step) {
	case 3:
		qlink_fetch_head_page(skb, false);
		qlink_prefetch_host(net);
		qlink_prefetch((const char *)peer + L1_CACHE_BYTES, sizeof(*peer) - L1_CACHE_BYTES);
		return;
	case 4:
		qlink_fetch_head_page(skb, true);
		qlink_prefetch_host_indirect(net);
		ip = qlink_ip(skb);
		if (ip)
			end->bucket = qlink_bucket(ip, net);
		qbed_prefetch(end->bucket);
		qlink_prefetch_hop(&peer->local_hop);
		return;
	}
	sk = qlink_socket(end->bucket);
	if (sk)
		qlink_fetch_socket(sk, step - 5);
}

static void qlink_fetch_arriving(struct qlink_end *end, unsigned int step)
{
	struct sk_buff *skb = end->flight_head;
	struct qlink_end *peer = end->peer;
	const struct iphdr *ip;

	if (!peer)
		return;
	switch (step) {
	case 1:
		qlink_prefetch_skb(skb);
		qbed_prefetch(peer);
		return;
	case 2:
		qlink_prefetch(skb->data, QLINK_HEADERS);
		qbed_prefetch(skb_end_pointer(skb));
		qlink_prefetch_dev(peer->dev);
		qbed_prefetch((const char *)peer->dev + 3 * L1_CACHE_BYTES);
		qbed_prefetch(&peer->dev->ip_ptr);
		qbed_prefetch(&peer->dev->dev_addr);
		return;
	case 3:
		ip = qlink_ip(skb);
		end->bucket = NULL;
		qlink_prefetch_node(peer->dev, dev_net(peer->dev));
		if (ip && peer->routes)
			qlink_prefetch(qlink_route_slot(peer, ip->daddr), sizeof(struct qlink_route));
		if (peer->routes)
			return;
		break;
	case 4:
		qlink_prefetch_node_indirect(dev_net(peer->dev));
		break;
	}
	if (peer->routes)
		qlink_fetch_forwarded(peer, skb, step);
	else
		qlink_fetch_received(end, skb, step);
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
			qlink_prefetch(end, 256);
		else if (deadline->owner & QLINK_ARRIVED)
			qlink_fetch_arriving(end, step);
		else
			qlink_fetch_leaving(end, step);
	}
}

#endif /* _QLINK_FETCH_H */
