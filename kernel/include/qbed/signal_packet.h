/* SPDX-License-Identifier: GPL-2.0-only */
/* Find the congestion header in a packet and write it back. */
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

#include <qbed/signal_compact.h>

struct qsignal_packet {
	struct qsignal_header header;
	u8 wire[QSIGNAL_HEADER_BYTES];	/* a copy: the header in the packet may be non-linear */
	u32 network_offset;			/* both offsets are relative to skb->data */
	u32 udp_offset;
	bool ipv6;
};

/* Sets @begin to the offset of the UDP header and @end to the end of the IP packet. */
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
 * Returns true if @skb is a UDP datagram on QSIGNAL_PORT, and sets @form to the
 * result of validating its header. The network header must be set.
 */
static inline bool qsignal_packet_parse(const struct sk_buff *skb, struct qsignal_packet *packet,
					enum qsignal_form *form)
{
	__be16 protocol = skb_protocol(skb, true);	/* skips VLAN tags, as the network header
							 * does
							 */
	struct udphdr buffer;
	const struct udphdr *udp;
	u32 bytes, end;

	packet->network_offset = skb_network_offset(skb);
	packet->ipv6 = protocol == htons(ETH_P_IPV6);
	if (packet->ipv6) {
		if (!qsignal_find_ipv6(skb, packet->network_offset, &packet->udp_offset, &end))
			return false;
	} else if (protocol != htons(ETH_P_IP) ||
		   !qsignal_find_ipv4(skb, packet->network_offset, &packet->udp_offset, &end)) {
		return false;
	}
	udp = skb_header_pointer(skb, packet->udp_offset, sizeof(buffer), &buffer);
	if (!udp || (udp->source != htons(QSIGNAL_PORT) && udp->dest != htons(QSIGNAL_PORT)))
		return false;
	bytes = ntohs(udp->len);
	if (bytes < sizeof(*udp) || packet->udp_offset + bytes > end || end > skb->len ||
	    skb_is_gso(skb))
		return false;
	bytes -= sizeof(*udp);
	if (skb_copy_bits(skb, packet->udp_offset + sizeof(*udp), packet->wire,
			  min_t(u32, bytes, sizeof(packet->wire))))
		return false;
	*form = qsignal_read(&packet->header, packet->wire, bytes);
	return true;
}

/*
 * Returns true if @skb has a valid header, which is copied to @packet. Invalid
 * headers are counted by reason.
 */
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
 * Replaces the header just parsed from @skb by @header, of the same length, and
 * updates the checksums. The data of a clone is copied first. Returns false if there is no
 * memory for the copy.
 */
static inline bool qsignal_packet_write(struct sk_buff *skb, struct qsignal_packet *packet,
					const struct qsignal_header *header)
{
	u32 at = packet->udp_offset + sizeof(struct udphdr), bytes = qsignal_bytes(header);
	u8 wire[QSIGNAL_HEADER_BYTES] = {};
	struct udphdr *udp;

	if (skb_ensure_writable(skb, at + bytes))
		return false;
	qsignal_write(header, wire);
	memset(packet->wire + bytes, 0, sizeof(packet->wire) - bytes);
	udp = (struct udphdr *)(skb->data + packet->udp_offset);
	if (skb->ip_summed == CHECKSUM_PARTIAL) {
		/* the checksum covers only the pseudo header so far */
	} else if (udp->check) {
		/* the device's sum over the whole packet is unchanged as well */
		udp->check = (__force __sum16)qsignal_checksum((__force u16)udp->check,
							       packet->wire, wire);
	} else if (skb->ip_summed == CHECKSUM_COMPLETE) {
		skb->csum = csum_sub(skb->csum, csum_partial(packet->wire, bytes, 0));
		skb->csum = csum_add(skb->csum, csum_partial(wire, bytes, 0));
	}
	memcpy(skb->data + at, wire, bytes);
	memcpy(packet->wire, wire, sizeof(wire));
	packet->header = *header;
	return true;
}

#endif /* _QBED_SIGNAL_PACKET_H */
