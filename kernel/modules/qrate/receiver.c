// SPDX-License-Identifier: GPL-2.0-only
/*
 * Receiver side: it accounts received data, acknowledges every data packet, and
 * is QCN's reflection point.
 *
 * A flow is identified by the sender's address, port and flow id. Data that
 * cannot be accounted, for lack of memory or because the flow has more than
 * QRATE_MAX_INTERVALS holes, is not acknowledged and therefore retransmitted.
 */
#include <linux/hashtable.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/jhash.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/udp.h>
#include <net/ipv6.h>
#include <net/sock.h>

#include "qrate.h"

#define QRATE_FIRST_INTERVALS 4
#define QRATE_MAX_INTERVALS 4096

/* Limit per namespace, since senders choose the flow ids. */
#define QRATE_MAX_RECEIVERS (1u << 20)

/* Maximum offset, to avoid overflow. */
#define QRATE_MAX_OFFSET (1ull << 62)

static DEFINE_HASHTABLE(qrate_receivers, 12);
static DEFINE_SPINLOCK(qrate_receivers_lock);

/* Lookup */

static u32 qrate_hash(const struct qrate_listener *listener, const struct qrate_path *path,
		      u32 flow)
{
	return jhash_3words(flow, (__force u32)path->destination_port ^ (u32)(long)listener >> 6,
			    path->family == AF_INET ? (__force u32)path->destination.v4 :
						      ipv6_addr_hash(&path->destination.v6), 0);
}

static bool qrate_path_equal(const struct qrate_path *a, const struct qrate_path *b)
{
	return a->destination_port == b->destination_port && a->family == b->family &&
	       (a->family == AF_INET ? a->destination.v4 == b->destination.v4 :
				       ipv6_addr_equal(&a->destination.v6, &b->destination.v6));
}

static struct qrate_receiver *qrate_find(const struct qrate_listener *listener,
					 const struct qrate_path *path, u32 flow, u32 hash)
{
	struct qrate_receiver *receiver;

	hash_for_each_possible_rcu(qrate_receivers, receiver, node, hash) {
		if (receiver->record.flow == flow && receiver->listener == listener &&
		    qrate_path_equal(&receiver->path, path))
			return receiver;
	}
	return NULL;
}

/* Returns the path back to the sender of @skb. */
static struct qrate_path qrate_reverse_path(const struct qrate_listener *listener,
					const struct sk_buff *skb)
{
	struct qrate_path path = {
		.net = listener->qnet->net,
		.family = skb->protocol == htons(ETH_P_IPV6) ? AF_INET6 : AF_INET,
		.source_port = udp_hdr(skb)->dest,
		.destination_port = udp_hdr(skb)->source,
	};

	if (path.family == AF_INET) {
		path.source.v4 = ip_hdr(skb)->daddr;
		path.destination.v4 = ip_hdr(skb)->saddr;
	} else {
		path.source.v6 = ipv6_hdr(skb)->daddr;
		path.destination.v6 = ipv6_hdr(skb)->saddr;
	}
	return path;
}

static struct qrate_receiver *qrate_receiver_alloc(struct qrate_listener *listener,
						   const struct qrate_path *path, u32 flow)
{
	struct qrate_receiver *receiver = kzalloc(sizeof(*receiver), GFP_ATOMIC | __GFP_NOWARN);
	struct qrate_interval *intervals;

	intervals = kmalloc_array(QRATE_FIRST_INTERVALS, sizeof(*intervals),
				  GFP_ATOMIC | __GFP_NOWARN);
	if (!receiver || !intervals) {
		kfree(receiver);
		kfree(intervals);
		return NULL;
	}
	receiver->record = (struct qrate_record) {
		.role = QRATE_RECEIVER,
		.flow = flow,
		.start_ns = ktime_get_ns(),
	};
	receiver->path = *path;
	receiver->listener = listener;
	receiver->coverage.intervals = intervals;
	receiver->coverage.capacity = QRATE_FIRST_INTERVALS;
	receiver->size = U64_MAX;
	spin_lock_init(&receiver->lock);
	return receiver;
}

/* Creates the receiver of a new flow. Called under qrate_receivers_lock. */
static struct qrate_receiver *qrate_receiver_new(struct qrate_listener *listener,
						 const struct qrate_path *path, u32 flow, u32 hash)
{
	struct qrate_net *qnet = listener->qnet;
	struct qrate_receiver *receiver;

	if (qnet->receivers >= QRATE_MAX_RECEIVERS)
		return NULL;
	receiver = qrate_receiver_alloc(listener, path, flow);
	if (!receiver)
		return NULL;
	if (xa_alloc_bh(&qnet->records, &receiver->record.id, &receiver->record, xa_limit_32b,
			GFP_ATOMIC | __GFP_NOWARN)) {
		kfree(receiver->coverage.intervals);
		kfree(receiver);
		return NULL;
	}
	qnet->receivers++;
	hash_add_rcu(qrate_receivers, &receiver->node, hash);
	return receiver;
}

static struct qrate_receiver *qrate_receiver_get(struct qrate_listener *listener,
						const struct sk_buff *skb, u32 flow)
{
	struct qrate_path path = qrate_reverse_path(listener, skb);
	u32 hash = qrate_hash(listener, &path, flow);
	struct qrate_receiver *receiver = qrate_find(listener, &path, flow, hash);

	if (likely(receiver))
		return receiver;
	spin_lock_bh(&qrate_receivers_lock);
	receiver = qrate_find(listener, &path, flow, hash) ?:
		   qrate_receiver_new(listener, &path, flow, hash);
	spin_unlock_bh(&qrate_receivers_lock);
	return receiver;
}

/* Data */

static bool qrate_coverage_has_room(struct qrate_coverage *coverage)
{
	u32 capacity = 2 * coverage->capacity;
	struct qrate_interval *intervals;

	if (likely(!qrate_coverage_is_full(coverage)))
		return true;
	if (capacity > QRATE_MAX_INTERVALS)
		return false;
	intervals = krealloc_array(coverage->intervals, capacity, sizeof(*intervals),
				   GFP_ATOMIC | __GFP_NOWARN);
	if (!intervals)
		return false;
	coverage->intervals = intervals;
	coverage->capacity = capacity;
	return true;
}

/*
 * Accounts a data packet and fills in the acknowledgement. Returns false if it
 * cannot be accounted.
 */
static bool qrate_receive_data(struct qrate_receiver *receiver, const struct qsignal_header *data,
			 u32 length, u64 now_ns, struct qsignal_header *ack)
{
	u64 begin = be64_to_cpu(data->offset);
	bool accounted;

	if (!length || begin > QRATE_MAX_OFFSET)
		return false;
	spin_lock_bh(&receiver->lock);
	accounted = qrate_coverage_has_room(&receiver->coverage);
	if (likely(accounted)) {
		receiver->stats.packets++;
		if (qrate_coverage_add(&receiver->coverage, begin, begin + length))
			receiver->record.end_ns = now_ns;
		if (data->flags & QSIGNAL_LAST)
			receiver->size = begin + length;
		ack->window = cpu_to_be64(qrate_window_add(&receiver->window,
							    be64_to_cpu(data->sequence)));
		ack->offset = cpu_to_be64(receiver->coverage.bytes);
	}
	spin_unlock_bh(&receiver->lock);
	return accounted;
}

static struct qsignal_header qrate_reply_header(const struct qsignal_header *data, u8 type, u64 now_ns)
{
	return (struct qsignal_header) {
		.version = QSIGNAL_VERSION,
		.type = type,
		.flow = data->flow,
		.sequence = data->sequence,
		.time = cpu_to_be64(now_ns),
		.echo_time = data->time,
	};
}

/* The received signal is echoed, and accumulates further on the reverse path. */
static struct qsignal_header qrate_ack_header(const struct qsignal_header *data, u64 now_ns)
{
	struct qsignal_header ack = qrate_reply_header(data, QSIGNAL_ACK, now_ns);

	ack.version = data->version;
	ack.flags = data->version == QSIGNAL_COMPACT ? data->flags & QSIGNAL_FORWARD : 0;
	ack.kind = data->kind;
	ack.unit = data->unit;
	ack.bits = data->bits;
	ack.hops = data->hops;
	ack.echo_hops = data->hops;
	memcpy(ack.signal, data->signal, sizeof(ack.signal));
	memcpy(ack.echo_signal, data->signal, sizeof(ack.echo_signal));
	return ack;
}

/*
 * QCN's reflection point. The slides specify that the probability grows with
 * |Fb| but no function. This uses the function that they specify for sampling
 * in switches, from 1 % to 25 %. Fb = 0 is reflected with probability P0,
 * whether or not a switch on the path supports QCN; P0 is 0 by default.
 */
static bool qrate_is_reflected(const struct qrate_listener *listener,
			       const struct qsignal_header *data)
{
	u32 magnitude = ntohs(data->feedback);
	u32 max = (1u << clamp_t(u8, data->feedback_bits, 1, 16)) - 1;
	u32 percent = U32_MAX / 100;

	if (data->flags & QSIGNAL_REFLECTED)
		return false;
	if (!magnitude) {
		u32 reflect = READ_ONCE(listener->reflect);

		return reflect && get_random_u32() < reflect;
	}
	magnitude = min(magnitude, max);
	return get_random_u32() < percent + (u32)div_u64(24ull * percent * magnitude, max);
}

static void qrate_reflect(struct qrate_receiver *receiver, const struct qsignal_header *data,
			  u64 now_ns)
{
	struct qsignal_header feedback = qrate_reply_header(data, QSIGNAL_FEEDBACK, now_ns);

	feedback.feedback = data->feedback;
	feedback.feedback_bits = data->feedback_bits;
	spin_lock_bh(&receiver->lock);
	receiver->stats.feedbacks++;
	spin_unlock_bh(&receiver->lock);
	qrate_path_send(&receiver->path, &feedback, 0);
}

static void qrate_data(struct qrate_listener *listener, struct sk_buff *skb,
		       const struct qsignal_header *data)
{
	u64 now_ns = ktime_get_ns();
	struct qsignal_header ack = qrate_ack_header(data, now_ns);
	struct qrate_receiver *receiver = qrate_receiver_get(listener, skb, ntohl(data->flow));

	if (!receiver || !qrate_receive_data(receiver, data, skb->len, now_ns, &ack))
		return;
	qrate_path_send(&receiver->path, &ack, 0);
	if (qrate_is_reflected(listener, data))
		qrate_reflect(receiver, data, now_ns);
}

static int qrate_listener_receive(struct sock *sk, struct sk_buff *skb)
{
	struct qrate_listener *listener = rcu_dereference_sk_user_data(sk);
	struct qsignal_header header;

	if (likely(listener && qrate_pull_header(skb, &header) && header.type == QSIGNAL_DATA))
		qrate_data(listener, skb, &header);
	consume_skb(skb);
	return 0;
}

/* Lifetime */

static struct qrate_listener *qrate_listener_find(struct qrate_net *qnet, __be16 port)
{
	struct qrate_listener *listener;

	list_for_each_entry(listener, &qnet->listeners, list) {
		if (listener->port == port)
			return listener;
	}
	return NULL;
}

static int qrate_listener_open(struct qrate_listener *listener)
{
	static const sa_family_t families[] = { AF_INET, AF_INET6 };
	struct socket *socket;
	int i;

	for (i = 0; i < ARRAY_SIZE(families); i++) {
		socket = qrate_socket_open(listener->qnet->net, families[i], NULL, listener->port,
					   qrate_listener_receive, listener);
		if (families[i] == AF_INET6 && PTR_ERR(socket) == -EAFNOSUPPORT)
			continue;	/* the kernel has no IPv6 */
		if (IS_ERR(socket))
			return PTR_ERR(socket);
		listener->sockets[i] = socket;
	}
	return 0;
}

/* @reflect: P0; NULL: unchanged */
int qrate_listen(struct qrate_net *qnet, __be16 port, const u32 *reflect,
		 struct netlink_ext_ack *extack)
{
	struct qrate_listener *listener = qrate_listener_find(qnet, port);
	int err;

	if (!listener) {
		listener = kzalloc(sizeof(*listener), GFP_KERNEL);
		if (!listener)
			return -ENOMEM;
		listener->qnet = qnet;
		listener->port = port;
		err = qrate_listener_open(listener);
		if (err) {
			NL_SET_ERR_MSG(extack, "cannot bind to the port");
			qrate_listener_close(listener);
			synchronize_net();
			kfree(listener);
			return err;
		}
		list_add_tail(&listener->list, &qnet->listeners);
	}
	if (reflect)
		WRITE_ONCE(listener->reflect, *reflect);
	return 0;
}

void qrate_listener_close(struct qrate_listener *listener)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(listener->sockets); i++)
		qrate_socket_close(listener->sockets[i]);
}

/* Called when there are no users left. */
void qrate_receiver_free(struct qrate_receiver *receiver)
{
	spin_lock_bh(&qrate_receivers_lock);
	hash_del_rcu(&receiver->node);
	spin_unlock_bh(&qrate_receivers_lock);
	qrate_path_release(&receiver->path);
	kfree(receiver->coverage.intervals);
	kfree_rcu(receiver, rcu);
}
