// SPDX-License-Identifier: GPL-2.0-only
/* The congestion header, tested with tests/wire/vectors.json and with random values. */
#include <string.h>

#include <qbed/signal_header.h>

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

static void parses_the_test_vectors(const struct packet_vector *vector)
{
	size_t bytes = vector->bytes - vector->payload_at;
	void *payload = malloc(bytes);	/* aligned and of the exact size, for the sanitizer */

	memcpy(payload, vector->packet + vector->payload_at, bytes);
	EXPECT_EQUAL(qsignal_form(payload, bytes), vector->form);
	if (vector->form == QSIGNAL_WELL_FORMED)
		EXPECT_EQUAL(memcmp(payload, &vector->header, QSIGNAL_HEADER_BYTES), 0);
	free(payload);
}

/* Accumulates the values of the queues one by one and updates the checksum, as switches do. */
static void accumulates_along_the_path(const struct path_vector *vector)
{
	struct qsignal_header before, after;
	u8 packet[2048];
	u8 *check = packet + vector->payload_at - 2;
	u16 sum;
	size_t i;

	EXPECT_EQUAL(vector->before_bytes, vector->after_bytes);
	memcpy(packet, vector->before, vector->before_bytes);
	for (i = 0; i < vector->count; i++) {
		memcpy(&before, packet + vector->payload_at, sizeof(before));
		after = before;
		qsignal_fold(&after, vector->parts[i]);
		memcpy(&sum, check, sizeof(sum));
		sum = qsignal_checksum(sum, &before, &after);
		memcpy(check, &sum, sizeof(sum));
		memcpy(packet + vector->payload_at, &after, sizeof(after));
	}
	for (i = 0; i < vector->before_bytes; i++)
		EXPECT_EQUAL(packet[i], vector->after[i]);
}

/* The checksum is correct after any number of changes, independent of byte order. */
static void checksums_follow_any_change(void)
{
	struct qsignal_header before, after;
	u8 bytes[QSIGNAL_HEADER_BYTES] = {};
	u32 sum;
	u16 check = 0xffff;
	int i, j;

	memcpy(&before, bytes, sizeof(before));
	for (i = 0; i < 100000; i++) {
		for (j = random_below(3); j >= 0; j--)
			bytes[random_below(sizeof(bytes))] = random_below(4) ? random_u64() : 0xff;
		memcpy(&after, bytes, sizeof(after));
		check = qsignal_checksum(check, &before, &after);
		EXPECT(check != 0);
		for (sum = 0, j = 0; j < QSIGNAL_HEADER_BYTES; j += 2)
			sum += bytes[j] | bytes[j + 1] << 8;
		sum += check;
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		EXPECT_EQUAL(sum, 0xffff);
		EXPECT_EQUAL(qsignal_checksum(0, &before, &after), 0);
		before = after;
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

int main(void)
{
	size_t i;

	for (i = 0; i < COUNT(packet_vectors); i++)
		parses_the_test_vectors(&packet_vectors[i]);
	for (i = 0; i < COUNT(path_vectors); i++)
		accumulates_along_the_path(&path_vectors[i]);
	EXPECT(i > 10);
	checksums_follow_any_change();
	sums_saturate_at_every_carry();
	return PASS();
}
