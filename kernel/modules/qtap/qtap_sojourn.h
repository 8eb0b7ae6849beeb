/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How long packets waited in a queue, by the DSCP and ECN fields with which they
 * came (their class): counts, sums and maxima that are exact, and histograms
 * whose bins are 1 ns wide below QTAP_SOJOURN_EXACT_NS, and above it at most a
 * 64th of what is in them.
 */
#ifndef _QTAP_SOJOURN_H
#define _QTAP_SOJOURN_H

#include <qbed/types.h>

#define QTAP_SOJOURN_BITS 6			/* 64 bins to a power of two */
#define QTAP_SOJOURN_EXACT_NS (2u << QTAP_SOJOURN_BITS)
#define QTAP_SOJOURN_NS_BITS 40			/* longer waits are told modulo 18 minutes */
#define QTAP_SOJOURN_BINS ((QTAP_SOJOURN_NS_BITS - QTAP_SOJOURN_BITS + 1u) << QTAP_SOJOURN_BITS)
#define QTAP_SOJOURN_FIRST_BINS 128u
#define QTAP_SOJOURN_CLASSES 16u
#define QTAP_SOJOURN_OTHERS 256u		/* the last class: all that have no room of their own */

/* Of the packets that left: since START, or over an interval. */
struct qtap_sojourn_sums {
	u64 packets;
	u64 sum_ns;
	u64 max_ns;
};

/* How many packets waited how long. */
struct qtap_sojourn_bins {
	u64 *packets;
	u32 bins;		/* allocated */
	u32 low, end;		/* in use: [low, end) */
};

struct qtap_sojourn_class {
	u32 tos;		/* DSCP << 2 | ECN, or QTAP_SOJOURN_OTHERS */
	u64 bound_max_ns;	/* since the last bound */
	struct qtap_sojourn_sums total;
	struct qtap_sojourn_sums open;	/* of the open interval */
	struct qtap_sojourn_bins histogram;
	struct qtap_sojourn_bins open_histogram;
};

struct qtap_sojourn {
	bool sampled;		/* whether there are intervals */
	u32 classes;		/* in use, in the order in which they were seen first */
	struct qtap_sojourn_class class[QTAP_SOJOURN_CLASSES];
};

/* Supplied by the includer: as realloc(), new memory zeroed; NULL if none. */
static u64 *qtap_histogram_resize(u64 *histogram, u32 old_bins, u32 new_bins);

static inline u32 qtap_sojourn_bin(u64 ns)
{
	u32 shift;

	if (ns < QTAP_SOJOURN_EXACT_NS)
		return ns;
	shift = 63 - __builtin_clzll(ns) - QTAP_SOJOURN_BITS;
	return (shift << QTAP_SOJOURN_BITS) + (ns >> shift);
}

/* What is the least in a bin. */
static inline u64 qtap_sojourn_from_ns(u32 bin)
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
			return;	/* the sums know of the packet */
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

/* A packet that came as @tos leaves after @ns, less than 2^QTAP_SOJOURN_NS_BITS. */
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
 * What @percent of the open interval's packets waited at most: the most that is
 * in the packet's bin, so at most a 64th too long.
 */
static inline u64 qtap_sojourn_quantile_ns(const struct qtap_sojourn_class *class, u32 percent)
{
	const struct qtap_sojourn_bins *histogram = &class->open_histogram;
	u64 wanted = (class->open.packets * percent + 99) / 100, seen = 0;
	u64 most_ns = class->open.max_ns;
	u32 bin;

	for (bin = histogram->low; bin < histogram->end; bin++) {
		seen += histogram->packets[bin];
		if (seen >= wanted) {
			u64 last_ns = qtap_sojourn_from_ns(bin + 1) - 1;

			return last_ns < most_ns ? last_ns : most_ns;
		}
	}
	return most_ns;
}

/* The next interval begins. */
static inline void qtap_sojourn_open(struct qtap_sojourn_class *class)
{
	struct qtap_sojourn_bins *histogram = &class->open_histogram;
	u32 bin;

	for (bin = histogram->low; bin < histogram->end; bin++)
		histogram->packets[bin] = 0;
	histogram->low = histogram->end = 0;
	class->open = (struct qtap_sojourn_sums) {};
}

#endif /* _QTAP_SOJOURN_H */
