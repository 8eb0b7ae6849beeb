/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory that the kernels of a lab's parts share, and their common advance in
 * time. Separate so that it can be tested without a kernel
 * (kernel/tests/test_parts.c).
 *
 * Virtual time advances in windows. In a window, a part processes its events
 * before its bound, and writes the frames for other parts to a batch each. At
 * the end of a window, it publishes the time of its next event. It begins a
 * window when all parts have ended the one UM_PARTS_DEPTH before, and then
 * receives the frames of that one. So a part may be ahead of others by some
 * windows, and one that has much to process in one of them does not stop the
 * others at once. The bound of a window is the earliest time at which a frame
 * that is not received yet, or a reply to one of the part's own, can arrive: the
 * least sum of a part's next event in that earlier window and of its distance,
 * the propagation delay on the way from that part. It depends only on the parts'
 * events, so windows, and the order in which frames are received, are the same
 * in every run.
 *
 * Times are ns of CLOCK_MONOTONIC, the same in all parts. The process that
 * starts the parts writes the layout (orchestrator/qbed/substrates/virtual/
 * part_memory.py).
 */
#ifndef _UM_PARTS_H
#define _UM_PARTS_H

#define UM_PARTS_MAX 64
#define UM_PARTS_NEVER (~0ull >> 1)
#define UM_PARTS_DEPTH 4u
/*
 * Windows with memory of their own. A part that begins window W reads those from
 * W - 2 * UM_PARTS_DEPTH + 1, while others may write W + UM_PARTS_DEPTH - 1.
 */
#define UM_PARTS_WINDOWS (3 * UM_PARTS_DEPTH - 1)

/* State of a part, written by it alone, in cache lines of its own. `windows`, `left`: numbers of windows, from 1. */
struct um_part {
	unsigned int windows;			/* that it has ended */
	unsigned int left;			/* in which its kernel ended; 0: it runs */
	unsigned int has_waiters;
	unsigned int unused;
	unsigned long long next_ns[UM_PARTS_WINDOWS];	/* its next event after a window */
	unsigned long long waited_ns;		/* real time */
	unsigned char padding[16];
};

struct um_parts {
	unsigned int count;
	unsigned int spins;			/* checks before a part sleeps; 0: there are more parts than cores */
	unsigned long long start_ns;		/* end of the first window, in which the lab is built */
	unsigned long long batch_bytes;		/* size of a batch, with its header */
	unsigned long long batches;		/* offset of the first batch */
	unsigned char padding[96];
	unsigned long long distance_ns[UM_PARTS_MAX][UM_PARTS_MAX];	/* from, to */
	struct um_part parts[UM_PARTS_MAX];
};

/* Frames from one part to another, of one window. */
struct um_batch {
	unsigned int window;
	unsigned int used;			/* bytes of frames[] */
	unsigned long long first_ns;		/* first arrival */
	unsigned char frames[];
};

static inline struct um_batch *um_parts_batch(struct um_parts *shared, unsigned int from,
					      unsigned int to, unsigned int window)
{
	unsigned long long number = (unsigned long long)UM_PARTS_WINDOWS * (from * shared->count + to) +
				    window % UM_PARTS_WINDOWS;

	return (struct um_batch *)((char *)shared + shared->batches + number * shared->batch_bytes);
}

/* Whether @bytes fit into the batch to part @to. */
static inline int um_parts_has_room(struct um_parts *shared, unsigned int from, unsigned int to,
				    unsigned int window, unsigned int bytes)
{
	const struct um_batch *batch = um_parts_batch(shared, from, to, window);
	unsigned int used = batch->window == window ? batch->used : 0;

	return sizeof(*batch) + used + bytes <= shared->batch_bytes;
}

/* Reserves @bytes, for which there is room, in the batch to part @to, for a frame that arrives at @arrival_ns. */
static inline void *um_parts_append(struct um_parts *shared, unsigned int from, unsigned int to,
				    unsigned int window, unsigned int bytes,
				    unsigned long long arrival_ns)
{
	struct um_batch *batch = um_parts_batch(shared, from, to, window);
	void *frame;

	if (batch->window != window) {
		batch->window = window;
		batch->used = 0;
		batch->first_ns = UM_PARTS_NEVER;
	}
	if (arrival_ns < batch->first_ns)
		batch->first_ns = arrival_ns;
	frame = batch->frames + batch->used;
	batch->used += bytes;
	return frame;
}

/* Frames that part @to got from part @from in a window that both have ended; NULL: none. */
static inline const void *um_parts_received(struct um_parts *shared, unsigned int from,
					    unsigned int to, unsigned int window, unsigned int *used)
{
	const struct um_batch *batch = um_parts_batch(shared, from, to, window);

	*used = batch->window == window ? batch->used : 0;
	return *used ? batch->frames : 0;
}

/* Whether part @number has ended @window. */
static inline int um_parts_ended(struct um_parts *shared, unsigned int number, unsigned int window)
{
	return __atomic_load_n(&shared->parts[number].windows, __ATOMIC_ACQUIRE) >= window;
}

/* Publishes the end of @window. Returns whether another part sleeps until then. */
static inline int um_parts_end(struct um_part *part, unsigned int window, unsigned long long next_ns)
{
	part->next_ns[window % UM_PARTS_WINDOWS] = next_ns;
	__atomic_store_n(&part->windows, window, __ATOMIC_SEQ_CST);
	return __atomic_exchange_n(&part->has_waiters, 0, __ATOMIC_SEQ_CST);
}

/* Publishes that a part ends in @window: it has no further events. */
static inline int um_parts_leave(struct um_part *part, unsigned int window)
{
	__atomic_store_n(&part->left, window, __ATOMIC_SEQ_CST);
	__atomic_store_n(&part->windows, ~0u, __ATOMIC_SEQ_CST);
	return __atomic_exchange_n(&part->has_waiters, 0, __ATOMIC_SEQ_CST);
}

/* The first arrival at part @number of the frames of @window and of those before it that it has not received. */
static inline unsigned long long um_parts_arrival(struct um_parts *shared, unsigned int number,
						  unsigned int window)
{
	unsigned long long first_ns = UM_PARTS_NEVER;
	unsigned int from, sent;

	for (from = 0; from < shared->count; from++) {
		if (from == number)
			continue;
		for (sent = window; sent && window - sent < UM_PARTS_DEPTH; sent--) {
			const struct um_batch *batch = um_parts_batch(shared, from, number, sent);

			if (batch->window == sent && batch->first_ns < first_ns)
				first_ns = batch->first_ns;
		}
	}
	return first_ns;
}

/* The next event of part @number after @window: one of its own, or the arrival of a frame that it has not received yet. */
static inline unsigned long long um_parts_next(struct um_parts *shared, unsigned int number,
					       unsigned int window)
{
	const struct um_part *part = &shared->parts[number];
	unsigned int left = __atomic_load_n(&part->left, __ATOMIC_RELAXED);
	unsigned long long next_ns = part->next_ns[window % UM_PARTS_WINDOWS], arrival_ns;

	if (left && left <= window)
		return UM_PARTS_NEVER;
	arrival_ns = um_parts_arrival(shared, number, window);
	return arrival_ns < next_ns ? arrival_ns : next_ns;
}

/* The window that all parts have to end before one begins @window, and receives its frames; 0: none. */
static inline unsigned int um_parts_before(unsigned int window)
{
	return window > UM_PARTS_DEPTH ? window - UM_PARTS_DEPTH : 0;
}

/*
 * The bound of part @to in @window. @before_ns: its bound in the window before.
 * All parts have ended um_parts_before(@window).
 */
static inline unsigned long long um_parts_bound(struct um_parts *shared, unsigned int to,
						unsigned int window, unsigned long long before_ns)
{
	unsigned long long bound_ns = UM_PARTS_NEVER, first_ns = UM_PARTS_NEVER, least_ns = UM_PARTS_NEVER;
	unsigned int from;

	window = um_parts_before(window);
	if (!window)
		return shared->start_ns;
	for (from = 0; from < shared->count; from++) {
		unsigned long long next_ns = um_parts_next(shared, from, window);
		unsigned long long distance_ns = shared->distance_ns[from][to];

		/* Both are far below the limit, or the limit: their sum does not overflow. */
		if (next_ns + distance_ns < bound_ns)
			bound_ns = next_ns + distance_ns;
		if (next_ns < first_ns)
			first_ns = next_ns;
		if (distance_ns < least_ns)
			least_ns = distance_ns;
	}
	/* Nothing happens before first_ns. */
	if (first_ns < before_ns)
		first_ns = before_ns;
	first_ns += (least_ns + UM_PARTS_DEPTH - 1) / UM_PARTS_DEPTH;
	return bound_ns < first_ns ? bound_ns : first_ns;
}

#endif /* _UM_PARTS_H */
