// SPDX-License-Identifier: GPL-2.0-only
/* Lengths and their bins: representatives and exact bounds. */
#include <qbed/signal_compact.h>

#include "stamp_algorithm.h"
#include "unit.h"

static const struct stamp_params paper = {
	.buffer_bytes = STAMP_NO_BOUND,
	.buffer_packets = 200,
	.threshold_bytes = STAMP_NO_BOUND,
	.threshold_packets = 65,
	.exponent = 1,
	.reverse = 1,
};

static void equal_bins_of_the_paper(void)
{
	struct stamp_params middle = paper;

	middle.middle = 1;
	/* one bit of 200 packets: 0 to 99, 100 to 200 */
	EXPECT_EQUAL(stamp_quantized(&paper, 200, 1, 0), 0);
	EXPECT_EQUAL(stamp_quantized(&paper, 200, 1, 99), 0);
	EXPECT_EQUAL(stamp_quantized(&paper, 200, 1, 100), 100);
	EXPECT_EQUAL(stamp_quantized(&paper, 200, 1, 200), 100);
	EXPECT_EQUAL(stamp_quantized(&middle, 200, 1, 0), 49);
	EXPECT_EQUAL(stamp_quantized(&middle, 200, 1, 200), 150);
	/* four: 12.5 packets each, so they begin at 0, 13, 25, 38, ... 188 */
	EXPECT_EQUAL(stamp_quantized(&paper, 200, 4, 12), 0);
	EXPECT_EQUAL(stamp_quantized(&paper, 200, 4, 13), 13);
	EXPECT_EQUAL(stamp_quantized(&paper, 200, 4, 24), 13);
	EXPECT_EQUAL(stamp_quantized(&paper, 200, 4, 25), 25);
	EXPECT_EQUAL(stamp_quantized(&paper, 200, 4, 200), 188);
	EXPECT_EQUAL(stamp_quantized(&middle, 200, 4, 24), 18);		/* of 13 to 24 */
	EXPECT_EQUAL(stamp_quantized(&middle, 200, 4, 200), 194);	/* of 188 to 200 */
	/* beyond the buffer: the last bin */
	EXPECT_EQUAL(stamp_quantized(&paper, 200, 4, 1000000), 188);
}

/* With 256 or more bins for 200 packets, lengths are exact. */
static void bins_narrower_than_a_unit_are_exact(void)
{
	struct stamp_params params = paper;
	u32 bits;
	u64 length;

	for (params.middle = 0; params.middle < 2; params.middle++) {
		for (bits = 8; bits <= 32; bits++) {
			for (length = 0; length <= 200; length++)
				EXPECT_EQUAL(stamp_quantized(&params, 200, bits, length), length);
		}
	}
}

/*
 * Returns true if @bin of 2^@bits, which begins at (i / n)^exponent of @full,
 * begins at or before @length. Integer arithmetic without division.
 */
static bool begins_by(const struct stamp_params *params, u64 full, u32 bits, u64 bin, u64 length)
{
	__uint128_t n = (__uint128_t)1 << bits, i = bin, rest = n - bin;
	u32 x = params->exponent;

	if (params->fine_at_full)	/* length >= full - full (rest / n)^x */
		return (__uint128_t)(full - length) * (x == 2 ? n * n : n) <=
		       (__uint128_t)full * (x == 2 ? rest * rest : rest);
	return (__uint128_t)length * (x == 2 ? n * n : n) >= (__uint128_t)full * (x == 2 ? i * i : i);
}

static void bins_begin_where_they_should(void)
{
	static const u64 fulls[] = { 1, 2, 3, 7, 200, 1000, 302800, 4294967295ull, 343597383680ull };
	struct stamp_params params = paper;
	int i;

	for (i = 0; i < 200000; i++) {
		u64 full = fulls[random_below(9)], length = random_below(full + 1), bin, value;
		u32 bits = 1 + random_below(32);

		params.exponent = 1 + random_below(2);
		params.fine_at_full = random_below(2);
		params.middle = 0;
		bin = stamp_bin(&params, full, bits, length);
		EXPECT(bin < 1ull << bits);
		EXPECT(begins_by(&params, full, bits, bin, length));
		EXPECT(bin + 1 == 1ull << bits || !begins_by(&params, full, bits, bin + 1, length));

		value = stamp_quantized(&params, full, bits, length);
		EXPECT(value <= length);
		EXPECT_EQUAL(stamp_quantized(&params, full, bits, value), value);
		if (length == 0)
			EXPECT_EQUAL(value, 0);
		/* the lower bound of its bin: the length before it is in another bin */
		if (value)
			EXPECT(stamp_bin(&params, full, bits, value - 1) < bin);
		params.middle = 1;
		EXPECT(stamp_quantized(&params, full, bits, length) >= value);
		EXPECT_EQUAL(stamp_bin(&params, full, bits, stamp_quantized(&params, full, bits, length)), bin);
	}
}

/* The shortcut for bins narrower than a unit returns the same as the bins. */
static void the_shortcut_is_exact(void)
{
	u64 length;

	for (length = 0; length <= 200; length++)
		EXPECT_EQUAL(stamp_edge(&paper, 200, 32, stamp_bin(&paper, 200, 32, length)), length);
}

static void quantization_is_monotonic(void)
{
	struct stamp_params params = paper;
	u32 bits, style;
	u64 length, last, value;

	for (style = 0; style < 8; style++) {
		params.exponent = 1 + (style & 1);
		params.fine_at_full = style >> 1 & 1;
		params.middle = style >> 2;
		for (bits = 1; bits <= 10; bits++) {
			for (length = 0, last = 0; length <= 250; length++, last = value) {
				value = stamp_quantized(&params, 200, bits, length);
				EXPECT(value >= last && value <= 200);
			}
		}
	}
}

/* Two bits of 200: 0, 1/16, 4/16, 9/16 of it, and mirrored. */
static void squared_bins(void)
{
	static const u64 at_empty[] = { 0, 13, 50, 113 }, at_full[] = { 0, 88, 150, 188 };
	struct stamp_params params = paper;
	int i;

	params.exponent = 2;
	for (i = 0; i < 4; i++)
		EXPECT_EQUAL(stamp_edge(&params, 200, 2, i), at_empty[i]);
	params.fine_at_full = 1;
	for (i = 0; i < 4; i++)
		EXPECT_EQUAL(stamp_edge(&params, 200, 2, i), at_full[i]);
	EXPECT_EQUAL(stamp_edge(&params, 200, 2, 4), 200);
	/* equal bins are symmetric */
	params.exponent = 1;
	for (i = 0; i <= 16; i++)
		EXPECT_EQUAL(stamp_edge(&params, 200, 4, i), stamp_edge(&paper, 200, 4, i));
}

static void the_buffer_in_every_unit(void)
{
	struct stamp_params params = paper;
	struct stamp_vars vars;

	stamp_vars_set(&vars, &params, 10000000000ull, 1514);
	EXPECT_EQUAL(vars.full[QSIGNAL_PACKETS], 200);
	EXPECT_EQUAL(vars.full[QSIGNAL_BYTES], 302800);
	EXPECT_EQUAL(vars.full[QSIGNAL_NS], 242240);
	params.buffer_packets = STAMP_NO_BOUND;
	params.buffer_bytes = 128000;
	stamp_vars_set(&vars, &params, 0, 1514);
	EXPECT_EQUAL(vars.full[QSIGNAL_PACKETS], 84);
	EXPECT_EQUAL(vars.full[QSIGNAL_BYTES], 128000);
	EXPECT_EQUAL(vars.full[QSIGNAL_NS], 0);
	params.buffer_bytes = 100;	/* less than a frame */
	stamp_vars_set(&vars, &params, 1, 1514);
	EXPECT_EQUAL(vars.full[QSIGNAL_PACKETS], 1);
	EXPECT_EQUAL(vars.full[QSIGNAL_NS], 800000000000ull);
	params.buffer_bytes = 3000;	/* both limits: the smaller one */
	params.buffer_packets = 200;
	stamp_vars_set(&vars, &params, 1, 1514);
	EXPECT_EQUAL(vars.full[QSIGNAL_BYTES], 3000);
	/* maximum lengths at the lowest rate: no overflow */
	params.buffer_bytes = STAMP_NO_BOUND - 1;
	params.buffer_packets = STAMP_NO_BOUND - 1;
	stamp_vars_set(&vars, &params, 1, 65549);
	EXPECT_EQUAL(vars.full[QSIGNAL_NS], 17179869184000000000ull);
	stamp_vars_set(&vars, &params, U64_MAX, 65549);
	EXPECT_EQUAL(stamp_quantized(&params, 17179869184000000000ull, 32, U64_MAX),
		     17179869184000000000ull - 4000000000ull);
}

static void times_on_the_wire(void)
{
	EXPECT_EQUAL(stamp_wire_ns(1514, 10000000000ull), 1211);	/* 1211.2 */
	EXPECT_EQUAL(stamp_wire_ns(1500, 1000), 12000000000ull);
	EXPECT_EQUAL(stamp_wire_ns(0, 1), 0);
	EXPECT_EQUAL(stamp_wire_ns(STAMP_MAX_BYTES + 5, 17179869184ull), 1000000000);
	EXPECT_EQUAL(stamp_wire_ns(STAMP_MAX_BYTES - 1, 17179869183ull), 999999999);
}

static u64 part_of(const struct stamp_params *params, u8 kind, u8 unit, enum stamp_verdict expected)
{
	const struct stamp_queue queue = { .packets = 65, .bytes = 30000, .sojourn_ns = 7777 };
	const struct qsignal_header header = { .type = QSIGNAL_DATA, .kind = kind, .unit = unit, .bits = 32 };
	struct stamp_vars vars;
	u64 part = 4711;

	stamp_vars_set(&vars, params, params->rate_bps, 1514);
	EXPECT_EQUAL(stamp_part(params, &vars, &queue, &header, 1000, &part), expected);
	return part;
}

static void the_units_of_a_length(void)
{
	struct stamp_params params = paper;

	params.rate_bps = 1000000000;
	EXPECT_EQUAL(part_of(&params, QSIGNAL_MAX, QSIGNAL_PACKETS, STAMP_FOLD), 65);
	EXPECT_EQUAL(part_of(&params, QSIGNAL_MAX, QSIGNAL_BYTES, STAMP_FOLD), 30000);
	EXPECT_EQUAL(part_of(&params, QSIGNAL_SUM, QSIGNAL_NS, STAMP_FOLD), 7777);
	EXPECT_EQUAL(part_of(&params, QSIGNAL_IND, QSIGNAL_PACKETS, STAMP_FOLD), 0);
	params.count_itself = 1;
	EXPECT_EQUAL(part_of(&params, QSIGNAL_MAX, QSIGNAL_PACKETS, STAMP_FOLD), 66);
	EXPECT_EQUAL(part_of(&params, QSIGNAL_MAX, QSIGNAL_BYTES, STAMP_FOLD), 31000);
	EXPECT_EQUAL(part_of(&params, QSIGNAL_SUM, QSIGNAL_NS, STAMP_FOLD), 7777 + 8000);
	EXPECT_EQUAL(part_of(&params, QSIGNAL_IND, QSIGNAL_PACKETS, STAMP_FOLD), 1);
	params.at_enqueue = 1;
	EXPECT_EQUAL(part_of(&params, QSIGNAL_SUM, QSIGNAL_NS, STAMP_FOLD), 240000 + 8000);
	params.count_itself = 0;
	EXPECT_EQUAL(part_of(&params, QSIGNAL_SUM, QSIGNAL_NS, STAMP_FOLD), 240000);
	params.threshold_bytes = 29999;		/* either bound suffices */
	EXPECT_EQUAL(part_of(&params, QSIGNAL_IND, QSIGNAL_NS, STAMP_FOLD), 1);
	params.threshold_bytes = 30000;
	EXPECT_EQUAL(part_of(&params, QSIGNAL_IND, QSIGNAL_NS, STAMP_FOLD), 0);
	params.rate_bps = 0;
	EXPECT_EQUAL(part_of(&params, QSIGNAL_SUM, QSIGNAL_NS, STAMP_NO_RATE), 4711);
	EXPECT_EQUAL(part_of(&params, QSIGNAL_NONE, QSIGNAL_PACKETS, STAMP_LEAVE), 4711);
}

static void headers_that_are_not_modified(void)
{
	const struct stamp_queue queue = { .packets = 3 };
	struct qsignal_header header = { .kind = QSIGNAL_SUM, .bits = 8 };
	struct stamp_params params = paper;
	struct stamp_vars vars;
	u64 part;

	stamp_vars_set(&vars, &params, 0, 1514);
	header.type = QSIGNAL_FEEDBACK;
	EXPECT_EQUAL(stamp_part(&params, &vars, &queue, &header, 100, &part), STAMP_LEAVE);
	header.type = QSIGNAL_ACK;
	EXPECT_EQUAL(stamp_part(&params, &vars, &queue, &header, 100, &part), STAMP_FOLD);
	params.reverse = 0;
	EXPECT_EQUAL(stamp_part(&params, &vars, &queue, &header, 100, &part), STAMP_LEAVE);
	header.type = QSIGNAL_DATA;
	EXPECT_EQUAL(stamp_part(&params, &vars, &queue, &header, 100, &part), STAMP_FOLD);
}

/*
 * A sender that multiplies the share by the buffer has the value of a full
 * header: the lower bound of the length's bin.
 */
static void shares_of_a_compact_header_are_bins(void)
{
	static const u32 fulls[] = { 1, 2, 3, 7, 200, 1000, 302800, U32_MAX };
	int i;

	EXPECT_EQUAL(stamp_share(200, 4, 0), 0);
	EXPECT_EQUAL(stamp_share(200, 4, 12), 0);
	EXPECT_EQUAL(stamp_share(200, 4, 13), 1);
	EXPECT_EQUAL(stamp_share(200, 4, 199), 15);
	EXPECT_EQUAL(stamp_share(200, 4, 1000000), 15);
	for (i = 0; i < 200000; i++) {
		u32 full = fulls[random_below(8)], bits = 1 + random_below(32);
		u64 length = random_below(full + full / 4 + 1ull), share = stamp_share(full, bits, length);

		EXPECT(share < 1ull << bits);
		EXPECT_EQUAL(qsignal_length(share, bits, full),
			     stamp_quantized(&paper, full, bits, length));
	}
	EXPECT_EQUAL(qsignal_length(16 * 15, 4, 200), 3000);	/* a sum */
	EXPECT_EQUAL(qsignal_length((1ull << 36) - 1, 32, U32_MAX), 68719476720ull);
}

static void compact_headers(void)
{
	const struct stamp_queue queue = { .packets = 65, .bytes = 30000 };
	struct qsignal_header header = {
		.version = QSIGNAL_COMPACT, .type = QSIGNAL_DATA, .kind = QSIGNAL_MAX, .bits = 4,
	};
	struct stamp_params params = paper;
	struct stamp_vars vars;
	u64 part;

	params.middle = 1;
	params.exponent = 2;
	stamp_vars_set(&vars, &params, 0, 1514);
	EXPECT_EQUAL(stamp_part(&params, &vars, &queue, &header, 100, &part), STAMP_FOLD);
	EXPECT_EQUAL(part, 5);		/* of 16 equal bins of 12.5 packets */
	header.unit = QSIGNAL_BYTES;
	EXPECT_EQUAL(stamp_part(&params, &vars, &queue, &header, 100, &part), STAMP_FOLD);
	EXPECT_EQUAL(part, 1);
	header.kind = QSIGNAL_IND;
	EXPECT_EQUAL(stamp_part(&params, &vars, &queue, &header, 100, &part), STAMP_FOLD);
	EXPECT_EQUAL(part, 0);
	header.type = QSIGNAL_ACK;
	EXPECT_EQUAL(stamp_part(&params, &vars, &queue, &header, 100, &part), STAMP_FOLD);
	header.flags = QSIGNAL_FORWARD;
	EXPECT_EQUAL(stamp_part(&params, &vars, &queue, &header, 100, &part), STAMP_LEAVE);
	header.version = QSIGNAL_VERSION;	/* has no such flag */
	EXPECT_EQUAL(stamp_part(&params, &vars, &queue, &header, 100, &part), STAMP_FOLD);
}

static void what_fits(void)
{
	struct stamp_params params = { .buffer_bytes = 3000, .buffer_packets = 3 };

	EXPECT(stamp_fits(&params, &(struct stamp_queue) { 2, 1500, 0 }, 1500));
	EXPECT(!stamp_fits(&params, &(struct stamp_queue) { 2, 1500, 0 }, 1501));
	EXPECT(!stamp_fits(&params, &(struct stamp_queue) { 3, 0, 0 }, 1));
	EXPECT(!stamp_fits(&params, &(struct stamp_queue) { 2, U32_MAX, 0 }, U32_MAX));
}

int main(void)
{
	equal_bins_of_the_paper();
	bins_narrower_than_a_unit_are_exact();
	bins_begin_where_they_should();
	the_shortcut_is_exact();
	quantization_is_monotonic();
	squared_bins();
	the_buffer_in_every_unit();
	times_on_the_wire();
	the_units_of_a_length();
	headers_that_are_not_modified();
	shares_of_a_compact_header_are_bins();
	compact_headers();
	what_fits();
	return PASS();
}
