/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A min-heap of deadlines, ordered by (time, sequence).
 *
 * The sequence number is assigned when a deadline is created, so deadlines of
 * the same nanosecond run in the order of their creation, in every run.
 *
 * A deadline takes 16 bytes here. A node has four children: half the levels of a
 * binary heap, and the children of a node are one cache line, which matters with
 * a thousand links.
 */
#ifndef _QLINK_HEAP_H
#define _QLINK_HEAP_H

#include <qbed/prefetch.h>
#include <qbed/types.h>

#define QLINK_HEAP_ARITY 4u
#define QLINK_HEAP_LAST_NS ((1ull << 56) - 1)	/* after base_ns; later deadlines are at this time */

struct qlink_deadline {
	u64 time_ns;
	u64 sequence;
	unsigned long owner;	/* opaque to the heap, but for qlink_heap_holds() */
};

/*
 * An entry is, from its highest bit, 56 bits of time since base_ns (two years),
 * 40 of the sequence (10^12 deadlines) and 32 of the owner: a single integer, so
 * that comparisons need no unpredictable branch.
 */
struct qlink_heap {
	unsigned __int128 *entries;
	u32 used;
	u32 capacity;		/* of entries[]; the caller keeps used below it */
	u64 base_ns;		/* no deadline is before */
};

static inline bool qlink_deadline_before(const struct qlink_deadline *a,
					 const struct qlink_deadline *b)
{
	return a->time_ns < b->time_ns || (a->time_ns == b->time_ns && a->sequence < b->sequence);
}

/* True if the heap can hold deadlines of @owner: an address of a cache line, and the lowest bit. */
static inline bool qlink_heap_holds(unsigned long owner)
{
	return !(owner & (QBED_LINE - 2)) && owner >> 37 == 0;
}

static inline unsigned __int128 qlink_heap_pack(const struct qlink_heap *heap,
						const struct qlink_deadline *deadline)
{
	u64 since_ns = deadline->time_ns - heap->base_ns;
	u64 owner = deadline->owner >> 5 | (deadline->owner & 1);

	if (unlikely(since_ns > QLINK_HEAP_LAST_NS))
		since_ns = QLINK_HEAP_LAST_NS;
	return (unsigned __int128)(since_ns << 8 | deadline->sequence >> 32) << 64 |
	       (deadline->sequence << 32 | owner);
}

static inline struct qlink_deadline qlink_heap_unpack(const struct qlink_heap *heap,
						      unsigned __int128 entry)
{
	u64 high = entry >> 64, low = entry;

	return (struct qlink_deadline) {
		.time_ns = heap->base_ns + (high >> 8),
		.sequence = (high & 0xff) << 32 | low >> 32,
		.owner = (low & 0xfffffffe) << 5 | (low & 1),
	};
}

/* Bytes of memory for @capacity entries, to be passed to qlink_heap_move(). */
static inline size_t qlink_heap_bytes(u32 capacity)
{
	return capacity * sizeof(unsigned __int128) + 2 * QBED_LINE;
}

/* Moves the entries to @memory. The root is the last entry of a line. */
static inline void qlink_heap_move(struct qlink_heap *heap, void *memory, u32 capacity)
{
	unsigned long line = ((unsigned long)memory + QBED_LINE - 1) / QBED_LINE * QBED_LINE;
	unsigned __int128 *entries = (unsigned __int128 *)line + QLINK_HEAP_ARITY - 1;
	u32 i;

	for (i = 0; i < heap->used; i++)
		entries[i] = heap->entries[i];
	heap->entries = entries;
	heap->capacity = capacity;
}

static inline void qlink_heap_sift_up(struct qlink_heap *heap, u32 hole, unsigned __int128 entry)
{
	while (hole) {
		u32 parent = (hole - 1) / QLINK_HEAP_ARITY;

		if (entry >= heap->entries[parent])
			break;
		heap->entries[hole] = heap->entries[parent];
		hole = parent;
	}
	heap->entries[hole] = entry;
}

/* Prefetches the children of all candidates of a level, which start at @from. */
static inline void qlink_heap_prefetch(const struct qlink_heap *heap, u32 from)
{
	u32 count = QLINK_HEAP_ARITY * QLINK_HEAP_ARITY;

	if (from + count <= heap->used)
		qbed_prefetch_range(&heap->entries[from], count * sizeof(*heap->entries));
}

static inline void qlink_heap_sift_down(struct qlink_heap *heap, u32 hole, unsigned __int128 entry)
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
			first = heap->entries[child] < heap->entries[first] ? child : first;
		if (heap->entries[first] >= entry)
			break;
		heap->entries[hole] = heap->entries[first];
		hole = first;
	}
	heap->entries[hole] = entry;
}

static inline void qlink_heap_push(struct qlink_heap *heap, unsigned __int128 entry)
{
	qlink_heap_sift_up(heap, heap->used++, entry);
}

static inline void qlink_heap_pop(struct qlink_heap *heap)
{
	unsigned __int128 entry = heap->entries[--heap->used];

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
		if ((qlink_heap_unpack(heap, heap->entries[i]).owner & mask) != owner)
			heap->entries[kept++] = heap->entries[i];
	}
	heap->used = kept;
	for (i = kept / QLINK_HEAP_ARITY + 1; i-- > 0;) {
		if (i < kept)
			qlink_heap_sift_down(heap, i, heap->entries[i]);
	}
}

#endif /* _QLINK_HEAP_H */
