/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sojourn times by class, that is, by the DSCP and ECN fields at enqueue.
 * Counts, sums and maxima are exact. Histogram bins are 1 ns wide below
 * QTAP_SOJOURN_EXACT_NS; above it their width is at most 1/64 of the values.
 */
#ifndef _QTAP_SOJOURN_H
#define _QTAP_SOJOURN_H

#include <qbed/types.h>

#define QTAP_SOJOURN_BITS 6			/* 64 bins per power of two */
#define QTAP_SOJOURN_EXACT_NS (2u << QTAP_SOJOURN_BITS)
#define QTAP_SOJOURN_NS_BITS 40			/* longer times wrap modulo 18 minutes */
#define QTAP_SOJOURN_BINS ((QTAP_SOJOURN_NS_BITS - QTAP_SOJOURN_BITS + 1u) << QTAP_SOJOURN_BITS)
#define QTAP_SOJOURN_FIRST_BINS 128u
#define QTAP_SOJOURN_CLASSES 16u
#define QTAP_SOJOURN_OTHERS 256u		/* the last class, for all further values */

/* Dequeued packets: since START, or over an interval. */
struct qtap_sojourn_sums {
	u64 packets;
	u64 sum_ns;
	u64 max_ns;
};

/* Histogram of sojourn times: number of packets per bin. */
struct qtap_sojourn_bins {
	u64 *packets;
	u32 bins;		/* allocated */
	u32 low, end;		/* in use: [low, end) */
};

struct qtap_sojourn_class {
	u32 tos;		/* DSCP << 2 | ECN, or QTAP_SOJOURN_OTHERS */
	u64 bound_max_ns;	/* since the last bound */
	struct qtap_sojourn_sums total;
	struct qtap_sojourn_sums open;	/* the open interval */
	struct qtap_sojourn_bins histogram;
	struct qtap_sojourn_bins open_histogram;
};

struct qtap_sojourn {
	bool sampled;		/* intervals are enabled */
	u32 classes;		/* in use, in the order of their first packet */
	struct qtap_sojourn_class class[QTAP_SOJOURN_CLASSES];
};

/* Supplied by records.c: as realloc(), new memory zeroed; NULL if none. */
u64 *qtap_histogram_resize(u64 *histogram, u32 old_bins, u32 new_bins);

static inline u32 qtap_sojourn_bin(u64 ns)
{
	u32 shift;

	if (ns < QTAP_SOJOURN_EXACT_NS)
		return ns;
	shift = 63 - __builtin_clzll(ns) - QTAP_SOJOURN_BITS;
	return (shift << QTAP_SOJOURN_BITS) + (ns >> shift);
}

/* Lower bound of a bin. */
static inline u64 qtap_sojourn_bin_begin_ns(u32 bin)
{
	u32 shift;

	if (bin < QTAP_SOJOURN_EXACT_NS)
		return bin;
	shift = (bin >> QTAP_SOJOURN_BITS) - 1;
	return (u64)(bin - (shift << QTAP_SOJOURN_BITS)) << shift;
}

static inline void qtap_sojourn_count(struct qtap_sojourn_bins *histogram, u32 bin)
{
	if (unlikely(bin >= histogram->bins)) {
		u32 bins = histogram->bins ? histogram->bins : QTAP_SOJOURN_FIRST_BINS;
		u64 *grown;

		while (bins <= bin)
			bins *= 2;
		if (bins > QTAP_SOJOURN_BINS)
			bins = QTAP_SOJOURN_BINS;
		grown = qtap_histogram_resize(histogram->packets, histogram->bins, bins);
		if (!grown)
			return;	/* no memory: only the sums count the packet */
		histogram->packets = grown;
		histogram->bins = bins;
	}
	histogram->packets[bin]++;
	if (histogram->low == histogram->end)
		histogram->low = histogram->end = bin;
	if (bin < histogram->low)
		histogram->low = bin;
	if (bin >= histogram->end)
		histogram->end = bin + 1;
}

static inline void qtap_sojourn_sum(struct qtap_sojourn_sums *sums, u64 ns)
{
	sums->packets++;
	sums->sum_ns += ns;
	if (ns > sums->max_ns)
		sums->max_ns = ns;
}

static inline struct qtap_sojourn_class *qtap_sojourn_class(struct qtap_sojourn *sojourn, u32 tos)
{
	struct qtap_sojourn_class *class;
	u32 i;

	for (i = 0; i < sojourn->classes; i++) {
		class = &sojourn->class[i];
		if (class->tos == tos || class->tos == QTAP_SOJOURN_OTHERS)
			return class;
	}
	class = &sojourn->class[sojourn->classes++];
	class->tos = sojourn->classes == QTAP_SOJOURN_CLASSES ? QTAP_SOJOURN_OTHERS : tos;
	return class;
}

/*
 * Records a packet of class @tos that is dequeued after @ns, less than
 * 2^QTAP_SOJOURN_NS_BITS.
 */
static inline void qtap_sojourn_add(struct qtap_sojourn *sojourn, u32 tos, u64 ns)
{
	struct qtap_sojourn_class *class = qtap_sojourn_class(sojourn, tos);
	u32 bin = qtap_sojourn_bin(ns);

	qtap_sojourn_sum(&class->total, ns);
	if (ns > class->bound_max_ns)
		class->bound_max_ns = ns;
	qtap_sojourn_count(&class->histogram, bin);
	if (sojourn->sampled) {
		qtap_sojourn_sum(&class->open, ns);
		qtap_sojourn_count(&class->open_histogram, bin);
	}
}

/*
 * Quantile of the open interval's sojourn times: the upper bound of the bin, at
 * most 1/64 too large.
 */
static inline u64 qtap_sojourn_quantile_ns(const struct qtap_sojourn_class *class, u32 percent)
{
	const struct qtap_sojourn_bins *histogram = &class->open_histogram;
	u64 rank = (class->open.packets * percent + 99) / 100, count = 0;
	u64 max_ns = class->open.max_ns;
	u32 bin;

	for (bin = histogram->low; bin < histogram->end; bin++) {
		count += histogram->packets[bin];
		if (count >= rank) {
			u64 last_ns = qtap_sojourn_bin_begin_ns(bin + 1) - 1;

			return last_ns < max_ns ? last_ns : max_ns;
		}
	}
	return max_ns;
}

/* Resets the counters of the interval: the next one begins. */
static inline void qtap_sojourn_open_interval(struct qtap_sojourn_class *class)
{
	struct qtap_sojourn_bins *histogram = &class->open_histogram;
	u32 bin;

	for (bin = histogram->low; bin < histogram->end; bin++)
		histogram->packets[bin] = 0;
	histogram->low = histogram->end = 0;
	class->open = (struct qtap_sojourn_sums) {};
}

#endif /* _QTAP_SOJOURN_H */
