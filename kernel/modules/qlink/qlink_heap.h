/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A min-heap of deadlines, ordered by (time, sequence).
 *
 * The sequence number is assigned when a deadline is created, so deadlines of
 * the same nanosecond run in the order of their creation, in every run.
 *
 * A node has four children: half the levels of a binary heap, and the children
 * of a node share two cache lines, which matters with a thousand links.
 */
#ifndef _QLINK_HEAP_H
#define _QLINK_HEAP_H

#include <qbed/types.h>

#define QLINK_HEAP_ARITY 4u

struct qlink_deadline {
	u64 time_ns;
	u64 sequence;
	unsigned long owner;	/* opaque to the heap */
};

struct qlink_heap {
	struct qlink_deadline *entries;
	u32 used;
	u32 capacity;		/* of entries[]; the caller keeps used below it */
};

/* A single integer, so that comparisons need no unpredictable branch. */
static inline unsigned __int128 qlink_deadline_key(const struct qlink_deadline *deadline)
{
	return (unsigned __int128)deadline->time_ns << 64 | deadline->sequence;
}

static inline bool qlink_deadline_before(const struct qlink_deadline *a,
					 const struct qlink_deadline *b)
{
	return qlink_deadline_key(a) < qlink_deadline_key(b);
}

static inline const struct qlink_deadline *
qlink_heap_top(const struct qlink_heap *heap)
{
	return heap->used ? &heap->entries[0] : NULL;
}

static inline void qlink_heap_sift_up(struct qlink_heap *heap, u32 hole,
				      struct qlink_deadline entry)
{
	while (hole) {
		u32 parent = (hole - 1) / QLINK_HEAP_ARITY;

		if (!qlink_deadline_before(&entry, &heap->entries[parent]))
			break;
		heap->entries[hole] = heap->entries[parent];
		hole = parent;
	}
	heap->entries[hole] = entry;
}

/* Prefetches the children of all candidates of a level, which start at @from. */
static inline void qlink_heap_prefetch(const struct qlink_heap *heap, u32 from)
{
	u32 to = from + QLINK_HEAP_ARITY * QLINK_HEAP_ARITY;
	const char *line;

	if (to > heap->used)
		return;
	for (line = (const char *)&heap->entries[from];
	     line < (const char *)&heap->entries[to]; line += 64)
		__builtin_prefetch(line);
}

static inline void qlink_heap_sift_down(struct qlink_heap *heap, u32 hole,
					struct qlink_deadline entry)
{
	for (;;) {
		u32 child = hole * QLINK_HEAP_ARITY + 1;
		u32 last = child + QLINK_HEAP_ARITY;
		u32 first = child;

		if (child >= heap->used)
			break;
		if (last > heap->used)
			last = heap->used;
		else
			qlink_heap_prefetch(heap, child * QLINK_HEAP_ARITY + 1);
		while (++child < last)
			first = qlink_deadline_before(&heap->entries[child],
						      &heap->entries[first]) ?
				child : first;
		if (!qlink_deadline_before(&heap->entries[first], &entry))
			break;
		heap->entries[hole] = heap->entries[first];
		hole = first;
	}
	heap->entries[hole] = entry;
}

static inline void qlink_heap_push(struct qlink_heap *heap,
				   struct qlink_deadline entry)
{
	qlink_heap_sift_up(heap, heap->used++, entry);
}

static inline void qlink_heap_pop(struct qlink_heap *heap)
{
	struct qlink_deadline entry = heap->entries[--heap->used];

	if (heap->used)
		qlink_heap_sift_down(heap, 0, entry);
}

/* Removes all deadlines of @owner (compared under @mask). O(n): teardown only. */
static inline void qlink_heap_remove(struct qlink_heap *heap,
				     unsigned long owner, unsigned long mask)
{
	u32 kept = 0;
	u32 i;

	for (i = 0; i < heap->used; i++) {
		if ((heap->entries[i].owner & mask) != owner)
			heap->entries[kept++] = heap->entries[i];
	}
	heap->used = kept;
	for (i = kept / QLINK_HEAP_ARITY + 1; i-- > 0;) {
		if (i < kept)
			qlink_heap_sift_down(heap, i, heap->entries[i]);
	}
}

#endif /* _QLINK_HEAP_H */
