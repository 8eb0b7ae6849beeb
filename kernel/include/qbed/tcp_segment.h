/* SPDX-License-Identifier: GPL-2.0-only */
/* Parse the TCP segment in a packet, for schemes that read or modify acknowledgements. */
#ifndef _QBED_TCP_SEGMENT_H
#define _QBED_TCP_SEGMENT_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <net/checksum.h>
#include <net/ip.h>
#include <net/ipv6.h>

/* A 5-tuple without padding, so that it can be hashed and compared as bytes. */
struct tcp_flow {
	__be32 source[4];	/* an IPv4 address is in the first word, the others are 0 */
	__be32 destination[4];
	__be16 source_port;
	__be16 destination_port;
	u32 family;		/* AF_INET or AF_INET6 */
};

struct tcp_segment {
	struct tcp_flow flow;
	struct tcphdr *th;	/* linear, including options; valid until the packet's data moves */
	u32 payload_bytes;
};

/* The flow of the opposite direction: source and destination swapped. */
static inline struct tcp_flow tcp_flow_reversed(const struct tcp_flow *flow)
{
	struct tcp_flow reversed = {
		.source_port = flow->destination_port,
		.destination_port = flow->source_port,
		.family = flow->family,
	};

	memcpy(reversed.source, flow->destination, sizeof(reversed.source));
	memcpy(reversed.destination, flow->source, sizeof(reversed.destination));
	return reversed;
}

/*
 * Sets @begin to the offset of the TCP header and @end to the end of the
 * packet, relative to skb->data.
 */
static inline bool tcp_segment_find_ipv4(struct sk_buff *skb, struct tcp_flow *flow,
					 u32 *begin, u32 *end)
{
	u32 offset = skb_network_offset(skb);
	const struct iphdr *ip;

	if (!pskb_may_pull(skb, offset + sizeof(*ip)))
		return false;
	ip = ip_hdr(skb);
	if (ip->version != 4 || ip->ihl < 5 || ip->protocol != IPPROTO_TCP ||
	    ip_is_fragment(ip))
		return false;
	flow->family = AF_INET;
	flow->source[0] = ip->saddr;
	flow->destination[0] = ip->daddr;
	*begin = offset + ip->ihl * 4;
	/* 0: a GSO packet longer than the field's maximum */
	*end = ip->tot_len ? offset + ntohs(ip->tot_len) : skb->len;
	return true;
}

static inline bool tcp_segment_find_ipv6(struct sk_buff *skb, struct tcp_flow *flow,
					 u32 *begin, u32 *end)
{
	u32 offset = skb_network_offset(skb);
	const struct ipv6hdr *ip;
	__be16 fragment;
	u8 protocol;
	int found;

	if (!pskb_may_pull(skb, offset + sizeof(*ip)))
		return false;
	ip = ipv6_hdr(skb);
	if (ip->version != 6)
		return false;
	flow->family = AF_INET6;
	memcpy(flow->source, &ip->saddr, sizeof(flow->source));
	memcpy(flow->destination, &ip->daddr, sizeof(flow->destination));
	*end = ip->payload_len ? offset + sizeof(*ip) + ntohs(ip->payload_len) : skb->len;

	protocol = ip->nexthdr;
	found = ipv6_skip_exthdr(skb, offset + sizeof(*ip), &protocol, &fragment);
	if (found < 0 || protocol != IPPROTO_TCP || fragment)
		return false;
	*begin = found;
	return true;
}

/*
 * Parses the unfragmented TCP segment in @skb, whose network header must be
 * set. Returns false if there is none. Pointers into the packet are invalid
 * afterwards.
 */
static inline bool tcp_segment_parse(struct sk_buff *skb, struct tcp_segment *segment)
{
	u32 begin, end, header_bytes;
	struct tcphdr *th;
	bool found;

	memset(segment, 0, sizeof(*segment));
	switch (skb->protocol) {
	case htons(ETH_P_IP):
		found = tcp_segment_find_ipv4(skb, &segment->flow, &begin, &end);
		break;
	case htons(ETH_P_IPV6):
		found = tcp_segment_find_ipv6(skb, &segment->flow, &begin, &end);
		break;
	default:
		found = false;
	}
	if (!found || !pskb_may_pull(skb, begin + sizeof(*th)))
		return false;
	th = (struct tcphdr *)(skb->data + begin);
	header_bytes = th->doff * 4;
	if (header_bytes < sizeof(*th) || end > skb->len || begin + header_bytes > end ||
	    !pskb_may_pull(skb, begin + header_bytes))
		return false;
	th = (struct tcphdr *)(skb->data + begin);
	segment->th = th;
	segment->flow.source_port = th->source;
	segment->flow.destination_port = th->dest;
	segment->payload_bytes = end - begin - header_bytes;
	return true;
}

/* ACK without payload, SYN, FIN and RST. */
static inline bool tcp_segment_is_pure_ack(const struct tcp_segment *segment)
{
	const struct tcphdr *th = segment->th;

	return th->ack && !th->syn && !th->fin && !th->rst && !segment->payload_bytes;
}

/*
 * Sets ECN-Echo in a segment just parsed from @skb. The data of a clone is
 * copied first. Returns false if ECE was set already or there is no memory for
 * the copy.
 */
static inline bool tcp_segment_set_ece(struct sk_buff *skb, struct tcp_segment *segment)
{
	u32 begin = (u8 *)segment->th - skb->data;
	__be16 before, after;
	struct tcphdr *th;

	if (segment->th->ece || skb_ensure_writable(skb, begin + sizeof(*th)))
		return false;
	th = (struct tcphdr *)(skb->data + begin);
	segment->th = th;
	before = *((__be16 *)th + 6);	/* data offset and flags */
	th->ece = 1;
	after = *((__be16 *)th + 6);
	inet_proto_csum_replace2(&th->check, skb, before, after, false);
	return true;
}

/*
 * Limits the window field of a segment just parsed from @skb to @window, in the
 * field's unit. The data of a clone is copied first. Returns false if the
 * window is not larger or there is no memory for the copy.
 */
static inline bool tcp_segment_limit_window(struct sk_buff *skb, struct tcp_segment *segment,
					    u16 window)
{
	u32 begin = (u8 *)segment->th - skb->data;
	__be16 before, after = htons(window);
	struct tcphdr *th;

	if (ntohs(segment->th->window) <= window || skb_ensure_writable(skb, begin + sizeof(*th)))
		return false;
	th = (struct tcphdr *)(skb->data + begin);
	segment->th = th;
	before = th->window;
	th->window = after;
	inet_proto_csum_replace2(&th->check, skb, before, after, false);
	return true;
}

#endif /* _QBED_TCP_SEGMENT_H */
