// SPDX-License-Identifier: GPL-2.0-only
/*
 * Integrals, samples and histogram, compared with a brute_force-force computation
 * over every nanosecond.
 */
#include <string.h>

#include "unit.h"
#include "qtap_occupancy.h"

#define SPAN 2000u	/* simulated ns */

struct sample {
	struct qtap_integral open;
	struct qtap_counts counts;
	u64 end_ns;
};

static struct sample seen[SPAN + 2];
static u32 samples;
static int refuse_memory;

u64 *qtap_histogram_resize(u64 *histogram, u32 old_bins, u32 new_bins)
{
	u64 *grown;

	if (refuse_memory)
		return NULL;
	grown = realloc(histogram, new_bins * sizeof(u64));
	memset(grown + old_bins, 0, (new_bins - old_bins) * sizeof(u64));
	return grown;
}

static u32 emitted;

void qtap_sample_emit(struct qtap_occupancy *occupancy, u64 end_ns, u32 steady)
{
	u64 interval_ns = occupancy->params.interval_ns;

	emitted++;
	seen[samples++] = (struct sample) { occupancy->open, occupancy->counts, end_ns };
	while (steady--) {	/* expand steady intervals as a reader does */
		struct qtap_integral still;

		qtap_integral_reset(&still, end_ns);
		qtap_integral_add(&still, interval_ns, occupancy->bytes, occupancy->packets);
		end_ns += interval_ns;
		seen[samples++] = (struct sample) { .open = still, .end_ns = end_ns };
	}
}

static struct qtap_integral between[SPAN];	/* integrals between bounds; the first ends at the
						 * first bound
						 */
static u64 bound_histogram[SPAN][64];
static u32 bounds_seen;

void qtap_bound_emit(struct qtap_occupancy *occupancy)
{
	u32 bin;

	for (bin = 0; bin < 64 && bin < occupancy->bins_used; bin++)
		bound_histogram[bounds_seen][bin] = occupancy->histogram[bin];
	between[bounds_seen++] = occupancy->since_bound;
}

/* bytes[t], packets[t]: the state from t to t + 1 */
static u32 bytes[SPAN + 1], packets[SPAN + 1], enqueued_at[SPAN + 1];

static struct qtap_integral brute_force(u64 begin, u64 end)
{
	struct qtap_integral integral;
	u64 t;

	qtap_integral_reset(&integral, begin);
	for (t = begin; t < end; t++)
		qtap_integral_add(&integral, 1, bytes[t], packets[t]);
	return integral;
}

static void expect_integral(const struct qtap_integral *actual, struct qtap_integral expected)
{
	EXPECT_EQUAL(actual->begin_ns, expected.begin_ns);
	EXPECT_EQUAL(actual->byte_ns, expected.byte_ns);
	EXPECT_EQUAL(actual->packet_ns, expected.packet_ns);
	EXPECT_EQUAL(actual->min_bytes, expected.min_bytes);
	EXPECT_EQUAL(actual->max_bytes, expected.max_bytes);
	EXPECT_EQUAL(actual->min_packets, expected.min_packets);
	EXPECT_EQUAL(actual->max_packets, expected.max_packets);
}

static void expect_samples(struct qtap_occupancy_params params, u64 end)
{
	u64 begin = params.begin_ns, t;
	u32 i;

	for (i = 0; i < samples; i++) {
		u64 edge = params.grid_ns + ((begin - params.grid_ns) / params.interval_ns + 1) *
			   params.interval_ns;
		u64 sample_end = edge < end ? edge : end;
		u32 enqueued = 0;

		EXPECT_EQUAL(seen[i].open.begin_ns, begin);	/* no gap */
		EXPECT_EQUAL(seen[i].end_ns, sample_end);
		expect_integral(&seen[i].open, brute_force(begin, sample_end));
		for (t = begin; t < sample_end; t++)
			enqueued += enqueued_at[t];
		EXPECT_EQUAL(seen[i].counts.enqueued, enqueued);
		begin = sample_end;
	}
	EXPECT_EQUAL(begin, end);
}

static void expect_bounds(const struct qtap_occupancy_params *params, u64 end)
{
	u64 begin = params->begin_ns, expected[64] = {}, t;
	u32 bin, i;

	for (i = 0; i < params->bounds && params->bounds_ns[i] <= end; i++) {
		u64 bound = params->bounds_ns[i];

		expect_integral(&between[i], brute_force(begin, bound));
		for (t = begin; t < bound; t++)
			expected[bytes[t] / params->bin_bytes]++;
		for (bin = 0; bin < 64; bin++)
			EXPECT_EQUAL(bound_histogram[i][bin], expected[bin]);
		begin = bound;
	}
	EXPECT_EQUAL(bounds_seen, i);
}

static void against_brute_force(struct qtap_occupancy_params params, u64 quiet)
{
	struct qtap_occupancy occupancy;
	u64 end = params.end_ns < SPAN ? params.end_ns : SPAN;
	u64 ns[64] = {}, t;
	u32 bin;

	samples = bounds_seen = 0;
	memset(bound_histogram, 0, sizeof(bound_histogram));
	memset(enqueued_at, 0, sizeof(enqueued_at));
	qtap_occupancy_init(&occupancy, params, 0, 0);
	for (t = 0; t < SPAN; t++) {
		int changes = random_below(quiet) ? 0 : 1 + random_below(4);

		bytes[t] = occupancy.bytes;
		packets[t] = occupancy.packets;
		while (changes--) {	/* several in one instant: only the last state has a duration */
			qtap_occupancy_advance(&occupancy, t);
			if (occupancy.phase == QTAP_CLOSED)
				break;
			occupancy.bytes = random_below(50000);
			occupancy.packets = random_below(100);
			occupancy.counts.enqueued++;
			enqueued_at[t]++;
			bytes[t] = occupancy.bytes;
			packets[t] = occupancy.packets;
		}
	}
	qtap_occupancy_flush(&occupancy, SPAN);
	expect_integral(&occupancy.total, brute_force(params.begin_ns, end));
	EXPECT_EQUAL(qtap_occupancy_duration_ns(&occupancy), end - params.begin_ns);
	if (params.interval_ns)
		expect_samples(params, end);
	else
		EXPECT_EQUAL(samples, 0);
	expect_bounds(&params, end);
	for (t = params.begin_ns; t < end; t++) {
		bin = bytes[t] / params.bin_bytes;
		ns[bin]++;
	}
	for (bin = 0; bin < 64; bin++)
		EXPECT_EQUAL(bin < occupancy.bins_used ? occupancy.histogram[bin] : 0, ns[bin]);
	free(occupancy.histogram);
}

static void instantaneous_states_do_not_count(void)
{
	struct qtap_occupancy occupancy;

	samples = 0;
	qtap_occupancy_init(&occupancy, (struct qtap_occupancy_params) {
		.end_ns = U64_MAX, .interval_ns = 10, .bin_bytes = 1000 }, 0, 0);
	qtap_occupancy_advance(&occupancy, 5);
	occupancy.packets = 1;
	occupancy.bytes = 1514;
	qtap_occupancy_advance(&occupancy, 5);
	occupancy.packets = 0;
	occupancy.bytes = 0;
	qtap_occupancy_flush(&occupancy, 40);
	EXPECT_EQUAL(samples, 4);
	EXPECT_EQUAL(occupancy.total.max_packets, 0);
	EXPECT_EQUAL(occupancy.total.byte_ns, 0);
	EXPECT_EQUAL(occupancy.bins_used, 1);
	free(occupancy.histogram);
}

static void intervals_without_a_change_are_one_record(void)
{
	struct qtap_occupancy occupancy;

	samples = emitted = 0;
	qtap_occupancy_init(&occupancy, (struct qtap_occupancy_params) {
		.begin_ns = 5, .end_ns = U64_MAX, .interval_ns = 10, .bin_bytes = 1000 }, 0, 0);
	qtap_occupancy_advance(&occupancy, 95);	/* [5, 10), and [10, 20) with seven steady ones */
	EXPECT_EQUAL(emitted, 2);
	EXPECT_EQUAL(samples, 9);
	occupancy.packets = 2;
	occupancy.bytes = 2000;
	occupancy.counts.enqueued += 2;
	qtap_occupancy_advance(&occupancy, 130);
	EXPECT_EQUAL(emitted, 3);
	EXPECT_EQUAL(samples, 13);
	EXPECT_EQUAL(seen[9].counts.enqueued, 2);
	EXPECT_EQUAL(seen[9].open.min_packets, 0);
	EXPECT_EQUAL(seen[12].counts.enqueued, 0);
	EXPECT_EQUAL(seen[12].open.byte_ns, 20000);
	EXPECT_EQUAL(seen[12].open.min_packets, 2);
	EXPECT_EQUAL(seen[12].end_ns, 130);
	free(occupancy.histogram);
}

static void a_change_at_an_edge_belongs_to_the_next_interval(void)
{
	struct qtap_occupancy occupancy;

	samples = 0;
	qtap_occupancy_init(&occupancy, (struct qtap_occupancy_params) {
		.begin_ns = 100, .grid_ns = 100, .end_ns = U64_MAX, .interval_ns = 10,
		.bin_bytes = 1000 }, 0, 0);
	qtap_occupancy_advance(&occupancy, 110);
	occupancy.packets = 1;
	occupancy.counts.enqueued++;
	qtap_occupancy_flush(&occupancy, 120);
	EXPECT_EQUAL(samples, 2);
	EXPECT_EQUAL(seen[0].counts.enqueued, 0);
	EXPECT_EQUAL(seen[0].open.max_packets, 0);
	EXPECT_EQUAL(seen[1].counts.enqueued, 1);
	EXPECT_EQUAL(seen[1].open.min_packets, 1);
	EXPECT_EQUAL(seen[1].open.packet_ns, 10);
	free(occupancy.histogram);
}

static void starts_with_queued_packets(void)
{
	struct qtap_occupancy occupancy;

	qtap_occupancy_init(&occupancy, (struct qtap_occupancy_params) {
		.begin_ns = 100, .grid_ns = 100, .end_ns = 200, .bin_bytes = 1000 }, 0, 0);
	qtap_occupancy_advance(&occupancy, 50);
	occupancy.packets = 3;
	occupancy.bytes = 4500;
	qtap_occupancy_advance(&occupancy, 150);
	EXPECT_EQUAL(occupancy.start_packets, 3);
	EXPECT_EQUAL(occupancy.start_bytes, 4500);
	EXPECT_EQUAL(occupancy.total.byte_ns, 50 * 4500);
	occupancy.packets = 0;
	occupancy.bytes = 0;
	qtap_occupancy_advance(&occupancy, 1000);
	EXPECT_EQUAL(occupancy.phase, QTAP_CLOSED);
	EXPECT_EQUAL(qtap_occupancy_duration_ns(&occupancy), 100);
	EXPECT_EQUAL(occupancy.histogram[0], 50);
	EXPECT_EQUAL(occupancy.histogram[4], 50);
	free(occupancy.histogram);
}

static void histogram_has_an_open_end(void)
{
	struct qtap_occupancy occupancy;

	qtap_occupancy_init(&occupancy, (struct qtap_occupancy_params) {
		.end_ns = U64_MAX, .bin_bytes = 1 }, 0, 0);
	occupancy.bytes = U32_MAX;
	qtap_occupancy_flush(&occupancy, 7);
	EXPECT_EQUAL(occupancy.bins_used, QTAP_MAX_BINS);
	EXPECT_EQUAL(occupancy.histogram[QTAP_MAX_BINS - 1], 7);
	free(occupancy.histogram);

	/* without memory, the last allocated bin counts the time */
	qtap_occupancy_init(&occupancy, (struct qtap_occupancy_params) {
		.end_ns = U64_MAX, .bin_bytes = 1 }, 0, 0);
	qtap_occupancy_flush(&occupancy, 7);
	refuse_memory = 1;
	occupancy.bytes = 1000;
	qtap_occupancy_flush(&occupancy, 10);
	refuse_memory = 0;
	EXPECT_EQUAL(occupancy.histogram[0], 7);
	EXPECT_EQUAL(occupancy.histogram[QTAP_FIRST_BINS - 1], 3);
	free(occupancy.histogram);
}

static void a_bound_does_not_cut_samples(void)
{
	static const u64 bounds_ns[] = { 0, 15, 40 };
	struct qtap_occupancy occupancy;

	samples = bounds_seen = 0;
	qtap_occupancy_init(&occupancy, (struct qtap_occupancy_params) {
		.end_ns = U64_MAX, .interval_ns = 10, .bin_bytes = 1000,
		.bounds = 3, .bounds_ns = bounds_ns }, 0, 0);
	qtap_occupancy_advance(&occupancy, 15);
	occupancy.packets = 3;
	qtap_occupancy_advance(&occupancy, 38);
	occupancy.packets = 0;
	qtap_occupancy_flush(&occupancy, 50);
	EXPECT_EQUAL(bounds_seen, 3);
	EXPECT_EQUAL(between[1].max_packets, 0);
	EXPECT_EQUAL(between[2].begin_ns, 15);
	EXPECT_EQUAL(between[2].max_packets, 3);
	EXPECT_EQUAL(between[2].packet_ns, 3 * 23);
	EXPECT_EQUAL(samples, 5);
	EXPECT_EQUAL(seen[1].open.packet_ns, 3 * 5);
	free(occupancy.histogram);
}

int main(void)
{
	static const u64 intervals[] = { 0, 1, 7, 100, 3000 };
	static const u64 bounds_ns[] = { 300, 301, 1000, 1234, 1999, 5000 };
	size_t i;
	int round;

	for (i = 0; i < sizeof(intervals) / sizeof(*intervals); i++) {
		for (round = 0; round < 20; round++) {
			struct qtap_occupancy_params params = {
				.begin_ns = round % 2 ? 0 : 300,
				.end_ns = round % 3 ? U64_MAX : 1234,
				.interval_ns = intervals[i],
				.bin_bytes = 1514,
				.bounds = round % 4 ? sizeof(bounds_ns) / sizeof(*bounds_ns) : 0,
				.bounds_ns = bounds_ns,
			};

			params.grid_ns = round % 5 ? params.begin_ns : 0;
			against_brute_force(params, 1 + 10 * (round % 4));
		}
	}
	instantaneous_states_do_not_count();
	intervals_without_a_change_are_one_record();
	a_change_at_an_edge_belongs_to_the_next_interval();
	starts_with_queued_packets();
	histogram_has_an_open_end();
	a_bound_does_not_cut_samples();
	return PASS();
}
