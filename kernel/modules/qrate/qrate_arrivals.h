/* SPDX-License-Identifier: GPL-2.0-only */
/* What a receiver knows of a flow: which packets, and which bytes, have arrived. */
#ifndef _QRATE_ARRIVALS_H
#define _QRATE_ARRIVALS_H

#include <qbed/types.h>

/* The last packet number and the 64 before it */
struct qrate_numbers {
	u64 last;
	u64 window;		/* bit i: last - 1 - i has arrived */
	bool any;
};

/* Returns the window of @number: bit i: @number - 1 - i has arrived. */
static inline u64 qrate_numbers_add(struct qrate_numbers *numbers, u64 number)
{
	u64 back;

	if (!numbers->any || number > numbers->last) {
		u64 ahead = number - numbers->last;

		if (!numbers->any || ahead > 64)
			numbers->window = 0;
		else
			numbers->window = (ahead < 64 ? numbers->window << ahead : 0) |
					  1ull << (ahead - 1);
		numbers->any = true;
		numbers->last = number;
		return numbers->window;
	}
	back = numbers->last - number;
	if (back && back <= 64)
		numbers->window |= 1ull << (back - 1);
	return back < 64 ? numbers->window >> back : 0;
}

struct qrate_interval {
	u64 begin;
	u64 end;
};

/* The bytes that have arrived: intervals that do not touch each other, in order */
struct qrate_coverage {
	struct qrate_interval *intervals;
	u32 capacity;
	u32 used;
	u64 bytes;		/* in all of them */
};

/* The first interval that ends at @offset or later. */
static inline u32 qrate_coverage_find(const struct qrate_coverage *coverage, u64 offset)
{
	u32 low = 0, high = coverage->used;

	while (low < high) {
		u32 middle = low + (high - low) / 2;

		if (coverage->intervals[middle].end < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static inline bool qrate_coverage_is_full(const struct qrate_coverage *coverage)
{
	return coverage->used == coverage->capacity;
}

/* Bytes from @begin to before @end arrive. Returns how many are new. There is room for one more interval. */
static inline u64 qrate_coverage_add(struct qrate_coverage *coverage, u64 begin, u64 end)
{
	u32 at = qrate_coverage_find(coverage, begin), beyond = at;
	struct qrate_interval *into = &coverage->intervals[at];
	u64 before = 0, added;

	while (beyond < coverage->used && coverage->intervals[beyond].begin <= end) {
		before += coverage->intervals[beyond].end - coverage->intervals[beyond].begin;
		beyond++;
	}
	if (beyond > at) {
		if (into->begin < begin)
			begin = into->begin;
		if (coverage->intervals[beyond - 1].end > end)
			end = coverage->intervals[beyond - 1].end;
	}
	/* one takes the place of those from at to beyond */
	if (beyond != at + 1)
		memmove(into + 1, &coverage->intervals[beyond],
			(coverage->used - beyond) * sizeof(*into));
	coverage->used = coverage->used + 1 - (beyond - at);
	*into = (struct qrate_interval) { begin, end };
	added = end - begin - before;
	coverage->bytes += added;
	return added;
}

#endif /* _QRATE_ARRIVALS_H */
