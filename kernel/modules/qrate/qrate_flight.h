/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A sender's packets by their numbers, first to next:
 *
 *   first         the oldest that is neither acknowledged nor sent anew
 *   lost_below    up to here, what is not acknowledged is lost and waits, oldest
 *                 first, to be sent anew (under a new number)
 *   next          from lost_below up to here, what is not acknowledged is in flight
 *
 * Losses are found oldest first, so that this border is all there is to know.
 */
#ifndef _QRATE_FLIGHT_H
#define _QRATE_FLIGHT_H

#include <qbed/types.h>

/* RFC 9002, 6.1.1: kPacketThreshold */
#define QRATE_PACKET_THRESHOLD 3

struct qrate_packet {
	u64 offset;		/* of its payload in the flow */
	u64 sent_ns;
	u32 length;		/* of its payload */
	bool acked;
};

struct qrate_flight {
	struct qrate_packet *packets;
	u32 capacity;		/* a power of two */
	u64 first;
	u64 lost_below;
	u64 next;
	u64 bytes;		/* payload in flight */
};

static inline struct qrate_packet *qrate_flight_at(const struct qrate_flight *flight, u64 number)
{
	return &flight->packets[number & (flight->capacity - 1)];
}

static inline bool qrate_flight_is_full(const struct qrate_flight *flight)
{
	return flight->next - flight->first == flight->capacity;
}

static inline bool qrate_flight_is_empty(const struct qrate_flight *flight)
{
	return flight->next == flight->first;
}

/* Move into @packets, which are more; returns those from before. */
static inline struct qrate_packet *qrate_flight_grow(struct qrate_flight *flight,
						     struct qrate_packet *packets, u32 capacity)
{
	struct qrate_flight before = *flight;
	u64 number;

	flight->packets = packets;
	flight->capacity = capacity;
	for (number = before.first; number < before.next; number++)
		*qrate_flight_at(flight, number) = *qrate_flight_at(&before, number);
	return before.packets;
}

/* Returns the packet's number. There is room. */
static inline u64 qrate_flight_send(struct qrate_flight *flight, u64 offset, u32 length, u64 now_ns)
{
	*qrate_flight_at(flight, flight->next) = (struct qrate_packet) {
		.offset = offset,
		.sent_ns = now_ns,
		.length = length,
	};
	flight->bytes += length;
	return flight->next++;
}

/* What is done with leaves. */
static inline void qrate_flight_settle(struct qrate_flight *flight)
{
	while (flight->first < flight->next && qrate_flight_at(flight, flight->first)->acked)
		flight->first++;
	if (flight->lost_below < flight->first)
		flight->lost_below = flight->first;
}

/* Acknowledged: returns the packet, or NULL if nothing is new in that. */
static inline struct qrate_packet *qrate_flight_ack(struct qrate_flight *flight, u64 number)
{
	struct qrate_packet *packet;

	if (number < flight->first || number >= flight->next)
		return NULL;
	packet = qrate_flight_at(flight, number);
	if (packet->acked)
		return NULL;
	packet->acked = true;
	if (number >= flight->lost_below)
		flight->bytes -= packet->length;
	return packet;
}

/* Bit i of @window: packet @number - 1 - i has arrived, too. Returns how many bytes of payload are new in that. */
static inline u64 qrate_flight_ack_window(struct qrate_flight *flight, u64 number, u64 window)
{
	const struct qrate_packet *packet;
	u64 bytes = 0;
	u32 i;

	for (i = 0; window && i < 64 && number > flight->first + i; i++, window >>= 1) {
		packet = window & 1 ? qrate_flight_ack(flight, number - 1 - i) : NULL;
		bytes += packet ? packet->length : 0;
	}
	return bytes;
}

/* The oldest in flight, or NULL. */
static inline struct qrate_packet *qrate_flight_oldest(struct qrate_flight *flight)
{
	while (flight->lost_below < flight->next) {
		struct qrate_packet *packet = qrate_flight_at(flight, flight->lost_below);

		if (!packet->acked)
			return packet;
		flight->lost_below++;
	}
	return NULL;
}

/* The oldest in flight is taken for lost. */
static inline void qrate_flight_lose(struct qrate_flight *flight)
{
	struct qrate_packet *packet = qrate_flight_oldest(flight);

	if (packet) {
		flight->bytes -= packet->length;
		flight->lost_below++;
	}
}

/*
 * What the acknowledgement of @number, the last one, says about earlier ones:
 * lost if QRATE_PACKET_THRESHOLD or more before it (RFC 9002, 6.1.1), or sent at
 * @before_ns or earlier (6.1.2). Returns how many were lost.
 */
static inline u32 qrate_flight_detect(struct qrate_flight *flight, u64 number, u64 before_ns)
{
	const struct qrate_packet *packet;
	u32 lost = 0;

	while ((packet = qrate_flight_oldest(flight)) && flight->lost_below < number) {
		if (number - flight->lost_below < QRATE_PACKET_THRESHOLD &&
		    packet->sent_ns > before_ns)
			break;
		qrate_flight_lose(flight);
		lost++;
	}
	return lost;
}

/* What waits to be sent anew, oldest first, or NULL. */
static inline struct qrate_packet *qrate_flight_lost(struct qrate_flight *flight)
{
	qrate_flight_settle(flight);
	return flight->first < flight->lost_below ? qrate_flight_at(flight, flight->first) : NULL;
}

#endif /* _QRATE_FLIGHT_H */
