/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The headers on the wire, full and compact. In memory both are a struct
 * qsignal_header; the fields that a compact header does not carry are 0.
 */
#ifndef _QBED_SIGNAL_COMPACT_H
#define _QBED_SIGNAL_COMPACT_H

#include <qbed/signal_header.h>

_Static_assert(sizeof(struct qsignal_compact) == QSIGNAL_COMPACT_BYTES, "the header has holes");

#define QSIGNAL_SUM_BITS 4		/* a sum has room for 16 full queues */
#define QSIGNAL_MAX_OFFSET (1ull << 56)	/* of a compact header */

/* Bits of the signal in a compact header, of queues of @bits each. */
static inline u32 qsignal_compact_bits(u8 kind, u8 bits)
{
	switch (kind) {
	case QSIGNAL_SUM:
		return bits + QSIGNAL_SUM_BITS;
	case QSIGNAL_MAX:
		return bits;
	case QSIGNAL_IND:
		return 1;
	default:
		return 0;
	}
}

/* Returns true if a compact header can carry a signal of @kind. */
static inline bool qsignal_compact_has(u8 kind)
{
	return kind == QSIGNAL_NONE || qsignal_compact_bits(kind, 1);
}

/* Length of a header on the wire, which follows from its version, kind and bits. */
static inline u32 qsignal_bytes(const struct qsignal_header *header)
{
	u32 bits = qsignal_compact_bits(header->kind, header->bits), bytes = 1;

	if (header->version != QSIGNAL_COMPACT)
		return QSIGNAL_HEADER_BYTES;
	while (8 * bytes < bits)
		bytes *= 2;
	return QSIGNAL_COMPACT_BYTES + (bits ? bytes : 0);
}

static inline u64 qsignal_read_number(const u8 *at, u32 bytes)
{
	u64 value = 0;

	while (bytes--)
		value = value << 8 | *at++;
	return value;
}

static inline void qsignal_write_number(u8 *at, u32 bytes, u64 value)
{
	for (; bytes--; value >>= 8)
		at[bytes] = value;
}

/* Reads a compact header of a datagram with @payload_bytes of payload. */
static inline enum qsignal_form qsignal_compact_read(struct qsignal_header *header, const void *wire,
						     u64 payload_bytes)
{
	const struct qsignal_compact *compact = wire;
	u64 position;

	if (payload_bytes < QSIGNAL_COMPACT_BYTES)
		return QSIGNAL_TOO_SHORT;
	*header = (struct qsignal_header) {
		.version = QSIGNAL_COMPACT,
		.type = compact->type >> 6,
		.flags = (compact->type & QSIGNAL_COMPACT_LAST ? QSIGNAL_LAST : 0) |
			 (compact->type & QSIGNAL_COMPACT_FORWARD ? QSIGNAL_FORWARD : 0),
		.kind = compact->type & 7,
		.unit = compact->format >> 6,
		.bits = (compact->format & 31) + 1,
		.hops = !!(compact->type & QSIGNAL_COMPACT_STAMPED),
		.flow = cpu_to_be32(qsignal_read_number(compact->flow, sizeof(compact->flow))),
		.sequence = cpu_to_be64(qsignal_read_number(compact->sequence,
							    sizeof(compact->sequence))),
	};
	if ((header->type != QSIGNAL_DATA && header->type != QSIGNAL_ACK) ||
	    !qsignal_compact_has(header->kind) || header->unit > QSIGNAL_NS)
		return QSIGNAL_MALFORMED;
	if (payload_bytes < qsignal_bytes(header))
		return QSIGNAL_TOO_SHORT;
	position = qsignal_read_number(compact->position, sizeof(compact->position));
	*(header->type == QSIGNAL_DATA ? &header->offset : &header->window) = cpu_to_be64(position);
	header->signal[1] = cpu_to_be64(qsignal_read_number(compact->signal, qsignal_bytes(header) -
							    QSIGNAL_COMPACT_BYTES));
	return QSIGNAL_WELL_FORMED;
}

/*
 * Reads the header of a datagram with @payload_bytes of payload, of which the
 * first min(@payload_bytes, QSIGNAL_HEADER_BYTES) are at @wire, with any
 * alignment. *@header is defined if the result is QSIGNAL_WELL_FORMED.
 */
static inline enum qsignal_form qsignal_read(struct qsignal_header *header, const void *wire,
					     u64 payload_bytes)
{
	if (payload_bytes && *(const u8 *)wire == QSIGNAL_COMPACT)
		return qsignal_compact_read(header, wire, payload_bytes);
	__builtin_memcpy(header, wire, payload_bytes < sizeof(*header) ? payload_bytes : sizeof(*header));
	return qsignal_form(header, payload_bytes);
}

/* Writes @header to @wire. A signal that does not fit is the largest value. */
static inline void qsignal_write(const struct qsignal_header *header, u8 wire[QSIGNAL_HEADER_BYTES])
{
	bool data = header->type == QSIGNAL_DATA;
	struct qsignal_compact *compact = (void *)wire;
	struct qsignal_value signal = qsignal_get(header->signal);
	u64 largest;

	if (header->version != QSIGNAL_COMPACT) {
		__builtin_memcpy(wire, header, sizeof(*header));
		return;
	}
	largest = (1ull << qsignal_compact_bits(header->kind, header->bits)) - 1;
	compact->version = QSIGNAL_COMPACT;
	compact->type = header->type << 6 | header->kind |
			(header->flags & QSIGNAL_LAST ? QSIGNAL_COMPACT_LAST : 0) |
			(header->flags & QSIGNAL_FORWARD ? QSIGNAL_COMPACT_FORWARD : 0) |
			(header->hops ? QSIGNAL_COMPACT_STAMPED : 0);
	compact->format = header->unit << 6 | (header->bits - 1);
	qsignal_write_number(compact->flow, sizeof(compact->flow), be32_to_cpu(header->flow));
	qsignal_write_number(compact->sequence, sizeof(compact->sequence),
			     be64_to_cpu(header->sequence));
	qsignal_write_number(compact->position, sizeof(compact->position),
			     be64_to_cpu(data ? header->offset : header->window));
	qsignal_write_number(compact->signal, qsignal_bytes(header) - QSIGNAL_COMPACT_BYTES,
			     signal.high || signal.low > largest ? largest : signal.low);
}

/*
 * Shortest queue in a bin of a compact header, or a sum of such: @share of 2^@bits
 * equal parts of @full, rounded up.
 */
static inline u64 qsignal_length(u64 share, u32 bits, u32 full)
{
	return ((__uint128_t)share * full + (1ull << bits) - 1) >> bits;
}

#endif /* _QBED_SIGNAL_COMPACT_H */
