// SPDX-License-Identifier: GPL-2.0-only
/*
 * The bytes of a packet that the engine gets. It parses the linear head. If the
 * parser needs more, it gets a copy of the leading bytes that the program may
 * access. Payload stays in page fragments, as in Linux's IP forwarding, so that
 * receivers account the same memory (skb->truesize) with both.
 *
 * A checksum that the sender left to its device (CHECKSUM_PARTIAL) is completed
 * if the program accesses it, or changes what it covers. Else the device of the
 * port completes it, as in IP forwarding.
 */
#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/unaligned.h>
#include <net/checksum.h>

#include "qp4.h"

/* Position of a checksum that is not completed; U32_MAX: there is none. */
u32 qp4_checksum_position(const struct sk_buff *skb)
{
	return skb->ip_summed == CHECKSUM_PARTIAL ?
	       skb_checksum_start_offset(skb) + skb->csum_offset : U32_MAX;
}

/* Sets the packet of the next call of the engine. */
void qp4_set_packet(struct qp4_switch *sw, const struct sk_buff *skb)
{
	sw->packet = skb;
	sw->has_checksum = false;
}

u16 qp4_checksum(void *owner)
{
	struct qp4_switch *sw = owner;
	const struct sk_buff *skb = sw->packet;
	int start;

	if (!sw->has_checksum) {
		start = skb_checksum_start_offset(skb);
		sw->checksum = csum_fold(skb_checksum(skb, start, skb->len - start, 0)) ?:
			       CSUM_MANGLED_0;
		sw->has_checksum = true;
	}
	return ntohs((__force __be16)sw->checksum);
}

const u8 *qp4_extend(void *owner, size_t *length)
{
	static u8 copied[QP4_MAX_FRONT];
	struct qp4_switch *sw = owner;
	const struct sk_buff *skb = sw->packet;
	u32 position = qp4_checksum_position(skb);
	u32 bytes = min(sw->pipeline->reach, skb->len);

	if (bytes <= *length && position == U32_MAX)
		return NULL;
	bytes = min_t(u32, bytes, sizeof(copied));
	skb_copy_bits(skb, 0, copied, bytes);
	if (position != U32_MAX) {
		qp4_checksum(sw);
		if (position + sizeof(sw->checksum) <= bytes)
			memcpy(copied + position, &sw->checksum, sizeof(sw->checksum));
	}
	*length = bytes;
	return copied;
}

/*
 * Stores the checksum in the packet if the engine asked for it. Returns false
 * if there is no memory.
 */
bool qp4_store_checksum(struct qp4_switch *sw, struct sk_buff *skb)
{
	u32 position;

	if (likely(!sw->has_checksum))
		return true;
	sw->has_checksum = false;
	position = qp4_checksum_position(skb);
	if (skb_ensure_writable(skb, position + sizeof(sw->checksum)))
		return false;
	memcpy(skb->data + position, &sw->checksum, sizeof(sw->checksum));
	skb->ip_summed = CHECKSUM_NONE;
	return true;
}

/*
 * Completes the checksum of a packet and of its metadata, if it is left to the
 * device. @emission: its headers, or NULL before egress. Returns false if there
 * is no memory.
 */
bool qp4_complete(struct qp4_switch *sw, struct sk_buff *skb, const struct qp4_metadata *meta,
		  struct qp4_emission *emission)
{
	if (skb->ip_summed != CHECKSUM_PARTIAL)
		return true;
	qp4_set_packet(sw, skb);
	qp4_engine_complete_checksum(meta->pipeline->engine, meta->context, qp4_checksum(sw),
				     emission);
	return qp4_store_checksum(sw, skb);
}

/*
 * Completes the checksum of a packet's metadata if it was completed in the
 * packet while it was queued: by a qdisc, or for a capture on the port.
 */
void qp4_update_checksum(const struct sk_buff *skb, const struct qp4_metadata *meta)
{
	u32 position = skb->ip_summed == CHECKSUM_PARTIAL ?
		       U32_MAX : qp4_context_deferred_checksum(meta->context);
	__sum16 checksum;

	if (likely(position == U32_MAX) || skb_copy_bits(skb, position, &checksum, sizeof(checksum)))
		return;
	qp4_engine_complete_checksum(meta->pipeline->engine, meta->context,
				     ntohs((__force __be16)checksum), NULL);
}

/* memcmp() for short headers, inline. */
static __always_inline bool qp4_same(const u8 *a, const u8 *b, u32 bytes)
{
	for (; bytes >= sizeof(u64); bytes -= sizeof(u64), a += sizeof(u64), b += sizeof(u64))
		if (get_unaligned((const u64 *)a) != get_unaligned((const u64 *)b))
			return false;
	for (; bytes >= sizeof(u16); bytes -= sizeof(u16), a += sizeof(u16), b += sizeof(u16))
		if (get_unaligned((const u16 *)a) != get_unaligned((const u16 *)b))
			return false;
	return !bytes || *a == *b;
}

/* Whether two IP headers differ only in fields that no checksum behind them covers. */
static bool qp4_same_addresses(__be16 protocol, const u8 *a, const u8 *b, u32 bytes)
{
	if (protocol == htons(ETH_P_IP) && bytes >= sizeof(struct iphdr))
		return a[0] == b[0] && qp4_same(a + 2, b + 2, 6) && a[9] == b[9] &&
		       qp4_same(a + 12, b + 12, bytes - 12);
	if (protocol == htons(ETH_P_IPV6) && bytes >= sizeof(struct ipv6hdr))
		return qp4_same(a + 4, b + 4, 3) && qp4_same(a + 8, b + 8, bytes - 8);
	return qp4_same(a, b, bytes);
}

/*
 * Whether the device of the port can complete the checksum of a packet with
 * these headers: they differ from the packet's only in the Ethernet addresses
 * and in IP's traffic class, hop limit and header checksum.
 */
bool qp4_keeps_checksum(const struct sk_buff *skb, const struct qp4_emission *emission)
{
	const u8 *before = skb->data, *after = emission->headers;
	u32 bytes = emission->headers_bytes;
	int start = skb_checksum_start_offset(skb);

	return bytes == emission->replaced && bytes <= skb_headlen(skb) && start >= ETH_HLEN &&
	       start <= bytes && qp4_same(before + 2 * ETH_ALEN, after + 2 * ETH_ALEN, 2) &&
	       qp4_same_addresses(((const struct ethhdr *)after)->h_proto, before + ETH_HLEN,
				  after + ETH_HLEN, start - ETH_HLEN) &&
	       qp4_same(before + start, after + start, bytes - start);
}
