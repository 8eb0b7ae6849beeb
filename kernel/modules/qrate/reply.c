// SPDX-License-Identifier: GPL-2.0-only
/* Attributes of a flow in replies. */
#include <net/genetlink.h>

#include "qrate.h"

static int qrate_put_address(struct sk_buff *skb, int attribute, const struct qrate_path *path,
			     const union qrate_address *address)
{
	return nla_put(skb, attribute,
		       path->family == AF_INET ? sizeof(address->v4) : sizeof(address->v6),
		       address);
}

/* Addresses and ports from the sender's point of view. @reverse: @path is the receiver's. */
static int qrate_put_path(struct sk_buff *skb, const struct qrate_path *path, bool reverse)
{
	return qrate_put_address(skb, QRATE_A_SOURCE, path,
				 reverse ? &path->destination : &path->source) ?:
	       qrate_put_address(skb, QRATE_A_DESTINATION, path,
				 reverse ? &path->source : &path->destination) ?:
	       nla_put_u16(skb, QRATE_A_SOURCE_PORT,
			   ntohs(reverse ? path->destination_port : path->source_port)) ?:
	       nla_put_u16(skb, QRATE_A_DESTINATION_PORT,
			   ntohs(reverse ? path->source_port : path->destination_port));
}

static int qrate_put_u64(struct sk_buff *skb, int attribute, u64 value)
{
	return nla_put_u64_64bit(skb, attribute, value, QRATE_A_PAD);
}

static int qrate_put_sender(struct sk_buff *skb, struct qrate_sender *sender)
{
	const struct qrate_sender_stats *stats = &sender->stats;
	u64 rate_bps = sender->controller->rate(sender->controller_state,
						sender->controller_params);

	return qrate_put_u64(skb, QRATE_A_RATE, rate_bps) ?:
	       qrate_put_u64(skb, QRATE_A_RTT, sender->rtt.last_ns) ?:
	       qrate_put_u64(skb, QRATE_A_MIN_RTT, sender->rtt.min_ns) ?:
	       qrate_put_u64(skb, QRATE_A_LAST_SIGNAL, stats->last_signal) ?:
	       qrate_put_u64(skb, QRATE_A_FEEDBACKS, stats->feedbacks) ?:
	       qrate_put_u64(skb, QRATE_A_SENT_BYTES, stats->sent_bytes) ?:
	       qrate_put_u64(skb, QRATE_A_SENT_PACKETS, stats->sent_packets) ?:
	       qrate_put_u64(skb, QRATE_A_ACKED_BYTES, stats->acked_bytes) ?:
	       qrate_put_u64(skb, QRATE_A_LOST_PACKETS, stats->lost_packets) ?:
	       nla_put_u32(skb, QRATE_A_TIMEOUTS, stats->timeouts) ?:
	       qrate_put_u64(skb, QRATE_A_INFLIGHT, sender->flight.bytes) ?:
	       (sender->record.end_ns ? nla_put_flag(skb, QRATE_A_ENDED) ?:
		qrate_put_u64(skb, QRATE_A_END_TIME, sender->record.end_ns) : 0);
}

static int qrate_put_receiver(struct sk_buff *skb, const struct qrate_receiver *receiver)
{
	return qrate_put_u64(skb, QRATE_A_FEEDBACKS, receiver->stats.feedbacks) ?:
	       qrate_put_u64(skb, QRATE_A_RECEIVED_BYTES, receiver->coverage.bytes) ?:
	       qrate_put_u64(skb, QRATE_A_RECEIVED_PACKETS, receiver->stats.packets) ?:
	       qrate_put_u64(skb, QRATE_A_END_TIME, receiver->record.end_ns) ?:
	       (receiver->coverage.bytes == receiver->size ?
		nla_put_flag(skb, QRATE_A_ENDED) : 0);
}

static int qrate_put_role(struct sk_buff *skb, struct qrate_record *record)
{
	struct qrate_receiver *receiver;
	struct qrate_sender *sender;
	int err;

	if (record->role == QRATE_SENDER) {
		sender = container_of(record, struct qrate_sender, record);
		spin_lock_bh(&sender->lock);
		err = qrate_put_path(skb, &sender->path, false) ?: qrate_put_sender(skb, sender);
		spin_unlock_bh(&sender->lock);
	} else {
		receiver = container_of(record, struct qrate_receiver, record);
		spin_lock_bh(&receiver->lock);
		err = qrate_put_path(skb, &receiver->path, true) ?:
		      qrate_put_receiver(skb, receiver);
		spin_unlock_bh(&receiver->lock);
	}
	return err;
}

int qrate_put_flow(struct sk_buff *skb, struct qrate_record *record)
{
	return nla_put_u32(skb, QRATE_A_FLOW, record->flow) ?:
	       nla_put_u8(skb, QRATE_A_ROLE, record->role) ?:
	       qrate_put_u64(skb, QRATE_A_START_TIME, record->start_ns) ?:
	       qrate_put_role(skb, record);
}
