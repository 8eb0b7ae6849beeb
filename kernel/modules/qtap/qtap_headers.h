/* SPDX-License-Identifier: GPL-2.0-only */
/* Read-only access to packet headers for the tap. */
#ifndef _QTAP_HEADERS_H
#define _QTAP_HEADERS_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/skbuff.h>
#include <net/dsfield.h>
#include <net/inet_ecn.h>

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

#endif /* _QTAP_HEADERS_H */
