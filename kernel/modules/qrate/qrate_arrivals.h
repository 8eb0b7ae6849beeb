/* SPDX-License-Identifier: GPL-2.0-only */
/* State of a receiver: which packets and which bytes were received. */
#ifndef _QRATE_ARRIVALS_H
#define _QRATE_ARRIVALS_H

#include <qbed/types.h>

/* The largest packet number received and a bitmap of the 64 before it. */
struct qrate_window {
	u64 last;
	u64 bitmap;		/* bit i: packet last - 1 - i was received */
	bool any;
};

/* Records packet @number. Returns its bitmap: bit i: packet @number - 1 - i was received. */
static inline u64 qrate_window_add(struct qrate_window *window, u64 number)
{
	u64 back;

	if (!window->any || number > window->last) {
		u64 ahead = number - window->last;

		if (!window->any || ahead > 64)
			window->bitmap = 0;
		else
			window->bitmap = (ahead < 64 ? window->bitmap << ahead : 0) |
					  1ull << (ahead - 1);
		window->any = true;
		window->last = number;
		return window->bitmap;
	}
	back = window->last - number;
	if (back && back <= 64)
		window->bitmap |= 1ull << (back - 1);
	return back < 64 ? window->bitmap >> back : 0;
}

struct qrate_interval {
	u64 begin;
	u64 end;
};

/* The received bytes as disjoint, non-adjacent intervals in ascending order. */
struct qrate_coverage {
	struct qrate_interval *intervals;
	u32 capacity;
	u32 used;
	u64 bytes;		/* sum of their lengths */
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

/*
 * Adds the bytes from @begin up to but without @end. Returns the number of new
 * bytes. There must be space for one more interval.
 */
static inline u64 qrate_coverage_add(struct qrate_coverage *coverage, u64 begin, u64 end)
{
	u32 first = qrate_coverage_find(coverage, begin), last = first;
	struct qrate_interval *into = &coverage->intervals[first];
	u64 before = 0, added;

	while (last < coverage->used && coverage->intervals[last].begin <= end) {
		before += coverage->intervals[last].end - coverage->intervals[last].begin;
		last++;
	}
	if (last > first) {
		if (into->begin < begin)
			begin = into->begin;
		if (coverage->intervals[last - 1].end > end)
			end = coverage->intervals[last - 1].end;
	}
	/* one interval replaces those from first up to but without last */
	if (last != first + 1)
		memmove(into + 1, &coverage->intervals[last],
			(coverage->used - last) * sizeof(*into));
	coverage->used = coverage->used + 1 - (last - first);
	*into = (struct qrate_interval) { begin, end };
	added = end - begin - before;
	coverage->bytes += added;
	return added;
}

#endif /* _QRATE_ARRIVALS_H */
