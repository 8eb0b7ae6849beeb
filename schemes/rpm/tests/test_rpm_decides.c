// SPDX-License-Identifier: GPL-2.0-only
/* The laws other than Linux's CoDel, against what their sources demand. */
#include "rpm_decides.h"
#include "unit.h"

#define TARGET 50
#define INTERVAL 1000

static bool dequeue(struct rpm_tofino_vars *vars, u64 waited, u64 now)
{
	return rpm_tofino_on_dequeue(vars, TARGET, INTERVAL, waited, now);
}

static void inverse_roots(void)
{
	u16 root = RPM_INVERSE_ROOT_ONE;
	u32 count;

	for (count = 2; count <= 10000; count++) {
		u64 squared;

		root = rpm_inverse_root(root, count);
		squared = (u64)root * root * count;	/* of 1, in 2^-32 */
		EXPECT(squared <= 1ull << 32);
		/* within 0.2 %, and the last bit */
		EXPECT((u64)(root + 2) * (root + 2) * count * 1004 / 1000 > 1ull << 32);
	}
}

static void an_interval_above_the_target_signals_at_growing_rate(void)
{
	struct rpm_tofino_vars vars = {};
	u64 due[4], now, found = 0;

	for (now = 5000; found < 4; now++) {
		if (dequeue(&vars, TARGET, now))
			due[found++] = now;
	}
	/* the count is 2 at the first signal: 1000, 1000 / sqrt(2), 1000 / sqrt(3), 1000 / sqrt(4) */
	EXPECT_EQUAL(due[0], 6001);
	EXPECT(due[1] - due[0] >= 705 && due[1] - due[0] <= 707);
	EXPECT(due[2] - due[1] >= 575 && due[2] - due[1] <= 577);
	EXPECT(due[3] - due[2] >= 498 && due[3] - due[2] <= 500);
}

static void one_packet_below_the_target_ends_the_excursion(void)
{
	struct rpm_tofino_vars vars = {};

	EXPECT(!dequeue(&vars, TARGET, 0));
	EXPECT(dequeue(&vars, TARGET, 1001));
	EXPECT(dequeue(&vars, TARGET, 1710));
	EXPECT_EQUAL(vars.count, 3);
	EXPECT(!dequeue(&vars, TARGET - 1, 1711));
	EXPECT(!dequeue(&vars, TARGET, 1712));
	EXPECT_EQUAL(vars.count, 1);			/* Linux would continue from the count */
	EXPECT(!dequeue(&vars, TARGET, 2712));
	EXPECT(dequeue(&vars, TARGET, 2713));
}

static void late_signals_are_made_up_for(void)
{
	struct rpm_tofino_vars vars = {};

	EXPECT(!dequeue(&vars, TARGET, 0));
	/* the second was due at 1706, the third at 2283 */
	EXPECT(dequeue(&vars, TARGET, 2200));
	EXPECT(dequeue(&vars, TARGET, 2201));
	EXPECT(!dequeue(&vars, TARGET, 2202));
	EXPECT(dequeue(&vars, TARGET, 2285));
}

static void a_step_signals_above_the_threshold(void)
{
	const struct rpm_params params = { .decides = RPM_DECIDES_STEP, .threshold_packets = 20 };
	struct rpm_decides_vars vars = {};

	EXPECT(rpm_decides_at_enqueue(&params));
	EXPECT(!rpm_decides_on_enqueue(&params, &vars, 20, 0));
	EXPECT(rpm_decides_on_enqueue(&params, &vars, 21, U32_MAX));
}

static void codel_does_not_decide_at_enqueue(void)
{
	struct rpm_params params = { .decides = RPM_DECIDES_CODEL };
	struct rpm_decides_vars vars = {};

	EXPECT(!rpm_decides_at_enqueue(&params));
	EXPECT(!rpm_decides_on_enqueue(&params, &vars, U32_MAX, 0));
	params.decides = RPM_DECIDES_CODEL_TOFINO;
	EXPECT(!rpm_decides_at_enqueue(&params));
	EXPECT(!rpm_decides_on_enqueue(&params, &vars, U32_MAX, 0));
}

static u64 signals(const struct rpm_params *params, u32 queue_packets, u64 packets)
{
	struct rpm_decides_vars vars = {};
	u64 found = 0;

	while (packets--)
		found += rpm_decides_on_enqueue(params, &vars, queue_packets, random_u64() >> 32);
	return found;
}

static void the_linear_probability_is_eta_times_the_excess(void)
{
	struct rpm_params params = {
		.decides = RPM_DECIDES_LINEAR, .threshold_packets = 10, .eta = RPM_ONE / 1000,
	};
	struct rpm_decides_vars vars = {};
	u64 found;

	EXPECT(!rpm_decides_on_enqueue(&params, &vars, 10, 0));
	EXPECT(rpm_decides_on_enqueue(&params, &vars, 11, 4294967));	/* 0.001 of 2^32 is 4294967.3 */
	EXPECT(!rpm_decides_on_enqueue(&params, &vars, 11, 4294968));
	found = signals(&params, 60, 1000000);				/* 5 % */
	EXPECT(found > 49000 && found < 51000);
	EXPECT(rpm_decides_on_enqueue(&params, &vars, 1010, U32_MAX));	/* 1 */
	EXPECT(rpm_decides_on_enqueue(&params, &vars, U32_MAX, U32_MAX));

	params.eta = RPM_ONE / 2000000;					/* 5e-7, the lab's */
	found = signals(&params, 1010, 10000000);			/* 0.05 % */
	EXPECT(found > 4700 && found < 5300);
	params.eta = RPM_ONE;
	EXPECT(rpm_decides_on_enqueue(&params, &vars, U32_MAX, U32_MAX));
	params.eta = 0;
	EXPECT(!rpm_decides_on_enqueue(&params, &vars, U32_MAX, 0));
}

static const struct rpm_params red = {
	.decides = RPM_DECIDES_RED, .min_packets = 10, .max_packets = 30,
	.probability = RPM_ONE / 10, .wlog = 4,
};

static void red_averages_the_queue(void)
{
	struct rpm_decides_vars vars = {};
	double average = 0;
	int step;

	for (step = 0; step < 1000; step++) {
		u32 queue = random_below(9);

		EXPECT(!rpm_decides_on_enqueue(&red, &vars, queue, 0));
		average += (queue - average) / 16;
		EXPECT(vars.red.average / 16.0 - average < 1 && average - vars.red.average / 16.0 < 1);
	}
	/* a burst that is short beside 16 packets is no congestion */
	for (step = 0; step < 4; step++)
		EXPECT(!rpm_decides_on_enqueue(&red, &vars, 20, 0));
}

static void red_marks_at_uniform_distances(void)
{
	struct rpm_decides_vars vars = { .red.average = 20 << 4 };	/* p_b = 5 % */
	u32 distance = 0, largest = 0, below_ten = 0, marks = 0;
	int step;

	for (step = 0; step < 1000000; step++) {
		distance++;
		if (!rpm_decides_on_enqueue(&red, &vars, 20, random_u64() >> 32))
			continue;
		marks++;
		below_ten += distance <= 10;
		largest = distance > largest ? distance : largest;
		distance = 0;
	}
	EXPECT_EQUAL(largest, 20);		/* 1 / p_b: uniform from 1 to 20, not geometric */
	EXPECT(marks > 94000 && marks < 96500);	/* one in 10.5 */
	EXPECT(below_ten > marks * 49 / 100 && below_ten < marks * 51 / 100);
}

static void red_marks_all_from_the_upper_threshold(void)
{
	EXPECT_EQUAL(signals(&red, 29, 200000) * 100 / 200000 < 20, 1);
	struct rpm_decides_vars vars = { .red.average = 30 << 4 };

	EXPECT(rpm_decides_on_enqueue(&red, &vars, 30, U32_MAX));
	EXPECT(rpm_decides_on_enqueue(&red, &vars, 30, U32_MAX));
	vars.red.average = 0;
	vars.red.count = 7;
	EXPECT(!rpm_decides_on_enqueue(&red, &vars, 0, 0));
	EXPECT_EQUAL(vars.red.count, 0);
}

static void red_thresholds_may_be_equal(void)
{
	const struct rpm_params equal = {
		.decides = RPM_DECIDES_RED, .min_packets = 10, .max_packets = 10, .wlog = 0,
	};
	struct rpm_decides_vars vars = {};

	EXPECT(!rpm_decides_on_enqueue(&equal, &vars, 9, 0));
	EXPECT(rpm_decides_on_enqueue(&equal, &vars, 10, U32_MAX));
}

static void extremes_do_not_overflow(void)
{
	struct rpm_params params = {
		.decides = RPM_DECIDES_RED, .max_packets = U32_MAX, .probability = RPM_ONE, .wlog = 16,
	};
	struct rpm_decides_vars vars = {};
	u64 found = 0, step;

	for (step = 0; step < 1000000; step++)
		found += rpm_decides_on_enqueue(&params, &vars, step & 1 ? U32_MAX : U32_MAX - 1,
						random_u64() >> 32);
	EXPECT(found > 900000);
	params.max_packets = 1 << 19;
	EXPECT_EQUAL(signals(&params, 1 << 19, 10000000) > 1000000, 1);
}

int main(void)
{
	inverse_roots();
	an_interval_above_the_target_signals_at_growing_rate();
	one_packet_below_the_target_ends_the_excursion();
	late_signals_are_made_up_for();
	a_step_signals_above_the_threshold();
	codel_does_not_decide_at_enqueue();
	the_linear_probability_is_eta_times_the_excess();
	red_averages_the_queue();
	red_marks_at_uniform_distances();
	red_marks_all_from_the_upper_threshold();
	red_thresholds_may_be_equal();
	extremes_do_not_overflow();
	return PASS();
}
