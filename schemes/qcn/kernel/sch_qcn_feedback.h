/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Feedback: a packet of the switch's own, to the source of a data packet that
 * it has sampled. It is made under the qdisc's lock, and goes out by the IP stack
 * from a tasklet: its way may lead through this very qdisc.
 */
#ifndef _SCH_QCN_FEEDBACK_H
#define _SCH_QCN_FEEDBACK_H

#include <linux/interrupt.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/timekeeping.h>
#include <net/dsfield.h>
#include <net/inet_ecn.h>
#include <net/ip6_checksum.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/route.h>

#include <qbed/signal_packet.h>

#define QCN_HOP_LIMIT 64

struct qcn_mouth {
	struct net *net;
	struct sk_buff_head leaving;
	struct tasklet_struct tasklet;
	u64 unroutable;
};

/* Between Ethernet and UDP; the other way round than in @data. */
static void qcn_push_ipv4(struct sk_buff *skb, const struct iphdr *data)
{
	struct udphdr *udp = udp_hdr(skb);
	u32 length = skb->len;
	struct iphdr *ip = skb_push(skb, sizeof(*ip));

	skb_reset_network_header(skb);
	skb->protocol = htons(ETH_P_IP);
	memset(ip, 0, sizeof(*ip));
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = ipv4_get_dsfield(data) & ~INET_ECN_MASK;
	ip->frag_off = htons(IP_DF);
	ip->ttl = QCN_HOP_LIMIT;
	ip->protocol = IPPROTO_UDP;
	ip->saddr = data->daddr;
	ip->daddr = data->saddr;
	/* its length and checksum are set on the way out */
	udp->check = csum_tcpudp_magic(ip->saddr, ip->daddr, length, IPPROTO_UDP,
				       csum_partial(udp, length, 0)) ?: CSUM_MANGLED_0;
}

static void qcn_push_ipv6(struct sk_buff *skb, const struct ipv6hdr *data)
{
	struct udphdr *udp = udp_hdr(skb);
	u32 length = skb->len;
	struct ipv6hdr *ip = skb_push(skb, sizeof(*ip));

	skb_reset_network_header(skb);
	skb->protocol = htons(ETH_P_IPV6);
	ip6_flow_hdr(ip, ipv6_get_dsfield(data) & ~INET_ECN_MASK, 0);
	ip->payload_len = htons(length);
	ip->nexthdr = IPPROTO_UDP;
	ip->hop_limit = QCN_HOP_LIMIT;
	ip->saddr = data->daddr;
	ip->daddr = data->saddr;
	udp->check = csum_ipv6_magic(&ip->saddr, &ip->daddr, length, IPPROTO_UDP,
				     csum_partial(udp, length, 0)) ?: CSUM_MANGLED_0;
}

static void qcn_put_header(struct sk_buff *skb, const struct qsignal_header *data,
			   u16 feedback, u8 bits)
{
	const struct qsignal_header header = {
		.version = QSIGNAL_VERSION,
		.type = QSIGNAL_FEEDBACK,
		.kind = QSIGNAL_NONE,
		.flow = data->flow,
		.feedback = cpu_to_be16(feedback),
		.feedback_bits = bits,
		.sequence = data->sequence,
		.time = cpu_to_be64(ktime_get_ns()),
		.echo_time = data->time,
	};

	skb_put_data(skb, &header, sizeof(header));
}

/* Of the data in @data, just parsed; NULL: no memory. */
static struct sk_buff *qcn_feedback(const struct sk_buff *data, const struct qsignal_packet *packet,
				    u16 feedback, u8 bits)
{
	const u32 headers = MAX_HEADER + sizeof(struct ipv6hdr) + sizeof(struct udphdr);
	struct sk_buff *skb = alloc_skb(headers + QSIGNAL_HEADER_BYTES, GFP_ATOMIC);
	struct ipv6hdr network;		/* of IPv4, the first 20 bytes */
	struct udphdr ports, *udp;

	if (!skb)
		return NULL;
	if (skb_copy_bits(data, packet->network_at, &network,
			  packet->ipv6 ? sizeof(network) : sizeof(struct iphdr)) ||
	    skb_copy_bits(data, packet->udp_at, &ports, sizeof(ports))) {
		kfree_skb(skb);
		return NULL;
	}
	skb_reserve(skb, headers);
	qcn_put_header(skb, &packet->header, feedback, bits);
	udp = skb_push(skb, sizeof(*udp));
	skb_reset_transport_header(skb);
	udp->source = ports.dest;
	udp->dest = ports.source;
	udp->len = htons(skb->len);
	udp->check = 0;
	if (packet->ipv6)
		qcn_push_ipv6(skb, &network);
	else
		qcn_push_ipv4(skb, (struct iphdr *)&network);
	return skb;
}

static struct dst_entry *qcn_route(struct net *net, const struct sk_buff *skb)
{
	const struct udphdr *udp = udp_hdr(skb);
	struct dst_entry *dst;

	if (skb->protocol == htons(ETH_P_IP)) {
		struct flowi4 flow = {
			.daddr = ip_hdr(skb)->daddr,
			.saddr = ip_hdr(skb)->saddr,
			.flowi4_proto = IPPROTO_UDP,
			.flowi4_flags = FLOWI_FLAG_ANYSRC,	/* the receiver's: not ours */
			.fl4_sport = udp->source,
			.fl4_dport = udp->dest,
		};
		struct rtable *route = ip_route_output_key(net, &flow);

		return IS_ERR(route) ? NULL : &route->dst;
	}
	dst = ip6_route_output(net, NULL, &(struct flowi6) {
		.daddr = ipv6_hdr(skb)->daddr,
		.saddr = ipv6_hdr(skb)->saddr,
		.flowi6_proto = IPPROTO_UDP,
		.fl6_sport = udp->source,
		.fl6_dport = udp->dest,
	});
	if (dst->error) {
		dst_release(dst);
		return NULL;
	}
	return dst;
}

static void qcn_speak(struct tasklet_struct *tasklet)
{
	struct qcn_mouth *mouth = container_of(tasklet, struct qcn_mouth, tasklet);
	struct dst_entry *dst;
	struct sk_buff *skb;

	while ((skb = skb_dequeue(&mouth->leaving))) {
		dst = qcn_route(mouth->net, skb);
		if (!dst) {
			WRITE_ONCE(mouth->unroutable, mouth->unroutable + 1);
			kfree_skb(skb);
			continue;
		}
		skb_dst_set(skb, dst);
		if (skb->protocol == htons(ETH_P_IP))
			ip_local_out(mouth->net, NULL, skb);
		else
			ip6_local_out(mouth->net, NULL, skb);
	}
}

static void qcn_mouth_open(struct qcn_mouth *mouth, struct net *net)
{
	mouth->net = net;
	skb_queue_head_init(&mouth->leaving);
	tasklet_setup(&mouth->tasklet, qcn_speak);
}

static void qcn_mouth_close(struct qcn_mouth *mouth)
{
	tasklet_kill(&mouth->tasklet);
	skb_queue_purge(&mouth->leaving);
}

/* Under any lock: it leaves after that. */
static void qcn_say(struct qcn_mouth *mouth, struct sk_buff *skb)
{
	skb_queue_tail(&mouth->leaving, skb);
	tasklet_schedule(&mouth->tasklet);
}

#endif /* _SCH_QCN_FEEDBACK_H */
