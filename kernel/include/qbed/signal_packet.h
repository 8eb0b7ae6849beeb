/* SPDX-License-Identifier: GPL-2.0-only */
/* The congestion header in a packet that a switch has in its hands: found, and written back. */
#ifndef _QBED_SIGNAL_PACKET_H
#define _QBED_SIGNAL_PACKET_H

#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/skbuff.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include <qbed/signal_header.h>

struct qsignal_packet {
	struct qsignal_header header;	/* a copy: in the packet it may be anywhere */
	u32 network_at;			/* counted from skb->data, as the next */
	u32 udp_at;
	bool ipv6;
};

/* Both set where the UDP header begins and the IP packet ends. */
static inline bool qsignal_find_ipv4(const struct sk_buff *skb, u32 offset, u32 *begin, u32 *end)
{
	struct iphdr buffer;
	const struct iphdr *ip = skb_header_pointer(skb, offset, sizeof(buffer), &buffer);

	if (!ip || ip->version != 4 || ip->ihl < 5 || ip->protocol != IPPROTO_UDP ||
	    ip_is_fragment(ip))
		return false;
	*begin = offset + ip->ihl * 4;
	*end = offset + ntohs(ip->tot_len);
	return true;
}

static inline bool qsignal_find_ipv6(const struct sk_buff *skb, u32 offset, u32 *begin, u32 *end)
{
	struct ipv6hdr buffer;
	const struct ipv6hdr *ip = skb_header_pointer(skb, offset, sizeof(buffer), &buffer);
	__be16 fragment;
	u8 protocol;
	int found;

	if (!ip || ip->version != 6)
		return false;
	protocol = ip->nexthdr;
	*end = offset + sizeof(*ip) + ntohs(ip->payload_len);
	found = ipv6_skip_exthdr(skb, offset + sizeof(*ip), &protocol, &fragment);
	if (found < 0 || protocol != IPPROTO_UDP || fragment)
		return false;
	*begin = found;
	return true;
}

/*
 * Is @skb, whose network header must be set, of the congestion header's port?
 * Then @form says whether it has one.
 */
static inline bool qsignal_packet_parse(const struct sk_buff *skb, struct qsignal_packet *packet,
					enum qsignal_form *form)
{
	__be16 protocol = skb_protocol(skb, true);	/* behind VLAN tags, as the network header is */
	struct udphdr buffer;
	const struct udphdr *udp;
	u32 bytes, end;

	packet->network_at = skb_network_offset(skb);
	packet->ipv6 = protocol == htons(ETH_P_IPV6);
	if (packet->ipv6) {
		if (!qsignal_find_ipv6(skb, packet->network_at, &packet->udp_at, &end))
			return false;
	} else if (protocol != htons(ETH_P_IP) ||
		   !qsignal_find_ipv4(skb, packet->network_at, &packet->udp_at, &end)) {
		return false;
	}
	udp = skb_header_pointer(skb, packet->udp_at, sizeof(buffer), &buffer);
	if (!udp || (udp->source != htons(QSIGNAL_PORT) && udp->dest != htons(QSIGNAL_PORT)))
		return false;
	bytes = ntohs(udp->len);
	if (bytes < sizeof(*udp) || packet->udp_at + bytes > end || end > skb->len ||
	    skb_is_gso(skb))
		return false;
	bytes -= sizeof(*udp);
	if (skb_copy_bits(skb, packet->udp_at + sizeof(*udp), &packet->header,
			  min_t(u32, bytes, sizeof(packet->header))))
		return false;
	*form = qsignal_form(&packet->header, bytes);
	return true;
}

/* The header that a switch may change is in @packet; others are counted for why they are none. */
static inline bool qsignal_packet_find(const struct sk_buff *skb, struct qsignal_packet *packet,
				       u64 *unknown_version, u64 *too_short, u64 *malformed)
{
	enum qsignal_form form;

	if (!qsignal_packet_parse(skb, packet, &form))
		return false;
	switch (form) {
	case QSIGNAL_UNKNOWN_VERSION:
		++*unknown_version;
		return false;
	case QSIGNAL_TOO_SHORT:
		++*too_short;
		return false;
	case QSIGNAL_MALFORMED:
		++*malformed;
		return false;
	case QSIGNAL_WELL_FORMED:
		return true;
	}
	return false;
}

/*
 * @header takes the place of the one just parsed from @skb, and the checksums
 * stay right; a clone gets data of its own first. False: no memory for that.
 */
static inline bool qsignal_packet_write(struct sk_buff *skb, struct qsignal_packet *packet,
					const struct qsignal_header *header)
{
	u32 at = packet->udp_at + sizeof(struct udphdr);
	struct udphdr *udp;

	if (skb_ensure_writable(skb, at + sizeof(*header)))
		return false;
	udp = (struct udphdr *)(skb->data + packet->udp_at);
	if (skb->ip_summed == CHECKSUM_PARTIAL) {
		/* only the pseudo header is in it yet */
	} else if (udp->check) {
		/* what the device summed over all of it stays as it was, too */
		udp->check = (__force __sum16)qsignal_checksum((__force u16)udp->check,
							       &packet->header, header);
	} else if (skb->ip_summed == CHECKSUM_COMPLETE) {
		skb->csum = csum_sub(skb->csum, csum_partial(&packet->header, sizeof(*header), 0));
		skb->csum = csum_add(skb->csum, csum_partial(header, sizeof(*header), 0));
	}
	memcpy(skb->data + at, header, sizeof(*header));
	packet->header = *header;
	return true;
}

#endif /* _QBED_SIGNAL_PACKET_H */
