// SPDX-License-Identifier: GPL-2.0-only
/*
 * QCN's reaction point: the rates of the slides' cycles, each refinement on and
 * off, and quantizers of other sizes.
 */
#include "reaction_point.h"
#include "unit.h"

#define GBPS 1000000000ull
#define CYCLE_BYTES 150000u

static const struct reaction_point_params defaults = REACTION_POINT_DEFAULTS;

static struct reaction_point_state started(const struct reaction_point_params *params)
{
	struct reaction_point_state state;

	reaction_point_start(&state, params, 0);
	return state;
}

/* Feedback of 6 bits; returns the new rate. */
static u64 feedback_of(struct reaction_point_state *state, const struct reaction_point_params *params,
		u32 magnitude)
{
	const struct rate_feedback feedback = { .magnitude = magnitude, .max = 63 };

	reaction_point_on_feedback(state, params, &feedback);
	return state->rate_bps;
}

static u64 sent(struct reaction_point_state *state, const struct reaction_point_params *params,
		u32 bytes)
{
	reaction_point_on_sent(state, params, 0, bytes);
	return state->rate_bps;
}

static void a_cut_is_recovered_by_halves_and_then_more_is_probed(void)
{
	struct reaction_point_state state = started(&defaults);
	u64 expected, cut;
	u32 cycle;

	/* R(1 - |Fb| Gd) */
	EXPECT_EQUAL(feedback_of(&state, &defaults, 32), 10 * GBPS * 3 / 4);
	expected = state.rate_bps;
	cut = 10 * GBPS / 4;
	for (cycle = 1; cycle <= 5; cycle++) {
		EXPECT_EQUAL(sent(&state, &defaults, CYCLE_BYTES - 1), expected);
		expected += cut >> cycle;
		EXPECT_EQUAL(sent(&state, &defaults, 1), expected);
	}
	/* R - Rd/32, then + Ri per cycle */
	EXPECT_EQUAL(expected, 10 * GBPS - cut / 32);
	EXPECT_EQUAL(sent(&state, &defaults, CYCLE_BYTES), expected + 3000000);
	EXPECT_EQUAL(sent(&state, &defaults, CYCLE_BYTES), expected + 6000000);
	for (cycle = 0; cycle < 100; cycle++)
		sent(&state, &defaults, CYCLE_BYTES);
	EXPECT_EQUAL(state.rate_bps, 10 * GBPS);
}

static void negative_feedback_restarts_recovery_at_the_current_rate(void)
{
	struct reaction_point_state state = started(&defaults);

	feedback_of(&state, &defaults, 32);
	sent(&state, &defaults, CYCLE_BYTES);
	EXPECT_EQUAL(state.rate_bps, 8750 * GBPS / 1000);
	sent(&state, &defaults, CYCLE_BYTES - 1);
	EXPECT_EQUAL(feedback_of(&state, &defaults, 32), 8750 * GBPS / 1000 * 3 / 4);
	EXPECT_EQUAL(state.cut_bps, 8750 * GBPS / 1000 / 4);	/* cycle 1: only the last cut */
	EXPECT_EQUAL(sent(&state, &defaults, CYCLE_BYTES - 1), 8750 * GBPS / 1000 * 3 / 4);
	EXPECT_EQUAL(sent(&state, &defaults, 1), 8750 * GBPS / 1000 * 7 / 8);
}

/* Three messages in a burst: 10 to 7.5, to 5.625, to 4.921875 Gbit/s. */
static void extra_fast_recovery(void)
{
	static const u64 cuts_bps[] = { 703125000, 5078125000, 2500000000 };	/* last, sum, largest */
	struct reaction_point_params params = defaults;
	u32 form;

	for (form = 0; form < 3; form++) {
		struct reaction_point_state state;

		params.extra_fast = form > 0;
		params.extra_fast_largest = form == 2;
		state = started(&params);
		feedback_of(&state, &params, 32);
		feedback_of(&state, &params, 32);
		EXPECT_EQUAL(feedback_of(&state, &params, 16), 4921875000);
		EXPECT_EQUAL(state.cut_bps, cuts_bps[form]);
		EXPECT_EQUAL(sent(&state, &params, CYCLE_BYTES), 4921875000 + cuts_bps[form] / 2);
	}
}

static void positive_reinforcement_ends_a_cycle(void)
{
	struct reaction_point_params params = defaults;
	struct reaction_point_state state = started(&params);

	feedback_of(&state, &params, 32);
	sent(&state, &params, CYCLE_BYTES - 1);
	EXPECT_EQUAL(feedback_of(&state, &params, 0), 8750 * GBPS / 1000);
	EXPECT_EQUAL(sent(&state, &params, CYCLE_BYTES - 1), 8750 * GBPS / 1000);	/* the cycle restarts */
	state.cycle = 5;
	EXPECT_EQUAL(feedback_of(&state, &params, 0), 8753 * GBPS / 1000);
	params.reinforcement = 0;
	EXPECT_EQUAL(feedback_of(&state, &params, 0), 8753 * GBPS / 1000);
}

static void without_fast_recovery_it_probes_at_once(void)
{
	struct reaction_point_params params = defaults;
	struct reaction_point_state state;

	params.fast_recovery = 0;
	state = started(&params);
	feedback_of(&state, &params, 32);
	feedback_of(&state, &params, 32);
	EXPECT_EQUAL(sent(&state, &params, CYCLE_BYTES), 5628 * GBPS / 1000);
}

static void the_rate_has_a_floor(void)
{
	struct reaction_point_state state = started(&defaults);
	u32 i;

	for (i = 0; i < 100; i++)
		feedback_of(&state, &defaults, 63);
	EXPECT_EQUAL(state.rate_bps, defaults.min_rate_bps);
	/* The actual cut, not the requested one. */
	EXPECT_EQUAL(state.cut_bps, 10 * GBPS - defaults.min_rate_bps);
	for (i = 0; i < 5; i++)
		sent(&state, &defaults, CYCLE_BYTES);
	EXPECT_EQUAL(state.rate_bps / 1000000, 9690);
}

/* The largest |Fb| cuts 63/128 of the rate, for any number of bits. */
static void quantizers_of_any_size_have_the_same_range(void)
{
	u32 bits;

	for (bits = 1; bits <= 32; bits++) {
		const u32 max = U32_MAX >> (32 - bits);
		struct reaction_point_state state = started(&defaults);
		struct rate_feedback feedback = { .magnitude = max, .max = max };

		reaction_point_on_feedback(&state, &defaults, &feedback);
		EXPECT_EQUAL(state.rate_bps, 10 * GBPS * 65 / 128);
		if (bits == 8) {		/* 128 of 255 are 31.6 of 63 */
			feedback.magnitude = 128;
			state = started(&defaults);
			reaction_point_on_feedback(&state, &defaults, &feedback);
			EXPECT_EQUAL(state.rate_bps / 1000000, 7529);
		}
	}
}

static void invalid_feedback_is_ignored(void)
{
	const struct rate_feedback without_range = { .magnitude = 7 };
	const struct rate_feedback beyond = { .magnitude = 700, .max = 63 };
	struct reaction_point_state state = started(&defaults);

	reaction_point_on_feedback(&state, &defaults, &without_range);
	EXPECT_EQUAL(state.rate_bps, 10 * GBPS);
	reaction_point_on_feedback(&state, &defaults, &beyond);
	EXPECT_EQUAL(state.rate_bps, 10 * GBPS * 65 / 128);
}

int main(void)
{
	a_cut_is_recovered_by_halves_and_then_more_is_probed();
	negative_feedback_restarts_recovery_at_the_current_rate();
	extra_fast_recovery();
	positive_reinforcement_ends_a_cycle();
	without_fast_recovery_it_probes_at_once();
	the_rate_has_a_floor();
	quantizers_of_any_size_have_the_same_range();
	invalid_feedback_is_ignored();
	return PASS();
}
