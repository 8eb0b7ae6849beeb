// SPDX-License-Identifier: GPL-2.0-only
/* The three states: transitions, X, and agreement with a second implementation. */
#include "abq_algorithm.h"
#include "unit.h"

/* The paper's parameters: a buffer of 80 packets, K = 20 packets. */
static const struct abq_lengths paper = {
	.limit = 80,
	.threshold = 20,
	.mtu = 1,
};

struct machine {
	struct abq_lengths lengths;
	struct abq_vars vars;
	struct abq_stats stats;
};

static enum abq_action length(struct machine *m, u32 queue)
{
	return abq_on_queue(&m->lengths, &m->vars, &m->stats, queue);
}

/* Each step: queue length, and the expected action, state and X. */
static void follow(struct machine *m, const u32 (*steps)[4], u32 count)
{
	u32 i;

	for (i = 0; i < count; i++) {
		EXPECT_EQUAL(length(m, steps[i][0]), steps[i][1]);
		EXPECT_EQUAL(m->vars.state, steps[i][2]);
		EXPECT_EQUAL(m->vars.x, steps[i][3]);
	}
}

static void the_papers_parameters_step_by_step(void)
{
	static const u32 steps[15][4] = {
		{ 1, ABQ_NOTHING, ABQ_US, 0 },
		{ 20, ABQ_NOTHING, ABQ_US, 0 },		/* K itself is not above K */
		{ 21, ABQ_HOLD, ABQ_CS, 20 },
		{ 80, ABQ_NOTHING, ABQ_CS, 20 },
		{ 21, ABQ_NOTHING, ABQ_CS, 20 },
		{ 20, ABQ_RELEASE, ABQ_LCS, 10 },	/* equal to X */
		{ 20, ABQ_NOTHING, ABQ_LCS, 10 },
		{ 11, ABQ_NOTHING, ABQ_LCS, 10 },
		{ 10, ABQ_RELEASE, ABQ_LCS, 5 },
		{ 15, ABQ_NOTHING, ABQ_LCS, 5 },
		{ 21, ABQ_HOLD, ABQ_CS, 20 },		/* congested again */
		{ 20, ABQ_RELEASE, ABQ_LCS, 10 },
		{ 10, ABQ_RELEASE, ABQ_LCS, 5 },
		{ 5, ABQ_RELEASE, ABQ_US, 0 },		/* 2 packets are less than 4 MTU */
		{ 0, ABQ_NOTHING, ABQ_US, 0 },
	};
	struct machine m = { .lengths = paper };

	follow(&m, steps, 15);
	EXPECT_EQUAL(m.stats.releases, 5);
	EXPECT_EQUAL(m.stats.entries_cs, 2);
	EXPECT_EQUAL(m.stats.entries_lcs, 2);
	EXPECT_EQUAL(m.stats.entries_us, 1);
}

static void x_starts_at_buffer_minus_k(void)
{
	struct machine m = { .lengths = paper };

	m.lengths.limit = 30;
	EXPECT_EQUAL(length(&m, 21), ABQ_HOLD);
	EXPECT_EQUAL(m.vars.x, 10);
	EXPECT_EQUAL(length(&m, 11), ABQ_NOTHING);
	EXPECT_EQUAL(m.vars.state, ABQ_CS);
	EXPECT_EQUAL(length(&m, 10), ABQ_RELEASE);
	EXPECT_EQUAL(m.vars.x, 5);
}

static void four_mtus_are_not_less_than_four(void)
{
	struct machine m = { .lengths = { .limit = 80, .threshold = 16, .mtu = 1 } };

	length(&m, 17);
	length(&m, 16);
	length(&m, 8);
	EXPECT_EQUAL(m.vars.state, ABQ_LCS);
	EXPECT_EQUAL(m.vars.x, 4);
	EXPECT_EQUAL(length(&m, 4), ABQ_RELEASE);
	EXPECT_EQUAL(m.vars.state, ABQ_US);
}

static void counts_bytes_as_well(void)
{
	struct machine m = { .lengths = { .limit = 128000, .threshold = 30280, .mtu = 1514 } };

	EXPECT_EQUAL(length(&m, 30281), ABQ_HOLD);
	EXPECT_EQUAL(length(&m, 30000), ABQ_RELEASE);	/* below X without being equal */
	EXPECT_EQUAL(m.vars.x, 15140);
	EXPECT_EQUAL(length(&m, 15140), ABQ_RELEASE);
	EXPECT_EQUAL(m.vars.x, 7570);			/* 6056 is 4 MTU */
	EXPECT_EQUAL(length(&m, 7000), ABQ_RELEASE);
	EXPECT_EQUAL(m.vars.state, ABQ_US);
}

/* The parameters of the paper's published code: 80 packets, K = 10. */
static const struct abq_lengths published = {
	.limit = 80,
	.threshold = 10,
	.mtu = 1,
	.x = ABQ_X_PEAK,
	.last = ABQ_LAST_EMPTY,
};

static void the_published_codes_parameters_step_by_step(void)
{
	static const u32 steps[18][4] = {
		{ 10, ABQ_NOTHING, ABQ_US, 0 },
		{ 11, ABQ_HOLD, ABQ_CS, 1 },		/* queue length minus K */
		{ 80, ABQ_NOTHING, ABQ_CS, 10 },	/* at most K */
		{ 12, ABQ_NOTHING, ABQ_CS, 10 },	/* X follows the longest queue */
		{ 10, ABQ_RELEASE, ABQ_LCS, 10 },	/* X unchanged */
		{ 6, ABQ_NOTHING, ABQ_LCS, 10 },
		{ 5, ABQ_RELEASE, ABQ_LCS, 5 },
		{ 13, ABQ_HOLD, ABQ_CS, 5 },		/* congested again: X does not decrease */
		{ 17, ABQ_NOTHING, ABQ_CS, 7 },
		{ 7, ABQ_RELEASE, ABQ_LCS, 7 },
		{ 3, ABQ_RELEASE, ABQ_LCS, 0 },		/* 3 packets are at most 4 MTU */
		{ 1, ABQ_NOTHING, ABQ_LCS, 0 },
		{ 0, ABQ_RELEASE, ABQ_US, 0 },		/* empty */
		{ 11, ABQ_HOLD, ABQ_CS, 1 },
		{ 2, ABQ_NOTHING, ABQ_CS, 1 },
		{ 1, ABQ_RELEASE, ABQ_LCS, 1 },
		{ 0, ABQ_RELEASE, ABQ_US, 0 },
		{ 0, ABQ_NOTHING, ABQ_US, 0 },
	};
	struct machine m = { .lengths = published };

	follow(&m, steps, 18);
	EXPECT_EQUAL(m.stats.releases, 7);
	EXPECT_EQUAL(m.stats.entries_us, 2);
}

static void windows_of_k_bytes_in_all(void)
{
	EXPECT_EQUAL(abq_window(15000, 1, 1446), 15000);
	EXPECT_EQUAL(abq_window(15000, 7, 1446), 2142);
	EXPECT_EQUAL(abq_window(15000, 80, 1446), 1446);	/* at least one segment */
	EXPECT_EQUAL(abq_window(15000, 0, 1446), 15000);
	EXPECT_EQUAL(abq_batch(15000, 0, 1446), 0);
	EXPECT_EQUAL(abq_batch(15000, 7, 1446), 7);
	EXPECT_EQUAL(abq_batch(15000, 80, 1446), 11);		/* 10 windows do not fill K */
	EXPECT_EQUAL(abq_batch(0, 80, 1), 1);
}

static void several_x_in_one_step_are_one_release(void)
{
	struct machine m = { .lengths = paper };

	length(&m, 60);
	EXPECT_EQUAL(length(&m, 7), ABQ_RELEASE);	/* past 20 and 10 */
	EXPECT_EQUAL(m.vars.state, ABQ_LCS);
	EXPECT_EQUAL(m.vars.x, 5);
	length(&m, 60);
	EXPECT_EQUAL(length(&m, 0), ABQ_RELEASE);
	EXPECT_EQUAL(m.vars.state, ABQ_US);
	EXPECT_EQUAL(m.stats.releases, 2);
}

static void an_empty_queue_always_releases(void)
{
	enum { count = 10 };
	static const u32 numbers[count] = { 0, 1, 2, 3, 4, 7, 8, 80, U32_MAX - 1, U32_MAX };
	u32 limit, threshold, mtu;

	for (limit = 0; limit < count; limit++) {
		for (threshold = 0; threshold < count - 1; threshold++) {
			for (mtu = 1; mtu < count; mtu++) {
				struct machine m = { .lengths = {
					.limit = numbers[limit],
					.threshold = numbers[threshold],
					.mtu = numbers[mtu],
					.x = random_below(2),
					.last = random_below(2),
				} };

				EXPECT_EQUAL(length(&m, numbers[threshold] + 1), ABQ_HOLD);
				EXPECT_EQUAL(length(&m, 0), ABQ_RELEASE);
				EXPECT_EQUAL(m.vars.state, ABQ_US);
			}
		}
	}
}

/* The state diagram in floating point, one value of X at a time. */
struct naive {
	int state;
	double x;
	int releases;
};

static void naive_step(struct naive *n, const struct abq_lengths *lengths, u32 queue, bool *release)
{
	double room = (double)lengths->limit - lengths->threshold;

	*release = false;
	if (queue > lengths->threshold) {
		if (n->state != ABQ_CS)
			n->x = room < lengths->threshold ? room : lengths->threshold;
		if (n->x < 0)
			n->x = 0;
		n->state = ABQ_CS;
	}
	while (n->state != ABQ_US && queue <= n->x) {
		*release = true;
		n->state = ABQ_LCS;
		n->x = (double)(long long)(n->x / 2);
		if (n->x < 4.0 * lengths->mtu) {
			n->x = 0;
			n->state = ABQ_US;
		}
	}
	n->releases += *release;
}

static void agrees_with_the_diagram_on_random_walks(void)
{
	u32 run, step;

	for (run = 0; run < 2000; run++) {
		struct machine m = { .lengths = {
			.limit = random_below(200),
			.threshold = random_below(60),
			.mtu = 1 + random_below(3),
		} };
		struct naive n = { .state = ABQ_US };
		u32 queue = 0, largest = 1 + random_below(8);

		for (step = 0; step < 500; step++) {
			enum abq_state before = m.vars.state;
			enum abq_action action;
			bool release;

			if (random_below(2))
				queue += random_below(largest + 1);
			else
				queue -= random_below((queue < largest ? queue : largest) + 1);
			if (!random_below(50))
				queue = random_below(100);
			action = length(&m, queue);
			naive_step(&n, &m.lengths, queue, &release);
			EXPECT_EQUAL(m.vars.state, n.state);
			EXPECT_EQUAL(m.vars.x, (u64)n.x);
			EXPECT_EQUAL(action == ABQ_RELEASE, release);
			EXPECT_EQUAL(action == ABQ_HOLD,
				     m.vars.state == ABQ_CS && before != ABQ_CS);
			EXPECT(m.vars.state == ABQ_US || queue > m.vars.x);	/* no deadlock */
		}
		EXPECT_EQUAL(m.stats.releases, n.releases);
	}
}

static void held_packets_are_always_released(void)
{
	u32 run, step;

	for (run = 0; run < 2000; run++) {
		struct machine m = { .lengths = {
			.limit = random_below(200),
			.threshold = random_below(60),
			.mtu = 1 + random_below(3),
			.x = random_below(2),
			.last = random_below(2),
		} };

		for (step = 0; step < 300; step++) {
			u32 queue = random_below(random_below(4) ? 100 : 8);
			u64 releases = m.stats.releases;
			enum abq_action action = length(&m, queue);

			EXPECT_EQUAL(action == ABQ_RELEASE, m.stats.releases > releases);
			EXPECT(m.vars.x <= m.lengths.threshold);
			EXPECT(m.vars.state == ABQ_US || queue > abq_release_length(&m.lengths, &m.vars));
		}
		length(&m, 0);
		EXPECT_EQUAL(m.vars.state, ABQ_US);
		EXPECT_EQUAL(m.vars.x, 0);
	}
}

static void the_input_queues_integral(void)
{
	struct abq_input input = { .changed_ns = 1000 };
	struct abq_stats stats = {};

	abq_input_set(&input, &stats, 1500, 1);
	abq_input_set(&input, &stats, 1600, 2);
	abq_input_set(&input, &stats, 1600, 3);
	abq_input_set(&input, &stats, 1610, 0);
	abq_input_advance(&input, &stats, 9000);
	EXPECT_EQUAL(stats.held_packet_ns, 100 * 1 + 10 * 3);
	EXPECT_EQUAL(stats.max_held, 3);
	EXPECT_EQUAL(input.held, 0);
}

int main(void)
{
	the_papers_parameters_step_by_step();
	x_starts_at_buffer_minus_k();
	four_mtus_are_not_less_than_four();
	counts_bytes_as_well();
	the_published_codes_parameters_step_by_step();
	windows_of_k_bytes_in_all();
	several_x_in_one_step_are_one_release();
	held_packets_are_always_released();
	an_empty_queue_always_releases();
	agrees_with_the_diagram_on_random_walks();
	the_input_queues_integral();
	return PASS();
}
