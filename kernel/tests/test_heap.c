// SPDX-License-Identifier: GPL-2.0-only
/* The heap of deadlines against a sorted array. */
#include <string.h>

#include "qlink_heap.h"
#include "unit.h"

#define MOST 5000

static struct qlink_deadline sorted[MOST];
static u32 sorted_used;

static int compare(const void *a, const void *b)
{
	if (qlink_deadline_before(a, b))
		return -1;
	return qlink_deadline_before(b, a);
}

static void sorted_push(struct qlink_deadline entry)
{
	sorted[sorted_used++] = entry;
	qsort(sorted, sorted_used, sizeof(*sorted), compare);
}

static void sorted_pop(void)
{
	memmove(sorted, sorted + 1, --sorted_used * sizeof(*sorted));
}

static struct qlink_deadline any(u64 *sequence, u64 times)
{
	return (struct qlink_deadline) {
		.time_ns = random_below(times),
		.sequence = (*sequence)++,
		.owner = 2 * random_below(8) + random_below(2),
	};
}

static void expect_same(const struct qlink_heap *heap)
{
	EXPECT_EQUAL(heap->used, sorted_used);
	if (!sorted_used) {
		EXPECT(!qlink_heap_top(heap));
		return;
	}
	EXPECT_EQUAL(qlink_heap_top(heap)->time_ns, sorted[0].time_ns);
	EXPECT_EQUAL(qlink_heap_top(heap)->sequence, sorted[0].sequence);
	EXPECT_EQUAL(qlink_heap_top(heap)->owner, sorted[0].owner);
}

/* Few distinct times: equal ones must leave in the order of their sequence. */
static void random_operations(u32 most, u64 times)
{
	struct qlink_deadline *entries = calloc(most, sizeof(*entries));
	struct qlink_heap heap = { .entries = entries, .capacity = most };
	struct qlink_deadline entry;
	u64 sequence = 0;
	int i;

	sorted_used = 0;
	for (i = 0; i < 20000; i++) {
		entry = any(&sequence, times);
		switch (random_below(heap.used < most ? 3 : 2)) {
		case 0:
			if (heap.used) {
				qlink_heap_pop(&heap);
				sorted_pop();
			}
			break;
		case 1:
			if (heap.used) {
				qlink_heap_replace_top(&heap, entry);
				sorted_pop();
				sorted_push(entry);
			}
			break;
		default:
			qlink_heap_push(&heap, entry);
			sorted_push(entry);
		}
		expect_same(&heap);
		if (i % 1000 == 999) {
			unsigned long owner = 2 * random_below(8);
			u32 kept = 0, j;

			qlink_heap_remove(&heap, owner, ~1ul);
			for (j = 0; j < sorted_used; j++) {
				if ((sorted[j].owner & ~1ul) != owner)
					sorted[kept++] = sorted[j];
			}
			sorted_used = kept;
			expect_same(&heap);
		}
	}
	while (heap.used) {
		qlink_heap_pop(&heap);
		sorted_pop();
		expect_same(&heap);
	}
	free(entries);
}

static void same_instant_runs_in_order_of_creation(void)
{
	struct qlink_deadline *entries = calloc(100, sizeof(*entries));
	struct qlink_heap heap = { .entries = entries, .capacity = 100 };
	u64 i;

	for (i = 0; i < 100; i++)
		qlink_heap_push(&heap, (struct qlink_deadline) { 7, i, i });
	for (i = 0; i < 100; i++) {
		EXPECT_EQUAL(qlink_heap_top(&heap)->owner, i);
		qlink_heap_pop(&heap);
	}
	free(entries);
}

int main(void)
{
	static const u32 sizes[] = { 1, 2, 5, 17, 64, 300 };
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		random_operations(sizes[i], 10);
		random_operations(sizes[i], 1ull << 60);
	}
	same_instant_runs_in_order_of_creation();
	return PASS();
}
