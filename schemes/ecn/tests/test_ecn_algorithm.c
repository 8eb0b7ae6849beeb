// SPDX-License-Identifier: GPL-2.0-only
/* Step marking: which packets are marked and dropped, at the exact bounds. */
#include "ecn_algorithm.h"
#include "unit.h"

static const struct ecn_params unbounded = {
	.buffer_bytes = ECN_NO_BOUND,
	.buffer_packets = ECN_NO_BOUND,
	.threshold_bytes = ECN_NO_BOUND,
	.threshold_packets = ECN_NO_BOUND,
};

static enum ecn_verdict arrival(struct ecn_params params, u32 bytes, u32 packets, u32 length)
{
	return ecn_on_arrival(&params, &(struct ecn_vars) { bytes, packets }, length);
}

static void marks_above_the_threshold_in_packets(void)
{
	struct ecn_params params = unbounded;
	u32 depth;

	params.threshold_packets = 10;
	for (depth = 0; depth < 30; depth++)
		EXPECT_EQUAL(arrival(params, depth * 1500, depth, 1500),
			     depth > 10 ? ECN_MARK : ECN_ENQUEUE);
}

static void marks_above_the_threshold_in_bytes(void)
{
	struct ecn_params params = unbounded;

	params.threshold_bytes = 30000;
	EXPECT_EQUAL(arrival(params, 0, 0, 60000), ECN_ENQUEUE);	/* the packet's bytes do not
									 * count
									 */
	EXPECT_EQUAL(arrival(params, 30000, 20, 1500), ECN_ENQUEUE);
	EXPECT_EQUAL(arrival(params, 30001, 20, 1500), ECN_MARK);
}

static void threshold_0_marks_at_any_queue(void)
{
	struct ecn_params params = unbounded;

	params.threshold_packets = 0;
	EXPECT_EQUAL(arrival(params, 0, 0, 1500), ECN_ENQUEUE);
	EXPECT_EQUAL(arrival(params, 60, 1, 1500), ECN_MARK);
}

static void drops_what_does_not_fit(void)
{
	struct ecn_params params = unbounded;

	params.buffer_packets = 20;
	params.threshold_packets = 5;
	EXPECT_EQUAL(arrival(params, 0, 19, 1500), ECN_MARK);
	EXPECT_EQUAL(arrival(params, 0, 20, 1500), ECN_DROP);

	params = unbounded;
	params.buffer_bytes = 15000;
	EXPECT_EQUAL(arrival(params, 13500, 9, 1500), ECN_ENQUEUE);
	EXPECT_EQUAL(arrival(params, 13501, 9, 1500), ECN_DROP);
	EXPECT_EQUAL(arrival(params, 13501, 9, 1499), ECN_ENQUEUE);
}

static void either_bound_suffices(void)
{
	struct ecn_params params = { 15000, 10, 3000, 2 };

	EXPECT_EQUAL(arrival(params, 100, 3, 60), ECN_MARK);
	EXPECT_EQUAL(arrival(params, 3001, 1, 60), ECN_MARK);
	EXPECT_EQUAL(arrival(params, 100, 10, 60), ECN_DROP);
	EXPECT_EQUAL(arrival(params, 14990, 1, 60), ECN_DROP);
}

static void does_not_overflow(void)
{
	struct ecn_params params = unbounded;

	params.buffer_bytes = ECN_NO_BOUND - 1;
	EXPECT_EQUAL(arrival(params, U32_MAX - 10, 1, 1500), ECN_DROP);
}

int main(void)
{
	marks_above_the_threshold_in_packets();
	marks_above_the_threshold_in_bytes();
	threshold_0_marks_at_any_queue();
	drops_what_does_not_fit();
	either_bound_suffices();
	does_not_overflow();
	return PASS();
}
