/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Prefetching of what packets access in the kernel's structures: not all of
 * their cache lines, but those that a replay of all accesses of a lab of a
 * thousand nodes showed (docs/decisions/0064). Nothing is read but the pointers
 * in the structure that a function is given.
 */
#ifndef _QLINK_LINES_H
#define _QLINK_LINES_H

#include <linux/inetdevice.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <net/tcp.h>

#include <qbed/prefetch.h>

#include "qlink_end.h"

/* Ethernet, IPv4, and TCP with timestamps. */
#define QLINK_HEADERS (ETH_HLEN + 20 + 32)

static inline void qlink_prefetch_skb(const struct sk_buff *skb)
{
	qbed_prefetch_range(skb, sizeof(*skb));
}

/* The headers and the fragments of a packet that was prefetched. */
static inline void qlink_prefetch_content(const struct sk_buff *skb)
{
	qbed_prefetch_range(skb->data, QLINK_HEADERS);
	qbed_prefetch(skb_end_pointer(skb));
}

/* The page structures of a packet's head, which kfree() reads, in two steps. */
static inline void qlink_fetch_head_page(const struct sk_buff *skb, bool second)
{
	qbed_prefetch(second ? virt_to_head_page(skb->head) : virt_to_page(skb->head));
}

/* The transmitter and its wire. */
static void qlink_prefetch_end(const struct qlink_end *end)
{
	qbed_prefetch_range(end, offsetof(struct qlink_end, part));
}

/* The last frame on the wire of @end, where the next one is linked to it. */
static inline void qlink_prefetch_tail(const struct qlink_end *end)
{
	if (end->flight_tail)
		qbed_prefetch_range(end->flight_tail->cb, 32);
}

/* Without the second line, which no packet uses. */
static void qlink_prefetch_dev(const struct net_device *dev)
{
	qbed_prefetch(dev);
	qbed_prefetch((const char *)dev + 2 * QBED_LINE);
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
	qbed_prefetch_range(hop->neighbour, 3 * QBED_LINE);
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

	qbed_prefetch_range(sk, offsetof(struct sock, sk_cgrp_data));
	qbed_prefetch(&inet_sk(sk)->inet_flags);
	qbed_prefetch(&inet_sk(sk)->cork.fl);
	qbed_prefetch_range(&connection->icsk_bind_hash,
		       (const char *)&tcp->pacing_timer - (const char *)&connection->icsk_bind_hash);
	qbed_prefetch(&tcp->high_seq);
	qbed_prefetch(&tcp->mtu_probe);
}

/* Prefetches what a socket's packet accesses when it leaves the transmitter. */
static void qlink_prefetch_released(const struct sock *sk)
{
	qbed_prefetch(&sk->sk_state);
	qbed_prefetch(&sk->sk_wmem_alloc);
	qbed_prefetch(&sk->sk_tsq_flags);
	qbed_prefetch(&sk->sk_protocol);
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

#endif /* _QLINK_LINES_H */
