// SPDX-License-Identifier: GPL-2.0-only
/*
 * The congestion point: Fb, its quantizer, and its two probabilities, at their
 * bounds and with random values.
 */
#include "qcn_algorithm.h"
#include "unit.h"

static const struct qcn_params slides = {
	.buffer_bytes = QCN_NO_BOUND,
	.buffer_packets = 100,
	.equilibrium_packets = 25,
	.weight = 2,
	.bits = 6,
	.min_sampling = QCN_ONE / 100,
	.max_sampling = QCN_ONE / 4,
	.between_samples = 1,
	.reflect = QCN_ONE,
	.biased = 1,
};

static u64 congestion(const struct qcn_params *params, u32 before, u32 now)
{
	return qcn_congestion(params, &(struct qcn_vars) { before }, now);
}

static void congestion_combines_offset_and_growth(void)
{
	struct qcn_params params = slides;

	EXPECT_EQUAL(congestion(&params, 25, 25), 0);
	EXPECT_EQUAL(congestion(&params, 26, 26), 1);
	EXPECT_EQUAL(congestion(&params, 25, 26), 1 + 2);	/* q_off + w q_delta */
	EXPECT_EQUAL(congestion(&params, 0, 100), 75 + 200);
	EXPECT_EQUAL(congestion(&params, 0, 8), 0);		/* -17 + 16 */
	EXPECT_EQUAL(congestion(&params, 0, 9), 2);		/* short, but growing */
	EXPECT_EQUAL(congestion(&params, 100, 75), 0);		/* long, but shrinking: 50 - 50 */
	EXPECT_EQUAL(congestion(&params, 100, 76), 3);
	params.weight = 0;
	EXPECT_EQUAL(congestion(&params, 0, 100), 75);
	/* the refinement: q is capped at 2 q_eq */
	params.capped = 1;
	EXPECT_EQUAL(congestion(&params, 0, 50), 25);
	EXPECT_EQUAL(congestion(&params, 0, 100), 25);
	params.weight = 2;
	EXPECT_EQUAL(congestion(&params, 0, 100), 25 + 200);	/* growth is not capped */
}

static void levels_of_the_quantizer(void)
{
	struct qcn_params params = slides;

	EXPECT_EQUAL(qcn_full_scale(&params), 125);		/* (1 + 2 w) q_eq */
	EXPECT_EQUAL(qcn_quantized(&params, 0), 0);
	EXPECT_EQUAL(qcn_quantized(&params, 1), 1);		/* 0.504, up */
	EXPECT_EQUAL(qcn_quantized(&params, 2), 2);		/* 1.008, up */
	EXPECT_EQUAL(qcn_quantized(&params, 124), 63);
	EXPECT_EQUAL(qcn_quantized(&params, 125), 63);
	EXPECT_EQUAL(qcn_quantized(&params, 1000000000000ull), 63);
	params.bits = 1;
	EXPECT_EQUAL(qcn_quantized(&params, 0), 0);
	EXPECT_EQUAL(qcn_quantized(&params, 1), 1);
	EXPECT_EQUAL(qcn_quantized(&params, 125), 1);
	params.bits = 16;
	params.full_scale_packets = 65535;
	EXPECT_EQUAL(qcn_quantized(&params, 40000), 40000);
	params.full_scale_packets = 1;
	EXPECT_EQUAL(qcn_quantized(&params, 1), 65535);
}

static void quantization_is_monotonic(void)
{
	struct qcn_params params = slides;
	int i;

	for (i = 0; i < 200000; i++) {
		u64 a, b, scale;
		u16 x, y;

		params.bits = 1 + random_below(16);
		params.equilibrium_packets = 1 + random_below(1048576);
		params.weight = random_below(1024);
		params.full_scale_packets = random_below(3) ? 0 : random_below(1ull << 31);
		params.min_sampling = random_below(QCN_ONE + 1ull);
		params.max_sampling = params.min_sampling + random_below(QCN_ONE + 1ull - params.min_sampling);
		scale = qcn_full_scale(&params);
		a = random_below(2 * scale);
		b = a + random_below(scale);
		x = qcn_quantized(&params, a);
		y = qcn_quantized(&params, b);
		EXPECT(x <= y && y <= qcn_max_level(params.bits));
		EXPECT_EQUAL(x == 0, a == 0);
		EXPECT(b < scale || y == qcn_max_level(params.bits));
		EXPECT(qcn_sampling(&params, a) <= qcn_sampling(&params, b));
		EXPECT(qcn_sampling(&params, a) >= params.min_sampling);
		EXPECT(qcn_sampling(&params, b) <= params.max_sampling);
		EXPECT(b < scale || qcn_sampling(&params, b) == params.max_sampling);
		EXPECT(qcn_reflection(&params, x) <= qcn_reflection(&params, y));
		EXPECT(qcn_reflection(&params, y) <= params.reflect);
	}
}

static void comparison_of_levels(void)
{
	EXPECT(!qcn_is_worse(0, 6, 0, 0));
	EXPECT(qcn_is_worse(1, 6, 0, 0));
	EXPECT(qcn_is_worse(1, 6, 99, 0));		/* not written yet: the value is ignored */
	EXPECT(!qcn_is_worse(0, 6, 0, 6));
	EXPECT(!qcn_is_worse(10, 6, 10, 6));
	EXPECT(qcn_is_worse(11, 6, 10, 6));
	EXPECT(!qcn_is_worse(9, 6, 10, 6));
	/* other quantizers: relative to their maximum */
	EXPECT(!qcn_is_worse(63, 6, 1, 1));
	EXPECT(!qcn_is_worse(1, 1, 63, 6));
	EXPECT(qcn_is_worse(1, 1, 62, 6));
	EXPECT(qcn_is_worse(21, 6, 21844, 16));	/* a third, compared with slightly less */
	EXPECT(!qcn_is_worse(21, 6, 21845, 16));
	EXPECT(!qcn_is_worse(65535, 16, 65535, 255));	/* an invalid number of bits is harmless */
}

static void probabilities(void)
{
	struct qcn_params params = slides;
	u32 hits = 0, i;

	EXPECT(!qcn_chance(0, 0) && !qcn_chance(0, U32_MAX));
	EXPECT(qcn_chance(QCN_ONE, 0) && qcn_chance(QCN_ONE, U32_MAX));
	EXPECT(qcn_chance(1, 0) && !qcn_chance(1, 5));
	for (i = 0; i < 1000000; i++)
		hits += qcn_chance(QCN_ONE / 40, random_u64() >> 32);
	EXPECT(hits > 24200 && hits < 25800);	/* 2.5 %, five standard deviations */

	EXPECT_EQUAL(qcn_sampling(&params, 0), QCN_ONE / 100);
	EXPECT_EQUAL(qcn_sampling(&params, 125), QCN_ONE / 4);
	EXPECT_EQUAL(qcn_sampling(&params, 9999), QCN_ONE / 4);
	EXPECT_EQUAL(qcn_sampling(&params, 50), QCN_ONE / 100 + (QCN_ONE / 4 - QCN_ONE / 100) / 125 * 50);
	EXPECT_EQUAL(qcn_reflection(&params, 63), QCN_ONE);
	EXPECT_EQUAL(qcn_reflection(&params, 21), QCN_ONE / 3);
	EXPECT_EQUAL(qcn_reflection(&params, 0), 0);
	params.biased = 0;
	EXPECT_EQUAL(qcn_reflection(&params, 1), QCN_ONE);
}

static void growth_since_the_sample_or_the_arrival(void)
{
	struct qcn_params params = slides;
	struct qcn_vars vars = {};

	qcn_arrived(&params, &vars, 40, false);
	EXPECT_EQUAL(vars.last_packets, 0);
	qcn_arrived(&params, &vars, 40, true);
	EXPECT_EQUAL(vars.last_packets, 40);
	params.between_samples = 0;
	qcn_arrived(&params, &vars, 41, false);
	EXPECT_EQUAL(vars.last_packets, 41);
}

static void the_longest_queues_do_not_overflow(void)
{
	struct qcn_params params = slides;

	params.weight = 1023;
	params.equilibrium_packets = 1;
	EXPECT_EQUAL(congestion(&params, 0, U32_MAX), 1024ull * U32_MAX - 1);
	EXPECT_EQUAL(congestion(&params, U32_MAX, 0), 0);
	params.equilibrium_packets = 1048576;
	EXPECT_EQUAL(qcn_full_scale(&params), 2047ull << 20);
}

static void what_fits(void)
{
	struct qcn_params params = slides;

	params.buffer_bytes = 3000;
	params.buffer_packets = 3;
	EXPECT(qcn_fits(&params, 2, 1500, 1500));
	EXPECT(!qcn_fits(&params, 2, 1500, 1501));
	EXPECT(!qcn_fits(&params, 3, 0, 1));
	EXPECT(!qcn_fits(&params, 2, U32_MAX, U32_MAX));
}

int main(void)
{
	congestion_combines_offset_and_growth();
	levels_of_the_quantizer();
	quantization_is_monotonic();
	comparison_of_levels();
	probabilities();
	growth_since_the_sample_or_the_arrival();
	the_longest_queues_do_not_overflow();
	what_fits();
	return PASS();
}
