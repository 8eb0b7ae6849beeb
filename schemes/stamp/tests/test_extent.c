// SPDX-License-Identifier: GPL-2.0-only
/*
 * extent: with one bit it is DCTCP, compared with a model in floating point;
 * with more bits, F is the mean extent.
 */
#include "extent.h"
#include "unit.h"

#define GBPS 1000000000ull
#define RTT_NS 20000ull

static const struct extent_params defaults = EXTENT_DEFAULTS;

static struct extent_state started(const struct extent_params *params)
{
	struct extent_state state;

	extent_start(&state, params, 0);
	return state;
}

/* Acknowledges a packet at @now_ns; the last one of a round trip ends it. */
static void ack(struct extent_state *state, const struct extent_params *params, u64 now_ns, u8 kind, u64 signal)
{
	const struct rate_ack ack = {
		.now_ns = now_ns,
		.rtt_ns = RTT_NS,
		.signal = signal,
		.bytes = 1500,
		.has_signal = true,
		.kind = kind,
		.unit = QSIGNAL_NS,
	};

	extent_on_ack(state, params, &ack);
}

static void with_one_bit_it_is_dctcp(void)
{
	struct extent_params params = defaults;
	double alpha = 1, rate = params.start_rate_bps;
	struct extent_state state = started(&params);
	int trip, packet, marked;
	u64 now_ns = 0;

	for (trip = 0; trip < 20000; trip++) {
		marked = random_below(3) ? random_below(11) : 0;
		for (packet = 1; packet <= 10; packet++)
			ack(&state, &params, now_ns + packet * RTT_NS / 10, QSIGNAL_IND, packet <= marked);
		now_ns += RTT_NS;
		alpha = alpha * 15 / 16 + marked / 160.0;
		rate = marked ? rate * (1 - alpha / 2) : rate + params.step_bps;
		rate = rate < params.min_rate_bps ? params.min_rate_bps : rate;
		rate = rate > params.max_rate_bps ? params.max_rate_bps : rate;
		EXPECT(state.smoothed < (alpha + 2e-5) * RATE_ONE && state.smoothed > (alpha - 2e-5) * RATE_ONE);
		EXPECT(state.rate_bps < rate * 1.001 && state.rate_bps > rate * 0.999);
		rate = state.rate_bps;	/* do not accumulate rounding errors */
	}
}

static void between_the_thresholds_the_extent_is_linear(void)
{
	const struct { u64 queueing_ns, extent; } cases[] = {
		{ 0, 0 }, { 30000, 0 }, { 30001, 6 }, { 105000, RATE_ONE / 2 }, { 179999, RATE_ONE - 7 },
		{ 180000, RATE_ONE }, { U64_MAX, RATE_ONE },
	};
	struct rate_ack ack = { .kind = QSIGNAL_MAX, .unit = QSIGNAL_NS, .has_signal = true };
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		ack.signal = cases[i].queueing_ns;
		EXPECT_EQUAL(extent_of(&defaults, &ack), cases[i].extent);
	}
	ack = (struct rate_ack) { .rtt_ns = defaults.min_rtt_ns + 105000 };	/* without a signal,
										 * from the RTT
										 */
	EXPECT_EQUAL(extent_of(&defaults, &ack), RATE_ONE / 2);
	ack.rtt_ns = 1;
	EXPECT_EQUAL(extent_of(&defaults, &ack), 0);
}

static void equal_thresholds_are_a_step(void)
{
	struct rate_ack ack = { .kind = QSIGNAL_MAX, .unit = QSIGNAL_NS, .has_signal = true, .signal = 50001 };
	struct extent_params params = defaults;

	params.q_low_ns = params.q_high_ns = 50000;
	EXPECT_EQUAL(extent_of(&params, &ack), RATE_ONE);
	ack.signal = 50000;
	EXPECT_EQUAL(extent_of(&params, &ack), 0);
}

static void without_a_signal_nothing_changes(void)
{
	const struct rate_ack ack = { .now_ns = 1000000, .rtt_ns = 1, .kind = QSIGNAL_MAX, .signal = U64_MAX };
	struct extent_state state = started(&defaults);

	extent_on_ack(&state, &defaults, &ack);
	EXPECT_EQUAL(state.packets, 0);
	EXPECT_EQUAL(extent_rate(&state, &defaults), defaults.start_rate_bps);
}

/* With a vector, each queue has its extent; the path's is the worst, or that of any mark. */
static void of_a_vector_every_queue_counts(void)
{
	static const u64 lengths[] = { 0, 105000, 0, 142500, 255000, 67500 };	/* 0, 1/2, 0, 3/4, 1, 1/4 */
	struct extent_params params = defaults;
	struct rate_ack one = { .kind = QSIGNAL_VECTOR, .unit = QSIGNAL_NS, .bits = 20, .has_signal = true };
	double unmarked = 1, share;
	u32 i;

	params.queue_rate_bps = GBPS;
	for (i = 0; i < 6; i++) {
		one.vector = qsignal_append(one.vector, one.bits, lengths[i]);
		one.queues = qsignal_queues(one.bits, i + 1);
		EXPECT_EQUAL(one.queues, i + 1);
		if (lengths[i] > one.signal)
			one.signal = lengths[i];
		share = ((double)lengths[i] - params.q_low_ns) / (params.q_high_ns - params.q_low_ns);
		unmarked *= 1 - (share < 0 ? 0 : share > 1 ? 1 : share);
		params.any_queue = true;
		EXPECT(extent_of(&params, &one) <= (1 - unmarked + 5e-6) * RATE_ONE &&
		       extent_of(&params, &one) >= (1 - unmarked - 5e-6) * RATE_ONE);
		params.any_queue = false;
		EXPECT_EQUAL(extent_of(&params, &one), extent_of_queue(&params, &one));
	}
	EXPECT_EQUAL(qsignal_entry(one.vector, 20, 0), 67500);
	EXPECT_EQUAL(qsignal_entry(one.vector, 20, 2), 142500);
	EXPECT_EQUAL(qsignal_entry(one.vector, 20, 3), 0);
	EXPECT_EQUAL(qsignal_entry(one.vector, 20, 4), 105000);
	EXPECT_EQUAL(qsignal_queues(20, 7), 6);
}

int main(void)
{
	of_a_vector_every_queue_counts();
	with_one_bit_it_is_dctcp();
	between_the_thresholds_the_extent_is_linear();
	equal_thresholds_are_a_step();
	without_a_signal_nothing_changes();
	return PASS();
}
