/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Operations of switches and hosts on the congestion header (qbed/signal.h),
 * without kernel dependencies: validation, accumulation of a queue's value, and
 * the checksum update. docs/formats.md section 6 has the rules,
 * tests/wire/vectors.json the test vectors.
 */
#ifndef _QBED_SIGNAL_HEADER_H
#define _QBED_SIGNAL_HEADER_H

#include <qbed/signal.h>
#include <qbed/types.h>

_Static_assert(sizeof(struct qsignal_header) == QSIGNAL_HEADER_BYTES, "the header has holes");

#define QSIGNAL_MAX_BITS 32

/* A signal: an unsigned 128-bit integer. */
struct qsignal_value {
	u64 high, low;
};

static const struct qsignal_value qsignal_max = { U64_MAX, U64_MAX };

static inline struct qsignal_value qsignal_get(const __be64 signal[2])
{
	return (struct qsignal_value) { be64_to_cpu(signal[0]), be64_to_cpu(signal[1]) };
}

static inline void qsignal_put(__be64 signal[2], struct qsignal_value value)
{
	signal[0] = cpu_to_be64(value.high);
	signal[1] = cpu_to_be64(value.low);
}

static inline bool qsignal_less(struct qsignal_value a, struct qsignal_value b)
{
	return a.high < b.high || (a.high == b.high && a.low < b.low);
}

/* Saturates at 2^128 - 1. */
static inline struct qsignal_value qsignal_sum(struct qsignal_value a, struct qsignal_value b)
{
	struct qsignal_value sum = { a.high + b.high, a.low + b.low };
	bool carry = sum.low < a.low;

	if (sum.high < a.high || (carry && sum.high == U64_MAX))
		return qsignal_max;
	sum.high += carry;
	return sum;
}

static inline struct qsignal_value qsignal_square(u64 value)
{
	__uint128_t square = (__uint128_t)value * value;

	return (struct qsignal_value) { square >> 64, square };
}

/*
 * Appends a queue's length to a vector of @bits a queue. The largest value
 * stands for longer ones.
 */
static inline struct qsignal_value qsignal_append(struct qsignal_value vector, u32 bits, u64 length)
{
	u64 largest = (1ull << bits) - 1;

	return (struct qsignal_value) {
		vector.high << bits | vector.low >> (64 - bits),
		vector.low << bits | (length < largest ? length : largest),
	};
}

/* The number of queues whose lengths a vector has: the last ones. */
static inline u32 qsignal_queues(u32 bits, u32 hops)
{
	return hops < 128 / bits ? hops : 128 / bits;
}

/* The length of the queue that is @index queues before the last one. */
static inline u64 qsignal_entry(struct qsignal_value vector, u32 bits, u32 index)
{
	u32 shift = bits * index;

	if (shift >= 64)
		vector.low = vector.high >> (shift - 64);
	else if (shift)
		vector.low = vector.low >> shift | vector.high << (64 - shift);
	return vector.low & ((1ull << bits) - 1);
}

/* Result of validating a received header, whatever its type. */
enum qsignal_form {
	QSIGNAL_WELL_FORMED,
	QSIGNAL_TOO_SHORT,	/* for its version */
	QSIGNAL_UNKNOWN_VERSION,
	QSIGNAL_MALFORMED,	/* a field is out of range; the header is ignored */
};

/*
 * Validates the header of a UDP datagram with @payload_bytes of payload. Only
 * the first min(@payload_bytes, QSIGNAL_HEADER_BYTES) bytes of @header are
 * read.
 */
static inline enum qsignal_form qsignal_form(const struct qsignal_header *header, u64 payload_bytes)
{
	if (payload_bytes == 0)
		return QSIGNAL_TOO_SHORT;
	if (header->version != QSIGNAL_VERSION)
		return QSIGNAL_UNKNOWN_VERSION;
	if (payload_bytes < QSIGNAL_HEADER_BYTES)
		return QSIGNAL_TOO_SHORT;
	if (header->type < QSIGNAL_DATA || header->type > QSIGNAL_FEEDBACK ||
	    header->kind > QSIGNAL_VECTOR || header->unit > QSIGNAL_NS)
		return QSIGNAL_MALFORMED;
	if (header->kind != QSIGNAL_NONE &&
	    (header->bits < 1 || header->bits > QSIGNAL_MAX_BITS))
		return QSIGNAL_MALFORMED;
	return QSIGNAL_WELL_FORMED;
}

/*
 * Accumulates the value of one queue. For IND, @value is 1 if the queue exceeds
 * its threshold, else 0.
 */
static inline void qsignal_fold(struct qsignal_header *header, u64 value)
{
	struct qsignal_value signal = qsignal_get(header->signal);
	struct qsignal_value part = { 0, value };

	switch (header->kind) {
	case QSIGNAL_SUM:
		signal = qsignal_sum(signal, part);
		break;
	case QSIGNAL_SUM_SQU:
		signal = qsignal_sum(signal, qsignal_square(value));
		break;
	case QSIGNAL_MAX:
	case QSIGNAL_IND:
		if (qsignal_less(signal, part))
			signal = part;
		break;
	case QSIGNAL_VECTOR:
		signal = qsignal_append(signal, header->bits, value);
		break;
	default:
		return;
	}
	qsignal_put(header->signal, signal);
	if (header->hops < 255)
		header->hops++;
}

/*
 * Incremental update of the UDP checksum (RFC 1624) for a header that changed on
 * the wire, @before and @after filled up with zeros. Both checksums are in
 * network representation: the sum is independent of byte order. 0 means no
 * checksum and is kept; a computed 0 becomes 0xffff.
 */
static inline u16 qsignal_checksum(u16 check, const u8 before[QSIGNAL_HEADER_BYTES],
				   const u8 after[QSIGNAL_HEADER_BYTES])
{
	u16 old[QSIGNAL_HEADER_BYTES / 2], new[QSIGNAL_HEADER_BYTES / 2];
	u32 sum = (u16)~check;
	unsigned int i;

	if (!check)
		return 0;
	__builtin_memcpy(old, before, sizeof(old));
	__builtin_memcpy(new, after, sizeof(new));
	for (i = 0; i < QSIGNAL_HEADER_BYTES / 2; i++)
		sum += (u16)~old[i] + new[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (u16)~sum ?: 0xffff;
}

#endif /* _QBED_SIGNAL_HEADER_H */
