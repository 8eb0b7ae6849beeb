// SPDX-License-Identifier: GPL-2.0-only
/* Bins, classes and quantiles of sojourn times, compared with a list of all values. */
#include <string.h>

#include "unit.h"
#include "qtap_sojourn.h"

#define LONGEST_NS ((1ull << QTAP_SOJOURN_NS_BITS) - 1)

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

static void release(struct qtap_sojourn *sojourn)
{
	u32 i;

	for (i = 0; i < sojourn->classes; i++) {
		free(sojourn->class[i].histogram.packets);
		free(sojourn->class[i].open_histogram.packets);
	}
}

static void bins_join_and_are_narrow(void)
{
	u32 bin;

	EXPECT_EQUAL(qtap_sojourn_bin_begin_ns(0), 0);
	for (bin = 0; bin < QTAP_SOJOURN_BINS; bin++) {
		u64 from_ns = qtap_sojourn_bin_begin_ns(bin), width_ns = qtap_sojourn_bin_begin_ns(bin + 1) - from_ns;

		EXPECT_EQUAL(qtap_sojourn_bin(from_ns), bin);
		EXPECT_EQUAL(qtap_sojourn_bin(from_ns + width_ns - 1), bin);
		if (from_ns < QTAP_SOJOURN_EXACT_NS)
			EXPECT_EQUAL(width_ns, 1);
		else
			EXPECT(width_ns * 64 <= from_ns);
	}
	EXPECT_EQUAL(qtap_sojourn_bin(LONGEST_NS), QTAP_SOJOURN_BINS - 1);
}

static int by_size(const void *one, const void *other)
{
	u64 a = *(const u64 *)one, b = *(const u64 *)other;

	return (a > b) - (a < b);
}

/* Quantile of @count sorted values. */
static u64 quantile(const u64 *waits, u64 count, u32 percent)
{
	return waits[(count * percent + 99) / 100 - 1];
}

static void expect_quantile(const struct qtap_sojourn_class *class, const u64 *waits, u64 count, u32 percent)
{
	u64 actual = qtap_sojourn_quantile_ns(class, percent), exact = quantile(waits, count, percent);

	EXPECT(actual >= exact);
	EXPECT(actual - exact <= exact / 64);
}

static void against_a_list(u32 bits)
{
	struct qtap_sojourn sojourn = { .sampled = true };
	static u64 waits[3][1000];
	u64 counts[3] = {}, sums[3] = {}, total = 0;
	int interval, i;
	u32 class;

	for (interval = 0; interval < 5; interval++) {
		memset(counts, 0, sizeof(counts));
		memset(sums, 0, sizeof(sums));
		for (i = random_below(1000); i >= 0; i--) {
			u64 ns = (((u64)random_below(1u << 31) << 31) | random_below(1u << 31)) >> (62 - bits);

			class = random_below(3);
			waits[class][counts[class]++] = ns;
			sums[class] += ns;
			total++;
			qtap_sojourn_add(&sojourn, 10 * class, ns);
		}
		for (i = 0; i < (int)sojourn.classes; i++) {
			struct qtap_sojourn_class *found = &sojourn.class[i];

			class = found->tos / 10;
			EXPECT_EQUAL(found->open.packets, counts[class]);
			EXPECT_EQUAL(found->open.sum_ns, sums[class]);
			if (counts[class]) {
				qsort(waits[class], counts[class], sizeof(u64), by_size);
				EXPECT_EQUAL(found->open.max_ns, waits[class][counts[class] - 1]);
				EXPECT(found->bound_max_ns >= found->open.max_ns);
				expect_quantile(found, waits[class], counts[class], 50);
				expect_quantile(found, waits[class], counts[class], 99);
			}
			qtap_sojourn_open_interval(found);
		}
	}
	for (i = 0; i < (int)sojourn.classes; i++) {
		const struct qtap_sojourn_bins *histogram = &sojourn.class[i].histogram;
		u64 packets = 0;
		u32 bin;

		for (bin = histogram->low; bin < histogram->end; bin++)
			packets += histogram->packets[bin];
		EXPECT_EQUAL(packets, sojourn.class[i].total.packets);
		EXPECT(histogram->packets[histogram->low] > 0);
		EXPECT(histogram->packets[histogram->end - 1] > 0);
		total -= packets;
	}
	EXPECT_EQUAL(total, 0);
	release(&sojourn);
}

static void further_classes_share_the_last(void)
{
	struct qtap_sojourn sojourn = {};
	u32 tos;

	for (tos = 0; tos < 64; tos++)
		qtap_sojourn_add(&sojourn, tos, tos);
	qtap_sojourn_add(&sojourn, 3, 1000);
	EXPECT_EQUAL(sojourn.classes, QTAP_SOJOURN_CLASSES);
	EXPECT_EQUAL(sojourn.class[3].tos, 3);
	EXPECT_EQUAL(sojourn.class[3].total.packets, 2);
	EXPECT_EQUAL(sojourn.class[3].total.max_ns, 1000);
	EXPECT_EQUAL(sojourn.class[15].tos, QTAP_SOJOURN_OTHERS);
	EXPECT_EQUAL(sojourn.class[15].total.packets, 64 - 15);
	EXPECT_EQUAL(sojourn.class[15].total.max_ns, 63);
	EXPECT_EQUAL(sojourn.class[3].open.packets, 0);	/* intervals are disabled */
	release(&sojourn);
}

static void sums_are_kept_without_memory(void)
{
	struct qtap_sojourn sojourn = { .sampled = true };

	qtap_sojourn_add(&sojourn, 0, 100);
	refuse_memory = 1;
	qtap_sojourn_add(&sojourn, 0, LONGEST_NS);
	refuse_memory = 0;
	EXPECT_EQUAL(sojourn.class[0].total.packets, 2);
	EXPECT_EQUAL(sojourn.class[0].total.sum_ns, LONGEST_NS + 100);
	EXPECT_EQUAL(sojourn.class[0].histogram.end, 101);
	EXPECT_EQUAL(qtap_sojourn_quantile_ns(&sojourn.class[0], 50), 100);
	EXPECT_EQUAL(qtap_sojourn_quantile_ns(&sojourn.class[0], 99), LONGEST_NS);
	release(&sojourn);
}

int main(void)
{
	u32 bits;

	bins_join_and_are_narrow();
	for (bits = 1; bits <= QTAP_SOJOURN_NS_BITS; bits++)
		against_a_list(bits);
	further_classes_share_the_last();
	sums_are_kept_without_memory();
	return PASS();
}
