/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Feedback packets, which the switch sends to the source of a sampled data
 * packet. A packet is built under the qdisc's lock and sent through the IP
 * stack by a tasklet, since its route may lead through this qdisc.
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

struct qcn_feedback_queue {
	struct net *net;
	struct sk_buff_head leaving;
	struct tasklet_struct tasklet;
	u64 unroutable;
};

/* Prepends the IP header, with the addresses of @data swapped. */
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
	/* total length and checksum are set by ip_local_out() */
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

/*
 * Builds the feedback for the data packet @data, which was just parsed. Returns
 * NULL if there is no memory.
 */
static struct sk_buff *qcn_feedback_build(const struct sk_buff *data, const struct qsignal_packet *packet,
				    u16 feedback, u8 bits)
{
	const u32 headers = MAX_HEADER + sizeof(struct ipv6hdr) + sizeof(struct udphdr);
	struct sk_buff *skb = alloc_skb(headers + QSIGNAL_HEADER_BYTES, GFP_ATOMIC);
	struct ipv6hdr network;		/* for IPv4 only the first 20 bytes */
	struct udphdr ports, *udp;

	if (!skb)
		return NULL;
	if (skb_copy_bits(data, packet->network_offset, &network,
			  packet->ipv6 ? sizeof(network) : sizeof(struct iphdr)) ||
	    skb_copy_bits(data, packet->udp_offset, &ports, sizeof(ports))) {
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
			.flowi4_flags = FLOWI_FLAG_ANYSRC,	/* the source address is the
								 * receiver's, not local
								 */
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

static void qcn_feedback_xmit(struct tasklet_struct *tasklet)
{
	struct qcn_feedback_queue *queue = container_of(tasklet, struct qcn_feedback_queue, tasklet);
	struct dst_entry *dst;
	struct sk_buff *skb;

	while ((skb = skb_dequeue(&queue->leaving))) {
		dst = qcn_route(queue->net, skb);
		if (!dst) {
			WRITE_ONCE(queue->unroutable, queue->unroutable + 1);
			kfree_skb(skb);
			continue;
		}
		skb_dst_set(skb, dst);
		if (skb->protocol == htons(ETH_P_IP))
			ip_local_out(queue->net, NULL, skb);
		else
			ip6_local_out(queue->net, NULL, skb);
	}
}

static void qcn_feedback_init(struct qcn_feedback_queue *queue, struct net *net)
{
	queue->net = net;
	skb_queue_head_init(&queue->leaving);
	tasklet_setup(&queue->tasklet, qcn_feedback_xmit);
}

static void qcn_feedback_destroy(struct qcn_feedback_queue *queue)
{
	tasklet_kill(&queue->tasklet);
	skb_queue_purge(&queue->leaving);
}

/* Queues a packet. It is sent after the caller releases its locks. */
static void qcn_feedback_enqueue(struct qcn_feedback_queue *queue, struct sk_buff *skb)
{
	skb_queue_tail(&queue->leaving, skb);
	tasklet_schedule(&queue->tasklet);
}

#endif /* _SCH_QCN_FEEDBACK_H */
