// SPDX-License-Identifier: GPL-2.0-only
/* The congestion headers, full and compact, tested with tests/wire/vectors.json and with random values. */
#include <string.h>

#include <qbed/signal_compact.h>

#include "unit.h"

struct packet_vector {
	const char *name;
	const u8 *packet;
	size_t bytes, payload_at;
	enum qsignal_form form;
	struct qsignal_header header;	/* if it is well-formed */
};

struct path_vector {
	const char *name;
	const u8 *before;
	size_t before_bytes;
	const u8 *after;
	size_t after_bytes, payload_at;
	const u64 *parts;
	size_t count;
};

#include "wire_vectors.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* The header begins @offset bytes after an aligned address. */
static void parses_the_test_vectors(const struct packet_vector *vector, size_t offset)
{
	size_t bytes = vector->bytes - vector->payload_at;
	u8 *memory = malloc(offset + bytes);	/* of the exact size, for the sanitizer */
	u8 *payload = memory + offset;
	u8 written[QSIGNAL_HEADER_BYTES];
	struct qsignal_header header;

	memcpy(payload, vector->packet + vector->payload_at, bytes);
	EXPECT_EQUAL(qsignal_read(&header, payload, bytes), vector->form);
	if (vector->form == QSIGNAL_WELL_FORMED) {
		EXPECT_EQUAL(memcmp(&header, &vector->header, sizeof(header)), 0);
		EXPECT(qsignal_bytes(&header) <= bytes);
		qsignal_write(&header, written);
		EXPECT_EQUAL(memcmp(payload, written, qsignal_bytes(&header)), 0);
	}
	free(memory);
}

/* Accumulates the values of the queues one by one and updates the checksum, as switches do. */
static void accumulates_along_the_path(const struct path_vector *vector)
{
	u8 before[QSIGNAL_HEADER_BYTES] = {}, after[QSIGNAL_HEADER_BYTES] = {};
	size_t bytes = vector->before_bytes - vector->payload_at;
	struct qsignal_header header;
	u8 packet[2048];
	u8 *check = packet + vector->payload_at - 2;
	u16 sum;
	size_t i;

	EXPECT_EQUAL(vector->before_bytes, vector->after_bytes);
	memcpy(packet, vector->before, vector->before_bytes);
	for (i = 0; i < vector->count; i++) {
		EXPECT_EQUAL(qsignal_read(&header, packet + vector->payload_at, bytes), QSIGNAL_WELL_FORMED);
		qsignal_write(&header, before);
		qsignal_fold(&header, vector->parts[i]);
		qsignal_write(&header, after);
		memcpy(&sum, check, sizeof(sum));
		sum = qsignal_checksum(sum, before, after);
		memcpy(check, &sum, sizeof(sum));
		memcpy(packet + vector->payload_at, after, qsignal_bytes(&header));
	}
	for (i = 0; i < vector->before_bytes; i++)
		EXPECT_EQUAL(packet[i], vector->after[i]);
}

/* The checksum is correct after any number of changes, independent of byte order. */
static void checksums_follow_any_change(void)
{
	u8 before[QSIGNAL_HEADER_BYTES] = {}, bytes[QSIGNAL_HEADER_BYTES] = {};
	u32 sum;
	u16 check = 0xffff;
	int i, j;

	for (i = 0; i < 100000; i++) {
		for (j = random_below(3); j >= 0; j--)
			bytes[random_below(sizeof(bytes))] = random_below(4) ? random_u64() : 0xff;
		check = qsignal_checksum(check, before, bytes);
		EXPECT(check != 0);
		for (sum = 0, j = 0; j < QSIGNAL_HEADER_BYTES; j += 2)
			sum += bytes[j] | bytes[j + 1] << 8;
		sum += check;
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		EXPECT_EQUAL(sum, 0xffff);
		EXPECT_EQUAL(qsignal_checksum(0, before, bytes), 0);
		memcpy(before, bytes, sizeof(before));
	}
}

static void sums_saturate_at_every_carry(void)
{
	static const u64 words[] = { 0, 1, 1ull << 63, U64_MAX - 1, U64_MAX };
	size_t i;

	for (i = 0; i < 5 * 5 * 5 * 5; i++) {
		struct qsignal_value a = { words[i % 5], words[i / 5 % 5] };
		struct qsignal_value b = { words[i / 25 % 5], words[i / 125] };
		__uint128_t x = (__uint128_t)a.high << 64 | a.low, y = (__uint128_t)b.high << 64 | b.low;
		__uint128_t sum = x + y < x ? ~(__uint128_t)0 : x + y;
		struct qsignal_value found = qsignal_sum(a, b);

		EXPECT_EQUAL(found.high, (u64)(sum >> 64));
		EXPECT_EQUAL(found.low, (u64)sum);
		EXPECT_EQUAL(qsignal_less(a, b), x < y);
	}
}

/* The bits of the signal decide the length: half a byte is carried in a byte. */
static void a_compact_header_is_as_long_as_its_signal(void)
{
	static const struct { u8 kind, bits, bytes; } lengths[] = {
		{ QSIGNAL_NONE, 32, 20 }, { QSIGNAL_IND, 32, 21 },
		{ QSIGNAL_MAX, 1, 21 }, { QSIGNAL_MAX, 4, 21 }, { QSIGNAL_MAX, 8, 21 },
		{ QSIGNAL_MAX, 9, 22 }, { QSIGNAL_MAX, 16, 22 }, { QSIGNAL_MAX, 17, 24 },
		{ QSIGNAL_MAX, 32, 24 }, { QSIGNAL_SUM, 4, 21 }, { QSIGNAL_SUM, 5, 22 },
		{ QSIGNAL_SUM, 28, 24 }, { QSIGNAL_SUM, 32, 28 },
	};
	struct qsignal_header header = { .version = QSIGNAL_COMPACT };
	size_t i;

	for (i = 0; i < COUNT(lengths); i++) {
		header.kind = lengths[i].kind;
		header.bits = lengths[i].bits;
		EXPECT_EQUAL(qsignal_bytes(&header), lengths[i].bytes);
	}
	header.version = QSIGNAL_VERSION;
	EXPECT_EQUAL(qsignal_bytes(&header), QSIGNAL_HEADER_BYTES);
	EXPECT(!qsignal_compact_has(QSIGNAL_SUM_SQU) && !qsignal_compact_has(QSIGNAL_VECTOR));
}

/* Random headers are read as they were written, but for a signal that does not fit. */
static void what_is_written_is_read(void)
{
	static const u8 kinds[] = { QSIGNAL_NONE, QSIGNAL_SUM, QSIGNAL_MAX, QSIGNAL_IND };
	u8 wire[QSIGNAL_HEADER_BYTES];
	int i;

	for (i = 0; i < 100000; i++) {
		bool ack = random_below(2);
		u64 position = random_u64() >> (8 + random_below(56)), signal = random_u64() >> random_below(64);
		struct qsignal_header found, header = {
			.version = QSIGNAL_COMPACT,
			.type = ack ? QSIGNAL_ACK : QSIGNAL_DATA,
			.flags = (random_below(2) ? QSIGNAL_LAST : 0) | (random_below(2) ? QSIGNAL_FORWARD : 0),
			.kind = kinds[random_below(4)],
			.unit = random_below(3),
			.bits = 1 + random_below(32),
			.hops = random_below(2),
			.flow = random_u64(),
			.sequence = cpu_to_be64(random_u64() >> (16 + random_below(48))),
			.offset = ack ? 0 : cpu_to_be64(position),
			.window = ack ? cpu_to_be64(position) : 0,
			.signal = { 0, cpu_to_be64(signal) },
		};
		u64 largest = (1ull << qsignal_compact_bits(header.kind, header.bits)) - 1;

		qsignal_write(&header, wire);
		EXPECT_EQUAL(qsignal_read(&found, wire, qsignal_bytes(&header)), QSIGNAL_WELL_FORMED);
		EXPECT_EQUAL(be64_to_cpu(found.signal[1]), signal < largest ? signal : largest);
		found.signal[1] = header.signal[1];
		EXPECT_EQUAL(memcmp(&found, &header, sizeof(header)), 0);
		EXPECT_EQUAL(qsignal_read(&found, wire, qsignal_bytes(&header) - 1), QSIGNAL_TOO_SHORT);
	}
}

int main(void)
{
	size_t i, offset;

	for (i = 0; i < COUNT(packet_vectors); i++)
		for (offset = 0; offset < 8; offset++)
			parses_the_test_vectors(&packet_vectors[i], offset);
	for (i = 0; i < COUNT(path_vectors); i++)
		accumulates_along_the_path(&path_vectors[i]);
	EXPECT(i > 10);
	a_compact_header_is_as_long_as_its_signal();
	what_is_written_is_read();
	checksums_follow_any_change();
	sums_saturate_at_every_carry();
	return PASS();
}
