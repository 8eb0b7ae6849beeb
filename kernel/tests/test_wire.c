// SPDX-License-Identifier: GPL-2.0-only
/*
 * Serialization: the end of each frame of a busy period is the exact time,
 * rounded to the nearest ns.
 */
#include "qlink_wire.h"
#include "unit.h"

static const u64 rates[] = {
	1, 3, 9600, 123456789, 1000000000, 9999999937ull, 10000000000ull,
	100000000000ull, 400000000001ull, 1ull << 63,
};

static u64 rounded(__uint128_t bits, u64 rate)
{
	return (bits * 2 * QLINK_NS_PER_SECOND + rate) / ((__uint128_t)2 * rate);
}

static void busy_period_is_exact(u64 rate, u32 overhead)
{
	struct qlink_wire wire = {};
	__uint128_t bits = 0;
	u64 start = 1 + random_below(1000000000), now = start;
	int i;

	qlink_wire_set(&wire, (struct qlink_wire_params) { rate, overhead });
	for (i = 0; i < 10000; i++) {
		u32 length = i % 3 ? 1514 : 1 + random_below(65535);

		bits += 8 * ((u64)length + overhead);
		now = qlink_wire_send(&wire, now, length);
		EXPECT_EQUAL(now - start, rounded(bits, rate));
		if (rate < 10000) {	/* frames take years: begin a new period */
			start = ++now;
			bits = 0;
		}
	}
}

static void idle_wire_starts_a_new_period(void)
{
	struct qlink_wire wire = {};
	u64 now = 5;

	qlink_wire_set(&wire, (struct qlink_wire_params) { 3000000000ull, 0 });
	/* 8 bits at 3 Gbit/s: 2.67 ns */
	EXPECT_EQUAL(qlink_wire_send(&wire, now, 1), 8);
	EXPECT_EQUAL(qlink_wire_send(&wire, 100, 1), 103);
	EXPECT_EQUAL(qlink_wire_send(&wire, 200, 1), 203);
	/* back to back: 2.67, 5.33, 8 */
	EXPECT_EQUAL(qlink_wire_send(&wire, 203, 1), 205);
	EXPECT_EQUAL(qlink_wire_send(&wire, 205, 1), 208);
}

static void a_rate_change_applies_to_the_rest_of_the_frame(void)
{
	struct qlink_wire wire = {};

	/*
	 * 1000 bytes at 1 Gbit/s take 8000 ns; after 2000 ns a tenth of the rate, then the old
	 * rate
	 */
	qlink_wire_set(&wire, (struct qlink_wire_params) { 1000000000, 0 });
	EXPECT_EQUAL(qlink_wire_send(&wire, 100, 1000), 8100);
	EXPECT_EQUAL(qlink_wire_change(&wire, 2100, (struct qlink_wire_params) { 100000000, 0 }), 62100);
	EXPECT_EQUAL(qlink_wire_change(&wire, 32100, (struct qlink_wire_params) { 1000000000, 0 }), 35100);
	EXPECT_EQUAL(qlink_wire_send(&wire, 35100, 1000), 43100);
	/* at its end nothing is left */
	EXPECT_EQUAL(qlink_wire_change(&wire, 43100, (struct qlink_wire_params) { 1, 0 }), 43100);
}

static void a_second_carries_the_rate(void)
{
	struct qlink_wire wire = {};
	u64 rate = 1234567891, bytes = 0, now = 1;

	qlink_wire_set(&wire, (struct qlink_wire_params) { rate, 0 });
	while (now < 1000000001) {
		now = qlink_wire_send(&wire, now, 125);
		bytes += 125;
	}
	/* exact to one frame: the last one ends at or just after the second */
	EXPECT(bytes * 8 >= rate && (bytes - 125) * 8 <= rate);
}

static void overhead_takes_time(void)
{
	struct qlink_wire wire = {};

	qlink_wire_set(&wire, (struct qlink_wire_params) { 10000000000ull, 24 });
	EXPECT_EQUAL(qlink_wire_send(&wire, 10, 1514), 10 + 1230);	/* 1230.4 */
	EXPECT_EQUAL(qlink_wire_send(&wire, 1240, 1514), 10 + 2461);	/* 2460.8 */
}

static void new_rate_takes_effect(void)
{
	struct qlink_wire wire = {};

	qlink_wire_set(&wire, (struct qlink_wire_params) { 8000000000ull, 0 });
	EXPECT_EQUAL(qlink_wire_send(&wire, 1, 100), 101);
	qlink_wire_set(&wire, (struct qlink_wire_params) { 4000000000ull, 0 });
	EXPECT_EQUAL(qlink_wire_send(&wire, 101, 100), 301);
}

int main(void)
{
	size_t i;

	for (i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
		busy_period_is_exact(rates[i], 0);
		busy_period_is_exact(rates[i], 24);
	}
	idle_wire_starts_a_new_period();
	a_rate_change_applies_to_the_rest_of_the_frame();
	a_second_carries_the_rate();
	overhead_takes_time();
	new_rate_takes_effect();
	return PASS();
}
