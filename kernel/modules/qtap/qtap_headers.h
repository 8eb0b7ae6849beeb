/* SPDX-License-Identifier: GPL-2.0-only */
/* Read-only access to packet headers for the tap. */
#ifndef _QTAP_HEADERS_H
#define _QTAP_HEADERS_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/dsfield.h>
#include <net/inet_ecn.h>
#include <net/ip.h>

#include <qbed/qtap.h>

/* The DSCP and ECN fields; 0 for what is not IP. */
static inline u8 qtap_tos(const struct sk_buff *skb)
{
	int offset = skb_network_offset(skb);

	switch (skb->protocol) {
	case htons(ETH_P_IP):
		if (unlikely(offset + sizeof(struct iphdr) > skb_headlen(skb)))
			return 0;
		return ip_hdr(skb)->tos;
	case htons(ETH_P_IPV6):
		if (unlikely(offset + sizeof(struct ipv6hdr) > skb_headlen(skb)))
			return 0;
		return ipv6_get_dsfield(ipv6_hdr(skb));
	default:
		return 0;
	}
}

/* The ECN field; 0 (not ECT) for what is not IP. */
static inline u8 qtap_ecn(const struct sk_buff *skb)
{
	return qtap_tos(skb) & INET_ECN_MASK;
}

/* Ports, sequence numbers and payload of the transport header at @offset. */
static void qtap_describe_transport(const struct sk_buff *skb, int offset, int bytes,
				    struct qtap_event *event)
{
	const struct tcphdr *tcp;
	const struct udphdr *udp;
	union {
		struct tcphdr tcp;
		struct udphdr udp;
	} copy;

	event->payload = max(bytes, 0);
	if (event->protocol == IPPROTO_TCP) {
		tcp = skb_header_pointer(skb, offset, sizeof(copy.tcp), &copy);
		if (!tcp)
			return;
		event->sport = ntohs(tcp->source);
		event->dport = ntohs(tcp->dest);
		event->tcp_seq = ntohl(tcp->seq);
		event->tcp_ack = ntohl(tcp->ack_seq);
		event->tcp_flags = ntohl(tcp_flag_word(tcp)) >> 16;
		event->payload = max(bytes - tcp->doff * 4, 0);
	} else if (event->protocol == IPPROTO_UDP) {
		udp = skb_header_pointer(skb, offset, sizeof(copy.udp), &copy);
		if (!udp)
			return;
		event->sport = ntohs(udp->source);
		event->dport = ntohs(udp->dest);
		event->payload = max_t(int, bytes - sizeof(*udp), 0);
	}
}

/* The part of an event that identifies the packet. */
static void qtap_describe(const struct sk_buff *skb, struct qtap_event *event)
{
	int offset = skb_network_offset(skb);
	const struct ipv6hdr *ip6;
	const struct iphdr *ip;
	union {
		struct iphdr ip;
		struct ipv6hdr ip6;
	} copy;

	event->ecn = qtap_ecn(skb);
	if (skb->protocol == htons(ETH_P_IP)) {
		ip = skb_header_pointer(skb, offset, sizeof(copy.ip), &copy);
		if (!ip)
			return;
		event->family = 4;
		event->protocol = ip->protocol;
		memcpy(event->saddr, &ip->saddr, sizeof(ip->saddr));
		memcpy(event->daddr, &ip->daddr, sizeof(ip->daddr));
		/* a later fragment has no transport header */
		if (!(ip->frag_off & htons(IP_OFFSET)))
			qtap_describe_transport(skb, offset + ip->ihl * 4,
						ntohs(ip->tot_len) - ip->ihl * 4, event);
	} else if (skb->protocol == htons(ETH_P_IPV6)) {
		ip6 = skb_header_pointer(skb, offset, sizeof(copy.ip6), &copy);
		if (!ip6)
			return;
		event->family = 6;
		event->protocol = ip6->nexthdr;
		memcpy(event->saddr, &ip6->saddr, sizeof(ip6->saddr));
		memcpy(event->daddr, &ip6->daddr, sizeof(ip6->daddr));
		qtap_describe_transport(skb, offset + sizeof(*ip6),
					ntohs(ip6->payload_len), event);
	}
}

#endif /* _QTAP_HEADERS_H */
