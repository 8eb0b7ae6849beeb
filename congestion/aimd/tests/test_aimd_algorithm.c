// SPDX-License-Identifier: GPL-2.0-only
/* aimd's window. */
#include "aimd_algorithm.h"
#include "unit.h"

static u32 cwnd_after(u32 cwnd, u32 round_trips, u32 increase)
{
	struct aimd_vars vars = {};
	u32 ack, window;

	while (round_trips--)
		for (ack = 0, window = cwnd; ack < window; ack++)
			cwnd = aimd_grow(&vars, cwnd, 1, increase);
	return cwnd;
}

static void a_round_trip_adds_the_increase(void)
{
	EXPECT_EQUAL(cwnd_after(10, 0, 1), 10);
	EXPECT_EQUAL(cwnd_after(10, 1, 1), 11);
	EXPECT(cwnd_after(100, 10, 1) >= 109 && cwnd_after(100, 10, 1) <= 110);
	EXPECT(cwnd_after(100, 1, 8) >= 107 && cwnd_after(100, 1, 8) <= 108);
}

static void a_cut_leaves_the_rest_and_at_least_two(void)
{
	struct aimd_vars vars = { .credit = 7 };

	EXPECT_EQUAL(aimd_cut(&vars, 20, AIMD_DECREASE_ONE / 2), 10);
	EXPECT_EQUAL(vars.credit, 0);
	EXPECT_EQUAL(aimd_cut(&vars, 20, AIMD_DECREASE_ONE / 4), 15);
	EXPECT_EQUAL(aimd_cut(&vars, 20, 0), 20);
	EXPECT_EQUAL(aimd_cut(&vars, 20, AIMD_DECREASE_ONE), 2);
	EXPECT_EQUAL(aimd_cut(&vars, 1, 0), 2);
}

static void changes_of_the_window_are_counted(void)
{
	struct aimd_vars vars = {};
	u32 cwnd = 10, ack;

	for (ack = 0; ack < 25; ack++)
		cwnd = aimd_grow(&vars, cwnd, 1, 1);
	EXPECT_EQUAL(vars.stats.added_segments, cwnd - 10);
	EXPECT_EQUAL(vars.stats.reductions, 0);
	aimd_cut(&vars, aimd_cut(&vars, cwnd, 512), 512);
	EXPECT_EQUAL(vars.stats.reductions, 2);
	EXPECT_EQUAL(vars.stats.added_segments, 2);
}

int main(void)
{
	a_round_trip_adds_the_increase();
	a_cut_leaves_the_rest_and_at_least_two();
	changes_of_the_window_are_counted();
	return PASS();
}
