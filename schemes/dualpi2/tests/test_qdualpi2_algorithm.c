// SPDX-License-Identifier: GPL-2.0-only
/*
 * The controller, compared with RFC 9332's in floating point, its signals, the
 * ramp, and the share of the classic queue.
 */
#include "qdualpi2_algorithm.h"
#include "unit.h"

#define MS 1000000ull

static const struct qdualpi2_params usual = {
	.buffer_bytes = QDUALPI2_NO_BOUND,
	.buffer_packets = 1000,
	.target_ns = 15 * MS,
	.rtt_max_ns = 100 * MS,
	.coupling = 2,
	.min_threshold_ns = 800000,
	.max_threshold_ns = 1200000,
	.protection = 100,
};

static double bounded(double p)
{
	return p < 0 ? 0 : p > 1 ? 1 : p;
}

/* Appendix A's "dualpi2_update", with times in seconds. */
static double updated(const struct qdualpi2_params *params, double p, double delay, double prior)
{
	double rtt = params->rtt_max_ns / 1e9, interval = qdualpi2_interval_ns(params) / 1e9;
	double alpha = 0.1 * interval / (rtt * rtt), beta = 0.3 / rtt;

	return bounded(p + alpha * (delay - params->target_ns / 1e9) + beta * (delay - prior));
}

static void expect_near(const struct qdualpi2_vars *vars, double p)
{
	double off = vars->p / 4294967296.0 - p;

	EXPECT(off < 1e-5 && off > -1e-5);
}

static void follows_the_rfc(void)
{
	struct qdualpi2_params params = usual;
	unsigned int run, step;

	for (run = 0; run < 200; run++) {
		struct qdualpi2_vars vars = {};
		double p = 0;

		params.target_ns = MS + random_below(30 * MS);
		params.rtt_max_ns = 10 * MS + random_below(500 * MS);
		for (step = 0; step < 50; step++) {
			double prior = vars.prior_ns / 1e9;
			u64 delay = random_below(4 * params.target_ns);

			p = updated(&params, vars.p / 4294967296.0, delay / 1e9, prior);
			qdualpi2_update(&params, &vars, delay);
			expect_near(&vars, p);
			EXPECT_EQUAL(vars.prior_ns, delay);
		}
	}
}

static void stays_a_probability(void)
{
	unsigned int run;

	for (run = 0; run < 10000; run++) {
		struct qdualpi2_params params = usual;
		struct qdualpi2_vars vars = {};
		unsigned int step;

		params.target_ns = 1000 + random_below(1000 * MS);
		params.rtt_max_ns = 10000 + random_below(10000 * MS);
		for (step = 0; step < 4; step++) {
			qdualpi2_update(&params, &vars, random_u64() >> (2 + random_below(60)));
			EXPECT(vars.p < QDUALPI2_ONE);
			EXPECT(qdualpi2_classic(&vars) <= vars.p);
		}
	}
}

/* Updates performed late equal those in time, with and without a queued packet. */
static void late_updates_equal_timely_ones(void)
{
	unsigned int run;

	for (run = 0; run < 2000; run++) {
		u64 interval = qdualpi2_interval_ns(&usual), head = random_below(200 * MS), now;
		struct qdualpi2_vars late = { .p = random_u64() >> 32, .due_ns = interval };
		struct qdualpi2_vars timely = late;
		bool waits = random_below(2);
		u64 due;

		now = head + random_below(run % 10 ? 200 * MS : 100000 * MS);
		for (due = interval; due <= now; due += interval)
			qdualpi2_update(&usual, &timely, waits && due > head ? due - head : 0);
		qdualpi2_catch_up(&usual, &late, now, waits, head);
		EXPECT_EQUAL(late.p, timely.p);
		EXPECT_EQUAL(late.due_ns, due);
		if (now >= interval)
			EXPECT_EQUAL(late.prior_ns, timely.prior_ns);
	}
}

static void signals_with_the_given_likelihood(void)
{
	unsigned int run, packet;

	for (run = 0; run < 200; run++) {
		u64 likelihood = random_below(QDUALPI2_ONE + 1), signals = 0, count = 0;

		for (packet = 1; packet <= 1000; packet++) {
			count += qdualpi2_recur(&signals, likelihood);
			EXPECT_EQUAL(count, packet * likelihood >> 32);
		}
	}
}

static void the_ramp_is_between_its_ends(void)
{
	struct qdualpi2_params step = usual;

	EXPECT_EQUAL(qdualpi2_ramp(&usual, 800000), 0);
	EXPECT_EQUAL(qdualpi2_ramp(&usual, 1000000), QDUALPI2_ONE / 2);
	EXPECT_EQUAL(qdualpi2_ramp(&usual, 1200000), QDUALPI2_ONE);
	EXPECT_EQUAL(qdualpi2_ramp(&usual, U64_MAX), QDUALPI2_ONE);
	step.min_threshold_ns = step.max_threshold_ns;
	EXPECT_EQUAL(qdualpi2_ramp(&step, 1199999), 0);
	EXPECT_EQUAL(qdualpi2_ramp(&step, 1200000), QDUALPI2_ONE);
}

static void marks_by_the_greater_of_both(void)
{
	struct qdualpi2_vars vars = { .p = QDUALPI2_ONE / 4 };	/* coupled: a half */

	EXPECT_EQUAL(qdualpi2_on_l4s(&usual, &vars, 0, false), QDUALPI2_PASS);
	EXPECT_EQUAL(qdualpi2_on_l4s(&usual, &vars, 0, false), QDUALPI2_MARK_BY_COUPLING);
	EXPECT_EQUAL(qdualpi2_on_l4s(&usual, &vars, 2 * MS, false), QDUALPI2_MARK_BY_RAMP);
	EXPECT_EQUAL(qdualpi2_on_l4s(&usual, &vars, 2 * MS, true), QDUALPI2_PASS);	/* the queue is empty */
}

static void drops_in_overload(void)
{
	struct qdualpi2_vars vars = { .p = QDUALPI2_ONE / 2 };	/* coupled: all; classic: a quarter */
	unsigned int packet, dropped = 0;

	for (packet = 0; packet < 40; packet++) {
		enum qdualpi2_verdict verdict = qdualpi2_on_l4s(&usual, &vars, 0, false);

		EXPECT(verdict == QDUALPI2_DROP || verdict == QDUALPI2_MARK_BY_COUPLING);
		dropped += verdict == QDUALPI2_DROP;
		verdict = qdualpi2_on_classic(&usual, &vars);
		EXPECT(verdict == QDUALPI2_DROP || verdict == QDUALPI2_PASS);
		dropped += verdict == QDUALPI2_DROP;
	}
	EXPECT_EQUAL(dropped, 20);
	vars.p--;
	for (packet = 0; packet < 40; packet++)
		EXPECT(qdualpi2_on_classic(&usual, &vars) != QDUALPI2_DROP);
}

/* While both queues are non-empty, up to one packet of maximum size. */
static void the_classic_queue_gets_its_share(void)
{
	struct qdualpi2_params params = usual;
	unsigned int run, packet;

	for (run = 0; run < 100; run++) {
		struct qdualpi2_vars vars = {};
		s64 classic = 0, all = 0, off;

		params.protection = random_below(QDUALPI2_SHARE_ONE + 1);
		for (packet = 0; packet < 1000; packet++) {
			bool is_classic = qdualpi2_is_classic_next(&vars, true, true);
			u32 bytes = 60 + random_below(1455);

			qdualpi2_account(&params, &vars, is_classic, true, bytes);
			classic += is_classic ? bytes : 0;
			all += bytes;
			off = classic * QDUALPI2_SHARE_ONE - all * params.protection;
			EXPECT(off <= 1514 * QDUALPI2_SHARE_ONE && off >= -1514 * QDUALPI2_SHARE_ONE);
		}
	}
}

static void a_single_queue_gets_the_whole_link(void)
{
	struct qdualpi2_vars vars = {};
	unsigned int packet;

	EXPECT(!qdualpi2_is_classic_next(&vars, false, true));
	EXPECT(!qdualpi2_is_classic_next(&vars, false, false));
	EXPECT(!qdualpi2_is_classic_next(&vars, true, true));	/* the L4S queue has priority */
	for (packet = 0; packet < 1000; packet++) {
		EXPECT(qdualpi2_is_classic_next(&vars, true, false));
		qdualpi2_account(&usual, &vars, true, false, 1500);
	}
	/* the debt is limited to one packet: nine packets of the L4S queue settle it */
	for (packet = 0; packet < 9; packet++) {
		EXPECT(!qdualpi2_is_classic_next(&vars, true, true));
		qdualpi2_account(&usual, &vars, false, true, 1500);
	}
	qdualpi2_account(&usual, &vars, false, true, 60);
	EXPECT(qdualpi2_is_classic_next(&vars, true, true));
}

static void both_share_one_buffer(void)
{
	struct qdualpi2_params params = usual;

	EXPECT(qdualpi2_fits(&params, 999, 1500000, 1514));
	EXPECT(!qdualpi2_fits(&params, 1000, 1500000, 60));
	params.buffer_bytes = 15000;
	EXPECT(qdualpi2_fits(&params, 9, 13500, 1500));
	EXPECT(!qdualpi2_fits(&params, 9, 13501, 1500));
}

int main(void)
{
	follows_the_rfc();
	stays_a_probability();
	late_updates_equal_timely_ones();
	signals_with_the_given_likelihood();
	the_ramp_is_between_its_ends();
	marks_by_the_greater_of_both();
	drops_in_overload();
	the_classic_queue_gets_its_share();
	a_single_queue_gets_the_whole_link();
	both_share_one_buffer();
	return PASS();
}
