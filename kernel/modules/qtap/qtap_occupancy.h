/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Occupancy of a queue as a step function of time: integrals, extremes, a
 * histogram and a series of samples. All are exact and none needs a timer.
 *
 * The caller advances the time (qtap_occupancy_advance) before it changes the
 * state. A state that lasts 0 ns (a packet enqueued and dequeued in the same
 * instant) is not part of the function and counts in no minimum, maximum or
 * histogram. Intervals are half-open, [begin, end).
 *
 * All times are on one clock; the caller converts them to the stream's.
 */
#ifndef _QTAP_OCCUPANCY_H
#define _QTAP_OCCUPANCY_H

#include <qbed/types.h>

struct qtap_occupancy_params {
	u64 end_ns;		/* end of the integration; U64_MAX: open */
	u64 interval_ns;	/* length of a sample; 0: no samples */
	u32 bin_bytes;		/* width of a histogram bin, at least 1 */
	u32 bounds;		/* number of window boundaries */
	u64 begin_ns;		/* start of the integration */
	u64 grid_ns;		/* samples end at grid + k * interval */
	const u64 *bounds_ns;	/* ascending, none before begin_ns */
};

/* Integrals and extremes over a span of time. */
struct qtap_integral {
	u64 begin_ns;
	u64 byte_ns;
	u64 packet_ns;
	u32 min_bytes;
	u32 max_bytes;
	u32 min_packets;
	u32 max_packets;
};

/* Counters of an interval: packets, except dequeued_bytes. */
struct qtap_counts {
	u64 dequeued_bytes;
	u32 enqueued;
	u32 dequeued;
	u32 dropped;
	u32 marked;
};

enum qtap_phase { QTAP_BEFORE, QTAP_OPEN, QTAP_CLOSED };

struct qtap_occupancy {
	u64 last_ns;		/* integrated up to here */
	u64 bound_ns;		/* next bound; U64_MAX: none */
	u32 bytes;		/* current length */
	u32 packets;
	enum qtap_phase phase;
	u32 bins;		/* allocated */
	u64 *histogram;		/* ns[], grown on demand */
	struct qtap_counts counts;	/* of the open interval */
	struct qtap_integral total;	/* since begin */
	u32 bins_used;
	u32 bounds_passed;
	struct qtap_occupancy_params params;
	/* params.bounds is the last that is accessed without samples and bounds */

	u64 edge_ns;		/* end of the open interval */
	struct qtap_integral open;	/* of the open interval */
	struct qtap_integral since_bound;	/* since the last bound; unused without bounds */
	u32 start_bytes;	/* at begin */
	u32 start_packets;
};

/* Maximum number of bins: a record holds no more. The last bin is open. */
#define QTAP_MAX_BINS 8188u
#define QTAP_FIRST_BINS 64u

/* Supplied by records.c: as realloc(), new memory zeroed; NULL if none. */
u64 *qtap_histogram_resize(u64 *histogram, u32 old_bins, u32 new_bins);

/*
 * Supplied by records.c: emits the complete interval [open.begin_ns, end_ns)
 * and @steady following intervals of interval_ns during which the queue did not
 * change.
 */
void qtap_sample_emit(struct qtap_occupancy *occupancy, u64 end_ns, u32 steady);

/* Supplied by records.c: the integration has reached a bound. */
void qtap_bound_emit(struct qtap_occupancy *occupancy);

static inline void qtap_integral_reset(struct qtap_integral *integral, u64 begin_ns)
{
	*integral = (struct qtap_integral) {
		.begin_ns = begin_ns,
		.min_bytes = U32_MAX,
		.min_packets = U32_MAX,
	};
}

static inline void qtap_integral_add(struct qtap_integral *integral, u64 span_ns,
				     u32 bytes, u32 packets)
{
	integral->byte_ns += span_ns * bytes;
	integral->packet_ns += span_ns * packets;
	if (bytes < integral->min_bytes)
		integral->min_bytes = bytes;
	if (bytes > integral->max_bytes)
		integral->max_bytes = bytes;
	if (packets < integral->min_packets)
		integral->min_packets = packets;
	if (packets > integral->max_packets)
		integral->max_packets = packets;
}

static inline void qtap_histogram_add(struct qtap_occupancy *occupancy, u64 span_ns)
{
	u32 bin = occupancy->bytes / occupancy->params.bin_bytes;

	if (unlikely(bin >= QTAP_MAX_BINS))
		bin = QTAP_MAX_BINS - 1;
	if (unlikely(bin >= occupancy->bins)) {
		u32 bins = occupancy->bins ? occupancy->bins : QTAP_FIRST_BINS;
		u64 *grown;

		while (bins <= bin)
			bins *= 2;
		if (bins > QTAP_MAX_BINS)
			bins = QTAP_MAX_BINS;
		grown = qtap_histogram_resize(occupancy->histogram, occupancy->bins, bins);
		if (grown) {
			occupancy->histogram = grown;
			occupancy->bins = bins;
		} else if (occupancy->bins) {
			bin = occupancy->bins - 1;	/* no memory: coarser at the end */
		} else {
			return;
		}
	}
	occupancy->histogram[bin] += span_ns;
	if (unlikely(bin >= occupancy->bins_used))
		occupancy->bins_used = bin + 1;
}

/* Integrates the current state up to @now_ns, within the open interval. */
static inline void qtap_occupancy_integrate(struct qtap_occupancy *occupancy, u64 now_ns)
{
	u64 span_ns = now_ns - occupancy->last_ns;

	if (!span_ns)
		return;
	qtap_integral_add(&occupancy->total, span_ns, occupancy->bytes, occupancy->packets);
	if (occupancy->params.interval_ns)
		qtap_integral_add(&occupancy->open, span_ns, occupancy->bytes,
				  occupancy->packets);
	if (occupancy->params.bounds)
		qtap_integral_add(&occupancy->since_bound, span_ns, occupancy->bytes,
				  occupancy->packets);
	qtap_histogram_add(occupancy, span_ns);
	occupancy->last_ns = now_ns;
}

/* Emits the interval up to @end_ns and @steady following ones, and opens the next. */
static inline void qtap_occupancy_close_interval(struct qtap_occupancy *occupancy, u64 end_ns, u32 steady)
{
	if (end_ns > occupancy->open.begin_ns)
		qtap_sample_emit(occupancy, end_ns, steady);
	qtap_occupancy_integrate(occupancy, end_ns + steady * occupancy->params.interval_ns);
	qtap_integral_reset(&occupancy->open, occupancy->last_ns);
	occupancy->counts = (struct qtap_counts) {};
}

/*
 * Closes all intervals that end at or before @now_ns. The cost does not depend
 * on how long the queue was unchanged.
 */
static inline void qtap_occupancy_close_due(struct qtap_occupancy *occupancy, u64 now_ns)
{
	u64 interval_ns = occupancy->params.interval_ns;

	while (now_ns >= occupancy->edge_ns) {
		u64 end_ns = occupancy->edge_ns, steady = 0;

		qtap_occupancy_integrate(occupancy, end_ns);
		if (end_ns - occupancy->open.begin_ns == interval_ns)
			steady = (now_ns - end_ns) / interval_ns;
		if (steady > U32_MAX)
			steady = U32_MAX;
		qtap_occupancy_close_interval(occupancy, end_ns, steady);
		occupancy->edge_ns = occupancy->last_ns + interval_ns;
	}
}

static inline void qtap_occupancy_sample(struct qtap_occupancy *occupancy, u64 now_ns)
{
	if (occupancy->params.interval_ns)
		qtap_occupancy_close_due(occupancy, now_ns);
	qtap_occupancy_integrate(occupancy, now_ns);
}

static inline void qtap_occupancy_next_bound(struct qtap_occupancy *occupancy)
{
	const struct qtap_occupancy_params *params = &occupancy->params;
	u32 passed = occupancy->bounds_passed;

	occupancy->bound_ns = passed < params->bounds ? params->bounds_ns[passed] : U64_MAX;
}

static inline void qtap_occupancy_integrate_open(struct qtap_occupancy *occupancy, u64 now_ns)
{
	while (unlikely(now_ns >= occupancy->bound_ns)) {
		qtap_occupancy_sample(occupancy, occupancy->bound_ns);
		qtap_bound_emit(occupancy);
		qtap_integral_reset(&occupancy->since_bound, occupancy->bound_ns);
		occupancy->bounds_passed++;
		qtap_occupancy_next_bound(occupancy);
	}
	qtap_occupancy_sample(occupancy, now_ns);
}

/* Slow path: start and end of the integration. */
static inline void qtap_occupancy_transition(struct qtap_occupancy *occupancy, u64 now_ns)
{
	const struct qtap_occupancy_params *params = &occupancy->params;

	if (occupancy->phase == QTAP_BEFORE && now_ns >= params->begin_ns) {
		occupancy->phase = QTAP_OPEN;
		occupancy->start_bytes = occupancy->bytes;
		occupancy->start_packets = occupancy->packets;
		occupancy->counts = (struct qtap_counts) {};
	}
	if (occupancy->phase != QTAP_OPEN)
		return;
	if (now_ns < params->end_ns) {
		qtap_occupancy_integrate_open(occupancy, now_ns);
		return;
	}
	qtap_occupancy_integrate_open(occupancy, params->end_ns);
	if (params->interval_ns)
		qtap_occupancy_close_interval(occupancy, params->end_ns, 0);
	occupancy->phase = QTAP_CLOSED;
}

static inline void qtap_occupancy_init(struct qtap_occupancy *occupancy,
				       struct qtap_occupancy_params params,
				       u32 bytes, u32 packets)
{
	u64 begun_ns = params.begin_ns - params.grid_ns;

	*occupancy = (struct qtap_occupancy) {
		.params = params,
		.last_ns = params.begin_ns,
		.bytes = bytes,
		.packets = packets,
		.phase = QTAP_BEFORE,
	};
	if (params.interval_ns)
		occupancy->edge_ns = params.begin_ns + params.interval_ns -
				     begun_ns % params.interval_ns;
	qtap_integral_reset(&occupancy->open, params.begin_ns);
	qtap_integral_reset(&occupancy->total, params.begin_ns);
	qtap_integral_reset(&occupancy->since_bound, params.begin_ns);
	qtap_occupancy_next_bound(occupancy);
}

/* Call before every change. Changes are recorded unless phase is QTAP_CLOSED afterwards. */
static inline void qtap_occupancy_advance(struct qtap_occupancy *occupancy, u64 now_ns)
{
	if (unlikely(occupancy->phase != QTAP_OPEN || now_ns >= occupancy->params.end_ns))
		qtap_occupancy_transition(occupancy, now_ns);
	else if (now_ns > occupancy->last_ns)
		qtap_occupancy_integrate_open(occupancy, now_ns);
}

/* Closes the open interval early (flush); samples stay contiguous. */
static inline void qtap_occupancy_flush(struct qtap_occupancy *occupancy, u64 now_ns)
{
	qtap_occupancy_advance(occupancy, now_ns);
	if (occupancy->phase == QTAP_OPEN && occupancy->params.interval_ns)
		qtap_occupancy_close_interval(occupancy, now_ns, 0);
}

static inline u64 qtap_occupancy_duration_ns(const struct qtap_occupancy *occupancy)
{
	return occupancy->last_ns - occupancy->params.begin_ns;
}

#endif /* _QTAP_OCCUPANCY_H */
