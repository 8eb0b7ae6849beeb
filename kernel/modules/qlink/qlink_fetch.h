/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Prefetching. With a thousand nodes all cache lines that a frame needs at its
 * next stop, some eighty, were last used a thousand deadlines ago. Since the
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

#include "qlink_agenda.h"
#include "qlink_end.h"
#include "qlink_lines.h"
#include "qlink_route.h"

#define QLINK_FETCH_STEPS 11u

/* The oldest unacknowledged packet, or NULL. */
static const struct sk_buff *qlink_oldest_sent(const struct sock *sk)
{
	return list_first_entry_or_null(&tcp_sk(sk)->tsorted_sent_queue, struct sk_buff,
					tcp_tsorted_anchor);
}

/*
 * Prefetches the paths to the first and the last packet in the tree of
 * unacknowledged packets: from the root down and from these packets up.
 */
static void qlink_fetch_unacknowledged(const struct sock *sk, unsigned int depth)
{
	const struct rb_node *first = sk->tcp_rtx_queue.rb_node, *last = first;
	const struct sk_buff *sent = qlink_oldest_sent(sk);
	const struct rb_node *oldest, *newest;

	if (!first || !sent)
		return;
	oldest = &sent->rbnode;
	newest = &list_last_entry(&tcp_sk(sk)->tsorted_sent_queue, struct sk_buff,
				  tcp_tsorted_anchor)->rbnode;
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

/* Prefetches the packet that an acknowledgment frees first, and its neighbours in the list. */
static void qlink_fetch_freed(const struct sock *sk, unsigned int depth)
{
	const struct sk_buff *oldest = qlink_oldest_sent(sk);

	if (!oldest)
		return;
	switch (depth) {
	case 0:
		qlink_prefetch_skb(oldest);
		qbed_prefetch(&container_of(oldest, struct sk_buff_fclones, skb1)->fclone_ref);
		qbed_prefetch(tcp_sk(sk)->tsorted_sent_queue.prev);
		break;
	case 1:
		qbed_prefetch(oldest->tcp_tsorted_anchor.next);
		qbed_prefetch(skb_end_pointer(oldest));
		qlink_fetch_head_page(oldest, false);
		break;
	case 2:
		qlink_fetch_head_page(oldest, true);
		break;
	}
}

/* Prefetches the packet that is sent next. */
static void qlink_fetch_unsent(const struct sock *sk, unsigned int depth)
{
	const struct sk_buff *next = skb_peek(&sk->sk_write_queue);

	if (next && depth == 0) {
		qbed_prefetch_range(next, sizeof(struct sk_buff_fclones));
	} else if (next && depth == 1) {
		qbed_prefetch_range(skb_end_pointer(next), 2 * QBED_LINE);
		qbed_prefetch_range(next->data - QLINK_HEADERS, QLINK_HEADERS);
		qbed_prefetch(next->next);
	}
}

/* Prefetches for a socket that is about to send. */
static void qlink_fetch_sender(const struct sock *sk, unsigned int depth)
{
	if (!depth)
		qlink_prefetch_dst(rcu_access_pointer(sk->sk_dst_cache));
	qlink_fetch_freed(sk, depth);
	qlink_fetch_unsent(sk, depth);
	qlink_fetch_unacknowledged(sk, depth);
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
		qbed_prefetch_range(end->dev->_tx, 3 * QBED_LINE);
	else if (step == 1)
		qbed_prefetch_range(qlink_qdisc(end), 4 * QBED_LINE);
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

/* Prefetches the node of @end, from which TCP sends, in two steps. */
static void qlink_fetch_host(const struct qlink_end *end, bool second)
{
	struct net *net = dev_net(end->dev);

	if (second) {
		qlink_prefetch_node_indirect(net);
		qlink_prefetch_host_indirect(net);
		qlink_prefetch_hop(&end->local_hop);
	} else {
		qlink_prefetch_node(end->dev, net);
		qlink_prefetch_host(net);
		qbed_prefetch_range(end, sizeof(*end));
	}
}

static void qlink_fetch_throttled(const struct qlink_end *end, const struct sock *sk, unsigned int step)
{
	if (step <= 4)
		qlink_fetch_host(end, step == 4);
	if (step == 3)
		qlink_prefetch_socket(sk);
	else
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
		if (end->is_cut) { /* the frame is copied and freed */
			qlink_prefetch_content(skb);
			qlink_fetch_head_page(skb, false);
		}
		break;
	case 3:
		if (end->is_cut)
			qlink_fetch_head_page(skb, true);
		break;
	case 4:
		next = qlink_qdisc(end)->q.head;
		if (next)
			qlink_prefetch_skb(next);
		break;
	case 5:
		next = qlink_qdisc(end)->q.head;
		if (next) {
			qbed_prefetch_range(next->data + ETH_HLEN, sizeof(struct iphdr));
			qbed_prefetch(skb_end_pointer(next));
		}
		qlink_prefetch_tail(end);
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
		qlink_prefetch_end(out);
		if (cached->rt)
			qlink_prefetch_dst(&cached->rt->dst);
		else
			for (i = 0; i < ARRAY_SIZE(cached->lookup); i++)
				qbed_prefetch_range(cached->lookup[i], 128);
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

/* A packet that the node of @in forwards. */
static void qlink_fetch_forwarded(const struct qlink_end *in, const struct sk_buff *skb, unsigned int step)
{
	const struct iphdr *ip = qlink_ip(skb);
	struct qlink_route *cached = ip ? qlink_route_slot(in, ip->daddr) : NULL;

	if (step == 3)
		qlink_prefetch_node(in->dev, dev_net(in->dev));
	else if (step == 4)
		qlink_prefetch_node_indirect(dev_net(in->dev));
	if (cached && step == 3)
		qbed_prefetch_range(cached, sizeof(*cached));
	else if (cached && cached->daddr == ip->daddr)
		qlink_fetch_route(cached, step);
}

/* A packet for the node of @end's peer, which may reply. */
static void qlink_fetch_received(struct qlink_end *end, const struct sk_buff *skb, unsigned int step)
{
	struct qlink_end *peer = end->peer;
	const struct iphdr *ip;
	const struct sock *sk;

	qlink_fetch_output(peer, step - 3);
	switch (step) {
	case 3:
		end->bucket = NULL;
		qlink_fetch_host(peer, false);
		qlink_fetch_head_page(skb, false);
		break;
	case 4:
		qlink_fetch_host(peer, true);
		qlink_fetch_head_page(skb, true);
		ip = qlink_ip(skb);
		if (ip) {
			end->bucket = qlink_bucket(ip, dev_net(peer->dev));
			qbed_prefetch(end->bucket);
		}
		break;
	default:
		sk = qlink_socket(end->bucket);
		if (sk)
			qlink_fetch_socket(sk, step - 5);
	}
}

static void qlink_fetch_arriving(struct qlink_end *end, unsigned int step)
{
	struct sk_buff *skb = end->flight_head;
	struct qlink_end *peer = end->peer;

	if (!peer)
		return;
	switch (step) {
	case 1:
		qlink_prefetch_skb(skb);
		qbed_prefetch(peer);
		break;
	case 2:
		qlink_prefetch_content(skb);
		qlink_prefetch_dev(peer->dev);
		qbed_prefetch((const char *)peer->dev + 3 * QBED_LINE);
		qbed_prefetch(&peer->dev->ip_ptr);
		qbed_prefetch(&peer->dev->dev_addr);
		break;
	default:
		if (peer->routes)
			qlink_fetch_forwarded(peer, skb, step);
		else
			qlink_fetch_received(end, skb, step);
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
			qlink_prefetch_end(end);
		else if (deadline->owner & QLINK_ARRIVED)
			qlink_fetch_arriving(end, step);
		else
			qlink_fetch_leaving(end, step);
	}
}

#endif /* _QLINK_FETCH_H */
