/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A sender's packets, indexed by packet number from first to next:
 *
 *   first         the oldest packet neither acknowledged nor retransmitted
 *   lost_below    unacknowledged packets below are lost and are retransmitted,
 *                 oldest first, under new numbers
 *   next          unacknowledged packets from lost_below up to next are in flight
 *
 * Losses are detected oldest first, so one boundary is sufficient.
 */
#ifndef _QRATE_FLIGHT_H
#define _QRATE_FLIGHT_H

#include <qbed/types.h>

/* RFC 9002, 6.1.1: kPacketThreshold */
#define QRATE_PACKET_THRESHOLD 3

struct qrate_packet {
	u64 offset;		/* of the payload in the flow */
	u64 sent_ns;
	u32 length;		/* of the payload */
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

/* Moves the ring into the larger array @packets. Returns the old array. */
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

/* Adds a packet. Returns its number. The ring must not be full. */
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

/* Removes acknowledged packets from the start of the ring. */
static inline void qrate_flight_advance(struct qrate_flight *flight)
{
	while (flight->first < flight->next && qrate_flight_at(flight, flight->first)->acked)
		flight->first++;
	if (flight->lost_below < flight->first)
		flight->lost_below = flight->first;
}

/*
 * Marks a packet acknowledged. Returns it, or NULL if it was acknowledged
 * before or is unknown.
 */
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

/*
 * Marks packets acknowledged by the bitmap of an acknowledgement: bit i: packet
 * @number - 1 - i. Returns the newly acknowledged bytes of payload.
 */
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

/* Returns the oldest packet in flight, or NULL. */
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

/* Declares the oldest packet in flight lost. */
static inline void qrate_flight_mark_lost(struct qrate_flight *flight)
{
	struct qrate_packet *packet = qrate_flight_oldest(flight);

	if (packet) {
		flight->bytes -= packet->length;
		flight->lost_below++;
	}
}

/*
 * Detects losses after the acknowledgement of @number: an earlier packet is
 * lost if QRATE_PACKET_THRESHOLD or more before it (RFC 9002, 6.1.1), or sent
 * at @before_ns or earlier (6.1.2). Returns the number of lost packets.
 */
static inline u32 qrate_flight_detect(struct qrate_flight *flight, u64 number, u64 before_ns)
{
	const struct qrate_packet *packet;
	u32 lost = 0;

	while ((packet = qrate_flight_oldest(flight)) && flight->lost_below < number) {
		if (number - flight->lost_below < QRATE_PACKET_THRESHOLD &&
		    packet->sent_ns > before_ns)
			break;
		qrate_flight_mark_lost(flight);
		lost++;
	}
	return lost;
}

/* Returns the oldest lost packet to retransmit, or NULL. */
static inline struct qrate_packet *qrate_flight_first_lost(struct qrate_flight *flight)
{
	qrate_flight_advance(flight);
	return flight->first < flight->lost_below ? qrate_flight_at(flight, flight->first) : NULL;
}

#endif /* _QRATE_FLIGHT_H */
