// SPDX-License-Identifier: GPL-2.0-only
/* dctcp1's alpha and window, compared with floating point. */
#include "dctcp1_algorithm.h"
#include "unit.h"

#define GAIN_SHIFT 4	/* g = 1/16 */

static u32 alpha_after(u32 rounds, u32 marked_bytes, u32 acked_bytes, u32 gain_shift)
{
	struct dctcp1_vars vars = {};

	while (rounds--) {
		dctcp1_on_ack(&vars, marked_bytes, true);
		dctcp1_on_ack(&vars, acked_bytes - marked_bytes, false);
		dctcp1_on_round(&vars, gain_shift);
	}
	return vars.alpha;
}

static void alpha_starts_at_0_and_gains_a_sixteenth_per_round(void)
{
	EXPECT_EQUAL(alpha_after(0, 1446, 1446, GAIN_SHIFT), 0);
	EXPECT_EQUAL(alpha_after(1, 1446, 1446, GAIN_SHIFT), DCTCP1_ALPHA_ONE / 16);
	EXPECT_EQUAL(alpha_after(1, 1446, 2 * 1446, GAIN_SHIFT), DCTCP1_ALPHA_ONE / 32);
	EXPECT_EQUAL(alpha_after(2, 1446, 1446, GAIN_SHIFT), DCTCP1_ALPHA_ONE / 16 * 31 / 16);
	EXPECT_EQUAL(alpha_after(1000, 1446, 1446, GAIN_SHIFT), DCTCP1_ALPHA_ONE);
}

static void the_gain_is_a_shift(void)
{
	EXPECT_EQUAL(alpha_after(1, 1446, 1446, 0), DCTCP1_ALPHA_ONE);
	EXPECT_EQUAL(alpha_after(1, 1446, 1446, 1), DCTCP1_ALPHA_ONE / 2);
	EXPECT_EQUAL(alpha_after(1, 1446, 1446, 10), DCTCP1_ALPHA_ONE / 1024);
}

static void a_round_without_data_does_not_count(void)
{
	struct dctcp1_vars vars = { .alpha = DCTCP1_ALPHA_ONE / 2 };

	dctcp1_on_ack(&vars, 0, true);
	dctcp1_on_round(&vars, GAIN_SHIFT);
	EXPECT_EQUAL(vars.alpha, DCTCP1_ALPHA_ONE / 2);
}

static void a_window_falls_to_one_segment_and_no_further(void)
{
	struct dctcp1_vars vars = { .alpha = DCTCP1_ALPHA_ONE };

	EXPECT_EQUAL(dctcp1_cut(&vars, 10), 5);
	EXPECT_EQUAL(dctcp1_cut(&vars, 5), 2);
	EXPECT_EQUAL(vars.fraction, DCTCP1_CWND_ONE / 2);
	EXPECT_EQUAL(dctcp1_cut(&vars, 2), 1);		/* 2.5 */
	EXPECT_EQUAL(vars.fraction, DCTCP1_CWND_ONE / 4);
	EXPECT_EQUAL(dctcp1_cut(&vars, 1), 1);
	EXPECT_EQUAL(vars.fraction, 0);
	EXPECT_EQUAL(dctcp1_cut(&vars, 1), 1);
}

static void without_marks_the_window_stays(void)
{
	struct dctcp1_vars vars = {};

	EXPECT_EQUAL(dctcp1_cut(&vars, 17), 17);
}

static void the_smallest_cut_takes_a_segment(void)
{
	struct dctcp1_vars vars = { .alpha = DCTCP1_ALPHA_ONE / 16 };

	EXPECT_EQUAL(dctcp1_cut(&vars, 2), 1);
	EXPECT_EQUAL(vars.fraction, DCTCP1_CWND_ONE - DCTCP1_CWND_ONE / 16);
}

static void a_loss_leaves_half_and_at_least_two(void)
{
	struct dctcp1_vars vars = { .fraction = 7 };

	EXPECT_EQUAL(dctcp1_halve(&vars, 20), 10);
	EXPECT_EQUAL(vars.fraction, 0);
	EXPECT_EQUAL(dctcp1_halve(&vars, 4), 2);
	EXPECT_EQUAL(dctcp1_halve(&vars, 1), 2);
}

/*
 * A window of any size, reduced repeatedly by any alpha, equals that of real
 * numbers, up to one unit of the fraction per cut.
 */
static void cuts_are_those_of_real_numbers(void)
{
	int i, step;

	for (i = 0; i < 100000; i++) {
		struct dctcp1_vars vars = { .alpha = random_below(DCTCP1_ALPHA_ONE + 1) };
		u32 segments = 1 + random_below(1 << 20);
		double exact = segments, share = (double)vars.alpha / DCTCP1_ALPHA_ONE;

		for (step = 1; step <= 5; step++) {
			double window;

			exact *= 1 - share / 2;
			if (exact < 1)
				exact = 1;
			segments = dctcp1_cut(&vars, segments);
			window = segments + (double)vars.fraction / DCTCP1_CWND_ONE;
			EXPECT(segments >= DCTCP1_MIN_CWND && vars.fraction < DCTCP1_CWND_ONE);
			EXPECT(window >= exact - 1e-6 && window <= exact + (double)step / DCTCP1_CWND_ONE);
		}
	}
}

static void alpha_stays_between_0_and_1(void)
{
	struct dctcp1_vars vars = {};
	int i, acks;

	for (i = 0; i < 100000; i++) {
		for (acks = random_below(4); acks > 0; acks--)
			dctcp1_on_ack(&vars, random_below(1 << 28), random_below(2));
		dctcp1_on_round(&vars, random_below(11));
		EXPECT(vars.alpha <= DCTCP1_ALPHA_ONE);
	}
}

int main(void)
{
	alpha_starts_at_0_and_gains_a_sixteenth_per_round();
	the_gain_is_a_shift();
	a_round_without_data_does_not_count();
	a_window_falls_to_one_segment_and_no_further();
	without_marks_the_window_stays();
	the_smallest_cut_takes_a_segment();
	a_loss_leaves_half_and_at_least_two();
	cuts_are_those_of_real_numbers();
	alpha_stays_between_0_and_1();
	return PASS();
}
