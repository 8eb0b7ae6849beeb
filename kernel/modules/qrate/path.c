// SPDX-License-Identifier: GPL-2.0-only
/* Sockets, routes and packets. */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

#include "qrate.h"

/*
 * All packets share these pages of zeros as payload: it is neither written,
 * copied nor checksummed.
 */
#define QRATE_PAYLOAD_ORDER get_order(65536)

static struct page *qrate_payload;

int qrate_payload_init(void)
{
	qrate_payload = alloc_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP, QRATE_PAYLOAD_ORDER);
	return qrate_payload ? 0 : -ENOMEM;
}

void qrate_payload_exit(void)
{
	put_page(qrate_payload);	/* packets in flight may hold references */
}

static int qrate_socket_bind(struct socket *socket, const union qrate_address *address, __be16 port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = port };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = port };

	if (socket->sk->sk_family == AF_INET) {
		if (address)
			v4.sin_addr.s_addr = address->v4;
		return kernel_bind(socket, (void *)&v4, sizeof(v4));
	}
	ip6_sock_set_v6only(socket->sk);
	if (address)
		v6.sin6_addr = address->v6;
	return kernel_bind(socket, (void *)&v6, sizeof(v6));
}

/*
 * Opens a UDP socket whose datagrams are passed to @receive (encap_rcv).
 * @address: NULL: any address of the namespace
 */
struct socket *qrate_socket_open(struct net *net, sa_family_t family,
				 const union qrate_address *address, __be16 port,
				 int (*receive)(struct sock *sk, struct sk_buff *skb), void *owner)
{
	struct socket *socket;
	int err;

	err = sock_create_kern(net, family, SOCK_DGRAM, 0, &socket);
	if (err)
		return ERR_PTR(err);
	rcu_assign_sk_user_data(socket->sk, owner);
	udp_sk(socket->sk)->encap_rcv = receive;
	WRITE_ONCE(udp_sk(socket->sk)->encap_type, 1);
	udp_tunnel_encap_enable(socket->sk);
	err = qrate_socket_bind(socket, address, port);
	if (err) {
		sock_release(socket);
		return ERR_PTR(err);
	}
	return socket;
}

/* RCU: calls of @receive may run until the grace period ends. */
void qrate_socket_close(struct socket *socket)
{
	if (!socket)
		return;
	rcu_assign_sk_user_data(socket->sk, NULL);
	sock_release(socket);
}

/* Routes */

static struct dst_entry *qrate_route_v4(struct qrate_path *path)
{
	struct flowi4 flow = {
		.daddr = path->destination.v4,
		.saddr = path->source.v4,
		.flowi4_proto = IPPROTO_UDP,
		.fl4_sport = path->source_port,
		.fl4_dport = path->destination_port,
	};
	struct rtable *route = ip_route_output_key(path->net, &flow);

	return IS_ERR(route) ? ERR_CAST(route) : &route->dst;
}

static struct dst_entry *qrate_route_v6(struct qrate_path *path)
{
	struct flowi6 flow = {
		.daddr = path->destination.v6,
		.saddr = path->source.v6,
		.flowi6_proto = IPPROTO_UDP,
		.fl6_sport = path->source_port,
		.fl6_dport = path->destination_port,
	};

	return ip6_dst_lookup_flow(path->net, NULL, &flow, NULL);
}

static u32 qrate_route_cookie(const struct qrate_path *path, const struct dst_entry *dst)
{
	return path->family == AF_INET6 ? rt6_get_cookie((const struct rt6_info *)dst) : 0;
}

/* Returns the route, valid as long as the caller holds the RCU read lock. */
struct dst_entry *qrate_path_route(struct qrate_path *path)
{
	struct dst_entry *dst = rcu_dereference(path->dst);

	if (likely(dst && dst_check(dst, READ_ONCE(path->cookie))))
		return dst;
	dst = path->family == AF_INET ? qrate_route_v4(path) : qrate_route_v6(path);
	if (IS_ERR(dst))
		return dst;
	WRITE_ONCE(path->cookie, qrate_route_cookie(path, dst));
	dst_release(unrcu_pointer(xchg(&path->dst, RCU_INITIALIZER(dst))));
	return dst;
}

void qrate_path_release(struct qrate_path *path)
{
	dst_release(unrcu_pointer(xchg(&path->dst, NULL)));
}

/* Packets */

/* Length of a packet with @header, without its payload. */
u32 qrate_path_overhead(const struct qrate_path *path, const struct qsignal_header *header)
{
	return (path->family == AF_INET ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) +
	       sizeof(struct udphdr) + qsignal_bytes(header);
}

static void qrate_push_v4(struct qrate_path *path, struct sk_buff *skb, struct dst_entry *dst)
{
	struct iphdr *ip;

	skb_push(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	ip = ip_hdr(skb);
	*ip = (struct iphdr) {
		.version = 4,
		.ihl = sizeof(*ip) / 4,
		.frag_off = htons(IP_DF),	/* no identification needed */
		.ttl = ip4_dst_hoplimit(dst),
		.protocol = IPPROTO_UDP,
		.saddr = path->source.v4,
		.daddr = path->destination.v4,
	};
	skb->protocol = htons(ETH_P_IP);
	ip_local_out(path->net, NULL, skb);
}

static void qrate_push_v6(struct qrate_path *path, struct sk_buff *skb, struct dst_entry *dst)
{
	struct ipv6hdr *ip;

	skb_push(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	ip = ipv6_hdr(skb);
	*ip = (struct ipv6hdr) {
		.version = 6,
		.nexthdr = IPPROTO_UDP,
		.hop_limit = ip6_dst_hoplimit(dst),
		.saddr = path->source.v6,
		.daddr = path->destination.v6,
	};
	skb->protocol = htons(ETH_P_IPV6);
	ip6_local_out(path->net, NULL, skb);
}

/*
 * Checksum of a datagram of @length whose first @header_bytes begin at @udp. The
 * rest is zeros and contributes nothing.
 */
static __sum16 qrate_checksum(const struct qrate_path *path, const struct udphdr *udp,
			      u32 header_bytes, u32 length)
{
	__wsum sum = csum_partial(udp, header_bytes, 0);
	__sum16 check;

	if (path->family == AF_INET)
		check = csum_tcpudp_magic(path->source.v4, path->destination.v4, length,
					  IPPROTO_UDP, sum);
	else
		check = csum_ipv6_magic(&path->source.v6, &path->destination.v6, length,
					IPPROTO_UDP, sum);
	return check ?: CSUM_MANGLED_0;
}

/*
 * Sends one packet with @payload bytes of payload. A packet that the stack
 * refuses is treated as lost.
 */
void qrate_path_send(struct qrate_path *path, const struct qsignal_header *header, u32 payload)
{
	u32 bytes = qsignal_bytes(header), length = sizeof(struct udphdr) + bytes + payload;
	u8 wire[QSIGNAL_HEADER_BYTES];
	struct dst_entry *dst;
	struct udphdr *udp;
	struct sk_buff *skb;

	skb = alloc_skb(LL_MAX_HEADER + sizeof(struct ipv6hdr) + sizeof(*udp) + sizeof(*header),
			GFP_ATOMIC | __GFP_NOWARN);
	if (unlikely(!skb))
		return;
	skb_reserve(skb, LL_MAX_HEADER + sizeof(struct ipv6hdr));
	udp = skb_put(skb, sizeof(*udp));
	skb_reset_transport_header(skb);
	qsignal_write(header, wire);
	skb_put_data(skb, wire, bytes);
	*udp = (struct udphdr) {
		.source = path->source_port,
		.dest = path->destination_port,
		.len = htons(length),
	};
	udp->check = qrate_checksum(path, udp, sizeof(*udp) + bytes, length);
	if (payload) {
		get_page(qrate_payload);
		skb_add_rx_frag(skb, 0, qrate_payload, 0, payload, payload);
	}

	rcu_read_lock();
	dst = qrate_path_route(path);
	if (IS_ERR(dst)) {
		rcu_read_unlock();
		kfree_skb(skb);
		return;
	}
	skb_dst_set_noref(skb, dst);
	if (path->family == AF_INET)
		qrate_push_v4(path, skb, dst);
	else
		qrate_push_v6(path, skb, dst);
	rcu_read_unlock();
}

/*
 * Pulls UDP and congestion header of a packet whose data begins with UDP's, and
 * reads the latter into @header. Returns false if the packet has no valid header
 * (docs/formats.md section 6).
 */
bool qrate_pull_header(struct sk_buff *skb, struct qsignal_header *header)
{
	u32 length = skb->len - sizeof(struct udphdr);

	u8 wire[QSIGNAL_HEADER_BYTES];

	if (skb_copy_bits(skb, sizeof(struct udphdr), wire, min_t(u32, length, sizeof(wire))) ||
	    qsignal_read(header, wire, length) != QSIGNAL_WELL_FORMED)
		return false;
	return pskb_pull(skb, sizeof(struct udphdr) + qsignal_bytes(header));
}
