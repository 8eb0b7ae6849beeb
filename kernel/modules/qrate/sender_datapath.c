// SPDX-License-Identifier: GPL-2.0-only
/*
 * Packets of a sender.
 *
 * The pacing interval of each packet follows from the controller's rate. Lost
 * payload is sent before new payload. A sender has data to send until it ends,
 * so it is never idle in between. It tracks at most QRATE_MAX_PACKETS packets;
 * then it waits.
 *
 * Every data packet is acknowledged. A packet is declared lost by the
 * acknowledgement of a later one (RFC 9002, 6.1), or, without one, by a probe
 * timeout (6.2): then the oldest packet in flight is retransmitted, and the
 * timeout doubles until the next acknowledgement. A lost acknowledgement is
 * covered by the bitmap of the next one. The packets of a flow keep their size:
 * if the path MTU falls below it, all are lost.
 *
 * The lock is not held while a packet is sent: on links without a rate the
 * reply may arrive before the call returns.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/udp.h>
#include <net/ipv6.h>
#include <net/sock.h>

#include "qrate.h"
#include "qrate_sqrt.h"

/* Maximum number of packets per run of a late timer. */
#define QRATE_BURST 64

/* A longer wait is recomputed when the rate may have changed. */
#define QRATE_LONG_WAIT_NS NSEC_PER_MSEC

static ulong probe_first_us = 100000;
module_param(probe_first_us, ulong, 0644);
MODULE_PARM_DESC(probe_first_us, "probe timeout before the first RTT sample, in us");

static ulong probe_min_us = 10000;
module_param(probe_min_us, ulong, 0644);
MODULE_PARM_DESC(probe_min_us, "minimum probe timeout, in us");

static u64 qrate_parameter_ns(ulong us)
{
	return clamp_t(u64, us, 1, 3600 * USEC_PER_SEC) * NSEC_PER_USEC;
}

static u64 qrate_timeout_ns(const struct qrate_sender *sender)
{
	struct qrate_rtt_params params = {
		.first_ns = qrate_parameter_ns(READ_ONCE(probe_first_us)),
		.min_ns = qrate_parameter_ns(READ_ONCE(probe_min_us)),
	};

	return qrate_rtt_timeout_ns(&sender->rtt, params);
}

static u64 qrate_rate(const struct qrate_sender *sender)
{
	return sender->controller->rate(sender->controller_state, sender->controller_params);
}

/* Data to send */

static bool qrate_has_new(const struct qrate_sender *sender)
{
	return !sender->stopped && sender->next_offset < sender->params.size;
}

static bool qrate_has_ended(const struct qrate_sender *sender)
{
	return !qrate_has_new(sender) && qrate_flight_is_empty(&sender->flight);
}

/* Returns true if one more packet can be tracked. The ring grows up to QRATE_MAX_PACKETS. */
static bool qrate_has_room(struct qrate_sender *sender)
{
	struct qrate_flight *flight = &sender->flight;
	struct qrate_packet *packets;
	u32 capacity = 2 * flight->capacity;

	if (likely(!qrate_flight_is_full(flight)))
		return true;
	if (capacity > QRATE_MAX_PACKETS)
		return false;
	packets = kmalloc_array(capacity, sizeof(*packets), GFP_ATOMIC | __GFP_NOWARN);
	if (!packets)
		return false;
	kfree(qrate_flight_grow(flight, packets, capacity));
	return true;
}

/*
 * Selects the next payload: lost or new. Returns false if there is none, or no
 * space to track it.
 */
static bool qrate_next_payload(struct qrate_sender *sender, u64 *offset, u32 *length)
{
	const struct qrate_packet *lost = qrate_flight_first_lost(&sender->flight);

	if (unlikely(lost)) {
		*offset = lost->offset;
		*length = lost->length;
		sender->flight.first++;	/* frees an entry */
		return true;
	}
	if (!qrate_has_new(sender) || !qrate_has_room(sender))
		return false;
	*offset = sender->next_offset;
	*length = min_t(u64, sender->params.payload, sender->params.size - *offset);
	sender->next_offset += *length;
	return true;
}

/*
 * Returns true if there is data to send and space to track it. Time during
 * which this was false is not made up for.
 */
static bool qrate_is_ready(struct qrate_sender *sender, u64 now_ns)
{
	bool ready = qrate_flight_first_lost(&sender->flight) ||
		     (qrate_has_new(sender) && qrate_has_room(sender));

	if (ready && !sender->ready)
		sender->pace.next_ns = max(sender->pace.next_ns, now_ns);
	sender->ready = ready;
	return ready;
}

/* Time of the probe timeout of the oldest packet in flight. */
static u64 qrate_probe_ns(struct qrate_sender *sender)
{
	const struct qrate_packet *oldest = qrate_flight_oldest(&sender->flight);

	return oldest ? max(oldest->sent_ns, sender->probed_ns) + qrate_timeout_ns(sender) :
			U64_MAX;
}

/* Arms the timer for the next event. An early expiry is harmless. */
static void qrate_arm(struct qrate_sender *sender, u64 now_ns)
{
	u64 next_ns = qrate_probe_ns(sender);

	if (qrate_is_ready(sender, now_ns))
		next_ns = min(next_ns, sender->pace.next_ns);
	if (qrate_has_new(sender))
		next_ns = min(next_ns, sender->params.stop_ns);
	if (next_ns >= sender->armed_ns || sender->dead)
		return;
	sender->armed_ns = next_ns;
	hrtimer_start(&sender->timer, ns_to_ktime(next_ns), HRTIMER_MODE_ABS_SOFT);
}

/* Sending */

static void qrate_report_losses(struct qrate_sender *sender, u32 packets, u64 now_ns)
{
	sender->stats.lost_packets += packets;
	while (packets-- && sender->controller->on_loss)
		sender->controller->on_loss(sender->controller_state, sender->controller_params,
					    now_ns);
}

/* Probe timeout: RFC 9002, 6.2. */
static void qrate_probe(struct qrate_sender *sender, u64 now_ns)
{
	if (likely(qrate_probe_ns(sender) > now_ns))
		return;
	sender->probed_ns = now_ns;
	sender->stats.timeouts++;
	if (sender->rtt.backoff < QRATE_MAX_BACKOFF)
		sender->rtt.backoff++;
	qrate_flight_mark_lost(&sender->flight);
	qrate_report_losses(sender, 1, now_ns);
}

static bool qrate_is_last(const struct qrate_sender *sender, u64 end)
{
	return end == sender->params.size || (sender->stopped && end == sender->next_offset);
}

/* Header of data packets, without what differs between packets. */
struct qsignal_header qrate_data_header(const struct qrate_sender_params *params)
{
	return (struct qsignal_header) {
		.version = params->compact ? QSIGNAL_COMPACT : QSIGNAL_VERSION,
		.type = QSIGNAL_DATA,
		.flags = params->compact && params->forward ? QSIGNAL_FORWARD : 0,
		.kind = params->kind,
		.unit = params->unit,
		.bits = params->bits,
	};
}

/*
 * Prepares the packet to send at @now_ns: its header and the length of its
 * payload. Returns false if none is due.
 */
static bool qrate_next_packet(struct qrate_sender *sender, u64 now_ns, struct qsignal_header *header,
			 u32 *length)
{
	const struct qrate_sender_params *params = &sender->params;
	u64 offset, number;
	u32 bytes;

	if (sender->dead || !qrate_is_ready(sender, now_ns) || sender->pace.next_ns > now_ns)
		return false;
	if (!qrate_next_payload(sender, &offset, length))
		return false;
	number = qrate_flight_send(&sender->flight, offset, *length, now_ns);
	bytes = params->overhead + *length;
	if (sender->controller->on_sent)
		sender->controller->on_sent(sender->controller_state, sender->controller_params,
					    now_ns, bytes);
	qrate_pace_sent(&sender->pace, bytes, qrate_rate(sender));
	sender->stats.sent_packets++;
	sender->stats.sent_bytes += *length;
	*header = qrate_data_header(params);
	header->flags |= qrate_is_last(sender, offset + *length) ? QSIGNAL_LAST : 0;
	header->flow = htonl(sender->record.flow);
	header->sequence = cpu_to_be64(number);
	header->offset = cpu_to_be64(offset);
	header->time = cpu_to_be64(now_ns);
	return true;
}

/*
 * Called under the lock; if it returns true, the caller calls qrate_finish()
 * after releasing it.
 */
static bool qrate_check_end(struct qrate_sender *sender, u64 now_ns)
{
	if (likely(!qrate_has_ended(sender)) || sender->record.end_ns || sender->dead)
		return false;
	sender->record.end_ns = now_ns;
	kfree(sender->flight.packets);
	sender->flight.packets = NULL;
	return true;
}

static void qrate_finish(struct qrate_sender *sender, bool ended)
{
	struct qrate_net *qnet = sender->qnet;

	if (likely(!ended))
		return;
	xa_lock_bh(&qnet->records);
	__xa_clear_mark(&qnet->records, sender->record.id, QRATE_RUNNING);
	xa_unlock_bh(&qnet->records);
	spin_lock_bh(&qnet->ended_lock);
	list_add_tail(&sender->ended, &qnet->ended);
	spin_unlock_bh(&qnet->ended_lock);
	schedule_delayed_work(&qnet->reap, QRATE_REAP_JIFFIES);
	sender->on_ended(qnet->net, sender->record.flow);
}

/* Sends the packets that are due and arms the timer. */
static void qrate_run(struct qrate_sender *sender, bool from_timer)
{
	struct qsignal_header header;
	u32 length, sent;
	bool ended, due;
	u64 now_ns;

	for (sent = 0, due = true; due; sent++) {
		spin_lock_bh(&sender->lock);
		now_ns = ktime_get_ns();
		if (from_timer && !sent) {
			sender->armed_ns = U64_MAX;
			qrate_probe(sender, now_ns);
		}
		if (now_ns >= sender->params.stop_ns)
			sender->stopped = true;
		due = sent < QRATE_BURST && qrate_next_packet(sender, now_ns, &header, &length);
		ended = !due && qrate_check_end(sender, now_ns);
		if (!due)
			qrate_arm(sender, now_ns);
		spin_unlock_bh(&sender->lock);
		if (due)
			qrate_path_send(&sender->path, &header, length);
	}
	qrate_finish(sender, ended);
}

enum hrtimer_restart qrate_sender_timer(struct hrtimer *timer)
{
	qrate_run(container_of(timer, struct qrate_sender, timer), true);
	return HRTIMER_NORESTART;
}

/* Sends the first packet. */
void qrate_sender_run(struct qrate_sender *sender)
{
	qrate_run(sender, false);
}

void qrate_sender_stop(struct qrate_sender *sender)
{
	bool ended;

	spin_lock_bh(&sender->lock);
	sender->stopped = true;
	ended = qrate_check_end(sender, ktime_get_ns());
	spin_unlock_bh(&sender->lock);
	qrate_finish(sender, ended);
}

/* Receiving */

/* Extracts the signal for the controller. */
static void qrate_signal(const struct qrate_sender *sender, const struct qsignal_header *header,
			 struct rate_ack *ack)
{
	/* a compact acknowledgement has one signal, which switches leave unchanged if it is forward */
	bool echo = sender->params.forward && !sender->params.compact;
	struct qsignal_value value = qsignal_get(echo ? header->echo_signal : header->signal);
	u8 hops = echo ? header->echo_hops : header->hops;
	u32 i;

	ack->has_signal = sender->params.kind != QSIGNAL_NONE && hops;
	if (sender->params.kind == QSIGNAL_SUM_SQU) {
		ack->signal = qrate_sqrt(value.high, value.low);
	} else if (sender->params.kind != QSIGNAL_VECTOR) {
		ack->signal = value.high ? U64_MAX : value.low;
		if (sender->params.compact && sender->params.kind != QSIGNAL_IND)
			ack->signal = qsignal_length(value.low, sender->params.bits, sender->params.full);
	} else {
		ack->vector = value;
		ack->bits = sender->params.bits;
		ack->queues = qsignal_queues(ack->bits, hops);
		for (i = 0; i < ack->queues; i++)
			ack->signal = max(ack->signal, qsignal_entry(value, ack->bits, i));
	}
}

static void qrate_controller_ack(struct qrate_sender *sender, const struct qsignal_header *header,
				  u32 length, u64 now_ns)
{
	struct rate_ack ack = {
		.now_ns = now_ns,
		.rtt_ns = sender->rtt.last_ns,
		.bytes = sender->params.overhead + length,
		.kind = sender->params.kind,
		.unit = sender->params.unit,
	};

	qrate_signal(sender, header, &ack);
	if (ack.has_signal)
		sender->stats.last_signal = ack.signal;
	if (sender->controller->on_ack)
		sender->controller->on_ack(sender->controller_state, sender->controller_params,
					   &ack);
}

static void qrate_ack(struct qrate_sender *sender, const struct qsignal_header *header, u64 now_ns)
{
	struct qrate_flight *flight = &sender->flight;
	u64 number = be64_to_cpu(header->sequence);
	const struct qrate_packet *packet = qrate_flight_ack(flight, number);
	u64 threshold_ns;

	if (packet) {
		sender->rtt.backoff = 0;
		sender->stats.acked_bytes += packet->length;
		qrate_rtt_sample(&sender->rtt, now_ns - packet->sent_ns);
		qrate_controller_ack(sender, header, packet->length, now_ns);
	}
	if (number < flight->first || number >= flight->next)
		return;
	sender->stats.acked_bytes +=
		qrate_flight_ack_window(flight, number, be64_to_cpu(header->window));
	threshold_ns = min(now_ns, qrate_rtt_threshold_ns(&sender->rtt));
	qrate_report_losses(sender, qrate_flight_detect(flight, number, now_ns - threshold_ns), now_ns);
	qrate_flight_advance(flight);
}

static void qrate_feedback(struct qrate_sender *sender, const struct qsignal_header *header,
			   u64 now_ns)
{
	u8 bits = clamp_t(u8, header->feedback_bits, 1, 16);
	struct rate_feedback feedback = {
		.now_ns = now_ns,
		.magnitude = ntohs(header->feedback),
		.max = (1u << bits) - 1,
	};

	feedback.magnitude = min(feedback.magnitude, feedback.max);
	sender->stats.feedbacks++;
	if (sender->controller->on_feedback)
		sender->controller->on_feedback(sender->controller_state,
						sender->controller_params, &feedback);
}

/* Feedback may come from a switch; acknowledgements only from the receiver. */
static bool qrate_is_from_receiver(const struct qrate_sender *sender, const struct sk_buff *skb)
{
	const struct qrate_path *path = &sender->path;

	if (udp_hdr(skb)->source != path->destination_port)
		return false;
	return path->family == AF_INET ?
		ip_hdr(skb)->saddr == path->destination.v4 :
		ipv6_addr_equal(&ipv6_hdr(skb)->saddr, &path->destination.v6);
}

static void qrate_sender_input(struct qrate_sender *sender, const struct qsignal_header *header)
{
	bool ended;
	u64 now_ns;

	spin_lock_bh(&sender->lock);
	now_ns = ktime_get_ns();
	if (header->type == QSIGNAL_ACK)
		qrate_ack(sender, header, now_ns);
	else
		qrate_feedback(sender, header, now_ns);
	if (unlikely(sender->pace.next_ns > now_ns + QRATE_LONG_WAIT_NS))
		qrate_pace_speed_up(&sender->pace, now_ns, qrate_rate(sender));
	ended = qrate_check_end(sender, now_ns);
	qrate_arm(sender, now_ns);
	spin_unlock_bh(&sender->lock);
	qrate_finish(sender, ended);
}

int qrate_sender_receive(struct sock *sk, struct sk_buff *skb)
{
	struct qrate_sender *sender = rcu_dereference_sk_user_data(sk);
	struct qsignal_header header;

	if (likely(sender && qrate_pull_header(skb, &header) &&
		   ntohl(header.flow) == sender->record.flow) &&
	    ((header.type == QSIGNAL_ACK && qrate_is_from_receiver(sender, skb)) ||
	     header.type == QSIGNAL_FEEDBACK))
		qrate_sender_input(sender, &header);
	consume_skb(skb);
	return 0;
}
