// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows of a lab's parts: a model in which each event may send frames, run in
 * windows by several parts in any order, is compared with the same model run by
 * one.
 */
#include <stddef.h>
#include <string.h>

#include "unit.h"
#include "../uml/um_parts.h"

#define PARTS_TESTED 5
#define BATCH_BYTES 65536
#define END_NS 200000ull
#define START_NS 1000ull
#define EVENTS_MAX 20000

struct frame {
	unsigned long long arrival_ns;
	unsigned long long seed;
};

/* Events of a part that are due, and those that it has processed. */
struct model {
	struct frame due[EVENTS_MAX], done[EVENTS_MAX];
	unsigned int due_count, done_count;
};

static struct um_parts *shared;
static struct model models[PARTS_TESTED], expected[PARTS_TESTED];

/* The process that starts the parts writes these offsets (orchestrator/qbed/substrates/virtual/part_memory.py). */
static void the_layout_is_that_of_the_runner(void)
{
	EXPECT_EQUAL(offsetof(struct um_parts, distance_ns), 128);
	EXPECT_EQUAL(offsetof(struct um_parts, parts), 128 + 8 * UM_PARTS_MAX * UM_PARTS_MAX);
	EXPECT_EQUAL(sizeof(struct um_part), 128);
	EXPECT_EQUAL(offsetof(struct um_part, waited_ns), 104);
	EXPECT_EQUAL(UM_PARTS_WINDOWS, 11);
	EXPECT_EQUAL(sizeof(struct um_parts) % 128, 0);
}

static void create(unsigned int count)
{
	size_t size = sizeof(*shared) + (size_t)UM_PARTS_WINDOWS * count * count * BATCH_BYTES;
	unsigned int from, to, middle;

	shared = aligned_alloc(128, (size + 127) / 128 * 128);
	memset(shared, 0, size);
	shared->count = count;
	shared->start_ns = START_NS;
	shared->batch_bytes = BATCH_BYTES;
	shared->batches = sizeof(*shared);
	for (from = 0; from < count; from++)
		for (to = 0; to < count; to++)
			shared->distance_ns[from][to] = from == to || random_below(4) == 0 ?
				UM_PARTS_NEVER : 100 + random_below(1000);
	for (middle = 0; middle < count; middle++)
		for (from = 0; from < count; from++)
			for (to = 0; to < count; to++) {
				unsigned long long through = shared->distance_ns[from][middle] +
							     shared->distance_ns[middle][to];

				if (through < shared->distance_ns[from][to])
					shared->distance_ns[from][to] = through;
			}
}

static void add(struct model *model, unsigned long long arrival_ns, unsigned long long seed)
{
	unsigned int at = model->due_count++;

	EXPECT(at < EVENTS_MAX);
	for (; at && model->due[at - 1].arrival_ns < arrival_ns; at--)
		model->due[at] = model->due[at - 1];
	model->due[at] = (struct frame) { arrival_ns, seed };
}

static struct frame take(struct model *model)
{
	struct frame frame = model->due[--model->due_count];

	model->done[model->done_count++] = frame;
	return frame;
}

static unsigned long long next_of(const struct model *model)
{
	return model->due_count ? model->due[model->due_count - 1].arrival_ns : UM_PARTS_NEVER;
}

/* The frame that an event sends depends on its seed only. Returns the part that gets a frame, or the count of parts: none. */
static unsigned int reaction(unsigned int part, struct frame event, struct frame *sent)
{
	unsigned int to = event.seed % (shared->count + 1);

	if (to == shared->count || to == part || shared->distance_ns[part][to] == UM_PARTS_NEVER)
		return shared->count;
	sent->arrival_ns = event.arrival_ns + shared->distance_ns[part][to] + event.seed / 7 % 3 * 50;
	sent->seed = event.seed * 2862933555777941757ull + 3037000493ull;
	return to;
}

static void begin(struct model *of, unsigned int count)
{
	unsigned int part, event;
	uint64_t kept = random_state;

	for (part = 0; part < count; part++) {
		of[part].due_count = of[part].done_count = 0;
		for (event = 0; event < 200; event++)
			add(&of[part], START_NS + random_below(END_NS), random_u64());
	}
	random_state = kept;
}

static void run_alone(unsigned int count)
{
	for (;;) {
		unsigned int part, first = 0;
		struct frame sent;

		for (part = 1; part < count; part++)
			if (next_of(&expected[part]) < next_of(&expected[first]))
				first = part;
		if (next_of(&expected[first]) >= END_NS)
			return;
		part = reaction(first, take(&expected[first]), &sent);
		if (part < count)
			add(&expected[part], sent.arrival_ns, sent.seed);
	}
}

static void run_window(unsigned int part, unsigned int window, unsigned long long bound_ns)
{
	struct model *model = &models[part];
	struct frame sent;
	unsigned int to;

	while (next_of(model) < bound_ns && next_of(model) < END_NS) {
		to = reaction(part, take(model), &sent);
		if (to == shared->count)
			continue;
		EXPECT(um_parts_has_room(shared, part, to, window, sizeof(sent)));
		memcpy(um_parts_append(shared, part, to, window, sizeof(sent), sent.arrival_ns), &sent,
		       sizeof(sent));
	}
}

static void receive(unsigned int part, unsigned int window, unsigned long long now_ns)
{
	unsigned int from, used, at;

	for (from = 0; from < shared->count; from++) {
		const char *frames = um_parts_received(shared, from, part, window, &used);

		for (at = 0; at < used; at += sizeof(struct frame)) {
			struct frame frame;

			memcpy(&frame, frames + at, sizeof(frame));
			EXPECT(frame.arrival_ns >= now_ns); /* of what it has processed */
			add(&models[part], frame.arrival_ns, frame.seed);
		}
	}
}

/* Whether a part may begin @window. */
static int may_begin(unsigned int window)
{
	unsigned int part;

	for (part = 0; part < shared->count; part++)
		if (!um_parts_ended(shared, part, um_parts_before(window)))
			return 0;
	return 1;
}

/* Runs window @window of a part, which may begin it. Returns whether it is the part's last one. */
static int run_next_window(unsigned int part, unsigned int window, unsigned long long *bound_ns)
{
	unsigned long long before_ns = *bound_ns;

	*bound_ns = um_parts_bound(shared, part, window, before_ns);
	EXPECT(*bound_ns >= before_ns);
	receive(part, um_parts_before(window), before_ns);
	run_window(part, window, *bound_ns);
	if (*bound_ns < END_NS) {
		um_parts_end(&shared->parts[part], window, next_of(&models[part]));
		return 0;
	}
	um_parts_leave(&shared->parts[part], window);
	return 1;
}

/* Runs windows of the parts in a random order: any part that may begin its next window can be the next one. */
static void run_in_windows(unsigned int count)
{
	unsigned long long bounds[PARTS_TESTED] = { 0 };
	unsigned int windows[PARTS_TESTED] = { 0 };
	unsigned int part, left = 0, favoured = random_below(count);

	while (left < count) {
		part = random_below(3) ? favoured : random_below(count);
		if (random_below(20) == 0)
			favoured = random_below(count);
		if (shared->parts[part].left || !may_begin(windows[part] + 1))
			continue;
		left += run_next_window(part, ++windows[part], &bounds[part]);
	}
}

static void windows_process_the_same_events_as_one_part(void)
{
	unsigned int round, part, event;

	for (round = 0; round < 200; round++) {
		unsigned int count = 2 + random_below(PARTS_TESTED - 1);

		create(count);
		begin(expected, count);
		begin(models, count);
		run_alone(count);
		run_in_windows(count);
		for (part = 0; part < count; part++) {
			EXPECT_EQUAL(models[part].done_count, expected[part].done_count);
			for (event = 0; event < models[part].done_count; event++)
				EXPECT_EQUAL(models[part].done[event].arrival_ns,
					     expected[part].done[event].arrival_ns);
		}
		free(shared);
	}
}

static void a_batch_is_full_before_it_overflows(void)
{
	unsigned int used = 0;

	create(2);
	EXPECT(!um_parts_has_room(shared, 0, 1, 1, BATCH_BYTES));
	while (um_parts_has_room(shared, 0, 1, 1, 1000)) {
		memset(um_parts_append(shared, 0, 1, 1, 1000, 5000), 1, 1000);
		used += 1000;
	}
	EXPECT(used > BATCH_BYTES - 2000);
	EXPECT_EQUAL(um_parts_batch(shared, 0, 1, 1)->used, used);
	EXPECT_EQUAL(um_parts_batch(shared, 0, 1, 1)->first_ns, 5000);
	/* This window uses the same memory. */
	EXPECT(um_parts_has_room(shared, 0, 1, 1 + UM_PARTS_WINDOWS, 1000));
	EXPECT(!um_parts_received(shared, 0, 1, 1 + UM_PARTS_WINDOWS, &used));
	free(shared);
}

/* Two parts at this distance, with events at 2000 and 3000 after their first window. */
static void create_pair(unsigned long long distance_ns)
{
	create(2);
	shared->distance_ns[0][1] = shared->distance_ns[1][0] = distance_ns;
	shared->distance_ns[0][0] = shared->distance_ns[1][1] = 2 * distance_ns;
	um_parts_end(&shared->parts[0], 1, 2000);
	um_parts_end(&shared->parts[1], 1, 3000);
}

static void a_part_that_has_left_sends_nothing_later(void)
{
	unsigned int first = 1 + UM_PARTS_DEPTH, second = first + 1;	/* that follow from windows 1 and 2 */

	create_pair(10);
	EXPECT_EQUAL(um_parts_bound(shared, 1, first, 2008), 2010);
	um_parts_leave(&shared->parts[0], 2);
	EXPECT_EQUAL(um_parts_bound(shared, 1, first, 2008), 2010); /* that of the earlier window is the same */
	um_parts_end(&shared->parts[1], 2, 4000);
	EXPECT(um_parts_ended(shared, 0, 1000));
	EXPECT_EQUAL(um_parts_bound(shared, 1, second, 4018), 4020);
	free(shared);
}

static void a_window_is_a_share_of_the_least_distance(void)
{
	unsigned int first = 1 + UM_PARTS_DEPTH;

	create_pair(40);
	EXPECT_EQUAL(um_parts_bound(shared, 1, first, 2000), 2010);
	EXPECT_EQUAL(um_parts_bound(shared, 1, first, 1000), 2010); /* nothing happens from 1000 to 2000 */
	EXPECT_EQUAL(um_parts_bound(shared, 0, first, 2000), 2010);
	EXPECT_EQUAL(um_parts_bound(shared, 0, first, 2075), 2080);
	free(shared);
}

static void the_first_windows_end_when_the_lab_is_built(void)
{
	create(2);
	EXPECT_EQUAL(um_parts_bound(shared, 0, 1, 0), START_NS);
	EXPECT_EQUAL(um_parts_bound(shared, 0, UM_PARTS_DEPTH, START_NS), START_NS);
	free(shared);
}

static void an_end_reports_waiters_once(void)
{
	create(2);
	shared->parts[0].has_waiters = 1;
	EXPECT(um_parts_end(&shared->parts[0], 1, 5));
	EXPECT(!um_parts_end(&shared->parts[0], 2, 6));
	free(shared);
}

int main(void)
{
	the_layout_is_that_of_the_runner();
	windows_process_the_same_events_as_one_part();
	a_batch_is_full_before_it_overflows();
	a_part_that_has_left_sends_nothing_later();
	a_window_is_a_share_of_the_least_distance();
	the_first_windows_end_when_the_lab_is_built();
	an_end_reports_waiters_once();
	return PASS();
}
