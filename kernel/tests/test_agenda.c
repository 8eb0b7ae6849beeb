// SPDX-License-Identifier: GPL-2.0-only
/* The agenda of deadlines, compared with a sorted array. */
#include <string.h>

#include "qlink_agenda.h"
#include "unit.h"

#define CAPACITY 5000

static struct qlink_deadline sorted[CAPACITY];
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

/* Addresses of lines, some of them close to the highest that the heap holds. */
static unsigned long random_owner(void)
{
	unsigned long line = random_below(8);

	return QBED_LINE * (line < 6 ? line : (1ul << 31) - line);
}

static struct qlink_deadline random_deadline(u64 *sequence, u64 times)
{
	return (struct qlink_deadline) {
		.time_ns = random_below(times),
		.sequence = (*sequence)++,
		.owner = random_owner() + random_below(2),
	};
}

static void expect_same(struct qlink_agenda *agenda)
{
	u32 place;

	EXPECT_EQUAL(agenda->near_used + agenda->later.used, sorted_used);
	EXPECT(sorted_used < QLINK_NEAR || agenda->near_used);
	for (place = 0; place < agenda->near_used; place++) {
		const struct qlink_deadline *deadline = qlink_agenda_at(agenda, place);

		EXPECT_EQUAL(deadline->time_ns, sorted[place].time_ns);
		EXPECT_EQUAL(deadline->sequence, sorted[place].sequence);
		EXPECT_EQUAL(deadline->owner, sorted[place].owner);
	}
	EXPECT(!qlink_agenda_at(agenda, agenda->near_used));
	EXPECT(!qlink_agenda_top(agenda) == !sorted_used);
}

/* The ring is full unless all deadlines fit into it. */
static void expect_full(const struct qlink_agenda *agenda)
{
	EXPECT(agenda->near_used == QLINK_NEAR || !agenda->later.used);
}

static void remove_owner(struct qlink_agenda *agenda, unsigned long owner)
{
	u32 kept = 0, j;

	qlink_agenda_remove(agenda, owner, ~1ul);
	for (j = 0; j < sorted_used; j++) {
		if ((sorted[j].owner & ~1ul) != owner)
			sorted[kept++] = sorted[j];
	}
	sorted_used = kept;
}

/* Few distinct times: equal ones must leave in the order of their sequence. */
static void random_operations(u32 capacity, u64 times, u64 base_ns, u64 first_sequence)
{
	void *memory = malloc(qlink_heap_bytes(capacity));
	struct qlink_agenda agenda = { .later = { .base_ns = base_ns } };
	struct qlink_deadline entry;
	u64 sequence = first_sequence;
	int i;

	sorted_used = 0;
	qlink_heap_move(&agenda.later, memory, capacity);
	for (i = 0; i < 20000; i++) {
		if (sorted_used == capacity || (sorted_used && !random_below(3))) {
			qlink_agenda_pop(&agenda);
			sorted_pop();
		} else {
			entry = random_deadline(&sequence, times);
			entry.time_ns += base_ns;
			qlink_agenda_push(&agenda, entry);
			sorted_push(entry);
		}
		expect_same(&agenda);
		expect_full(&agenda);
		if (i % 1000 == 999) {
			remove_owner(&agenda, random_owner());
			expect_same(&agenda);
			expect_full(&agenda);
		}
	}
	while (sorted_used) {
		qlink_agenda_pop(&agenda);
		sorted_pop();
		expect_same(&agenda);
	}
	free(memory);
}

static void same_instant_runs_in_order_of_creation(void)
{
	void *memory = malloc(qlink_heap_bytes(100));
	struct qlink_agenda agenda = {};
	u64 i;

	qlink_heap_move(&agenda.later, memory, 100);
	for (i = 0; i < 100; i++)
		qlink_agenda_push(&agenda, (struct qlink_deadline) { 7, i, QBED_LINE * i });
	for (i = 0; i < 100; i++) {
		EXPECT_EQUAL(qlink_agenda_top(&agenda)->owner, QBED_LINE * i);
		qlink_agenda_pop(&agenda);
	}
	EXPECT(!qlink_agenda_top(&agenda));
	free(memory);
}

/* A heap that grows keeps its entries. */
static void moves_to_other_memory(void)
{
	struct qlink_agenda agenda = {};
	void *memory = NULL;
	u64 i;

	for (i = 0; i < 300; i++) {
		if (i == agenda.later.capacity) {
			void *larger = malloc(qlink_heap_bytes(2 * i + 1) + 8);

			/* malloc's addresses are not those of lines. */
			qlink_heap_move(&agenda.later, (char *)larger + 8, 2 * i + 1);
			free(memory);
			memory = larger;
		}
		EXPECT_EQUAL((unsigned long)&agenda.later.entries[1] % QBED_LINE, 0);
		qlink_agenda_push(&agenda, (struct qlink_deadline) { 300 - i, i, QBED_LINE * i });
	}
	for (i = 0; i < 300; i++) {
		EXPECT_EQUAL(qlink_agenda_top(&agenda)->time_ns, i + 1);
		qlink_agenda_pop(&agenda);
	}
	free(memory);
}

static void holds_only_what_it_can_pack(void)
{
	EXPECT(qlink_heap_holds(0));
	EXPECT(qlink_heap_holds((1ul << 37) - QBED_LINE));
	EXPECT(qlink_heap_holds((1ul << 37) - QBED_LINE + 1));
	EXPECT(!qlink_heap_holds(1ul << 37));
	EXPECT(!qlink_heap_holds(32));
	EXPECT(!qlink_heap_holds(2));
}

static void a_later_time_is_the_last(void)
{
	struct qlink_heap heap = { .base_ns = 7 };
	struct qlink_deadline last = { .time_ns = 7 + QLINK_HEAP_LAST_NS, .sequence = 5, .owner = QBED_LINE + 1 };
	struct qlink_deadline later = last;

	EXPECT_EQUAL(qlink_heap_unpack(&heap, qlink_heap_pack(&heap, &last)).time_ns, last.time_ns);
	later.time_ns++;
	EXPECT(qlink_heap_pack(&heap, &later) == qlink_heap_pack(&heap, &last));
	later.time_ns = U64_MAX;
	EXPECT(qlink_heap_pack(&heap, &later) == qlink_heap_pack(&heap, &last));
}

int main(void)
{
	static const u32 sizes[] = { 1, 2, 5, 15, 16, 17, 18, 64, 300 };
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		random_operations(sizes[i], 10, 0, 0);
		random_operations(sizes[i], 1ull << 56, 0, 0);
		/* the clock of a guest starts in 2020; the last sequences */
		random_operations(sizes[i], 1000, 1577836800000000000ull, (1ull << 40) - 20001);
	}
	moves_to_other_memory();
	holds_only_what_it_can_pack();
	a_later_time_is_the_last();
	same_instant_runs_in_order_of_creation();
	return PASS();
}
