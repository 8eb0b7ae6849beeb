// SPDX-License-Identifier: GPL-2.0-only
/* Records of the stream: samples, summaries, histograms. */
#include <linux/slab.h>

#include "qtap.h"

u64 *qtap_histogram_resize(u64 *histogram, u32 old_bins, u32 new_bins)
{
	u64 *grown = kcalloc(new_bins, sizeof(u64), GFP_ATOMIC | __GFP_NOWARN);

	if (!grown)
		return NULL;
	if (old_bins)
		memcpy(grown, histogram, old_bins * sizeof(u64));
	kfree(histogram);
	return grown;
}

static void qtap_sojourn_sample_emit(const struct qtap *tap, u64 end_ns)
{
	u32 i;

	for (i = 0; i < tap->sojourn->classes; i++) {
		struct qtap_sojourn_class *class = &tap->sojourn->class[i];
		struct qtap_sojourn_sample sample;

		if (!class->open.packets)
			continue;
		sample = (struct qtap_sojourn_sample) {
			.record = qtap_record(tap, QTAP_RECORD_SOJOURN_SAMPLE, sizeof(sample), end_ns),
			.interval_ns = end_ns - tap->occupancy.open.begin_ns,
			.class = class->tos,
			.packets = class->open.packets,
			.sum_ns = class->open.sum_ns,
			.max_ns = class->open.max_ns,
			.p50_ns = qtap_sojourn_quantile_ns(class, 50),
			.p99_ns = qtap_sojourn_quantile_ns(class, 99),
		};
		BUILD_BUG_ON(sizeof(sample) != 64);
		qtap_stream_write(&sample, sizeof(sample), NULL, 0);
		qtap_sojourn_open_interval(class);
	}
}

void qtap_sample_emit(struct qtap_occupancy *occupancy, u64 end_ns, u32 steady)
{
	const struct qtap *tap = container_of(occupancy, struct qtap, occupancy);
	const struct qtap_integral *open = &occupancy->open;
	struct qtap_sample sample = {
		.record = qtap_record(tap, QTAP_RECORD_SAMPLE, sizeof(sample), end_ns),
		.interval_ns = end_ns - open->begin_ns,
		.byte_ns = open->byte_ns,
		.packet_ns = open->packet_ns,
		.dequeued_bytes = occupancy->counts.dequeued_bytes,
		.min_bytes = open->min_bytes,
		.max_bytes = open->max_bytes,
		.min_packets = open->min_packets,
		.max_packets = open->max_packets,
		.enqueued = occupancy->counts.enqueued,
		.dequeued = occupancy->counts.dequeued,
		.dropped = occupancy->counts.dropped,
		.marked = occupancy->counts.marked,
		.steady = steady,
		.steady_bytes = steady ? occupancy->bytes : 0,
		.steady_packets = steady ? occupancy->packets : 0,
	};

	BUILD_BUG_ON(sizeof(sample) != 96);
	if (unlikely(tap->sojourn))
		qtap_sojourn_sample_emit(tap, end_ns);
	qtap_stream_write(&sample, sizeof(sample), NULL, 0);
}

/* @max: the integral that provides the maxima. */
void qtap_summary_emit(const struct qtap *tap, u16 type,
			      const struct qtap_integral *max)
{
	const struct qtap_occupancy *occupancy = &tap->occupancy;
	const struct qtap_totals *totals = &tap->totals;
	struct qtap_summary summary = {
		.record = qtap_record(tap, type, sizeof(summary), occupancy->last_ns),
		.duration_ns = qtap_occupancy_duration_ns(occupancy),
		.byte_ns = occupancy->total.byte_ns,
		.packet_ns = occupancy->total.packet_ns,
		.max_bytes = max->max_bytes,
		.max_packets = max->max_packets,
		.offered_packets = totals->offered_packets,
		.offered_bytes = totals->offered_bytes,
		.sent_packets = totals->sent_packets,
		.sent_bytes = totals->sent_bytes,
		.dropped_packets = totals->dropped_packets,
		.dropped_bytes = totals->dropped_bytes,
		.marked_packets = totals->marked_packets,
		.queue_packets = occupancy->packets,
		.queue_bytes = occupancy->bytes,
		.start_queue_packets = occupancy->start_packets,
		.start_queue_bytes = occupancy->start_bytes,
	};

	BUILD_BUG_ON(sizeof(summary) != 144);
	qtap_stream_write(&summary, sizeof(summary), NULL, 0);
}

void qtap_histogram_emit(const struct qtap *tap, u16 type)
{
	const struct qtap_occupancy *occupancy = &tap->occupancy;
	size_t bytes = occupancy->bins_used * sizeof(u64);
	struct qtap_histogram histogram = {
		.record = qtap_record(tap, type, sizeof(histogram) + bytes, occupancy->last_ns),
		.bin_bytes = occupancy->params.bin_bytes,
		.bins = occupancy->bins_used,
	};

	BUILD_BUG_ON(sizeof(histogram) + QTAP_MAX_BINS * sizeof(u64) > U16_MAX);
	qtap_stream_write(&histogram, sizeof(histogram),
			  occupancy->histogram, bytes);
}

void qtap_sojourn_emit(const struct qtap *tap, u16 type)
{
	bool bound = type == QTAP_RECORD_BOUND_SOJOURN;
	u32 i;

	if (likely(!tap->sojourn))
		return;
	for (i = 0; i < tap->sojourn->classes; i++) {
		struct qtap_sojourn_class *class = &tap->sojourn->class[i];
		const struct qtap_sojourn_bins *bins = &class->histogram;
		size_t bytes = (bins->end - bins->low) * sizeof(u64);
		struct qtap_sojourn_histogram histogram = {
			.record = qtap_record(tap, type, sizeof(histogram) + bytes,
					      tap->occupancy.last_ns),
			.class = class->tos,
			.first = bins->low,
			.packets = class->total.packets,
			.sum_ns = class->total.sum_ns,
			.max_ns = bound ? class->bound_max_ns : class->total.max_ns,
			.bins = bins->end - bins->low,
		};

		BUILD_BUG_ON(sizeof(histogram) != 56);
		BUILD_BUG_ON(sizeof(histogram) + QTAP_SOJOURN_BINS * sizeof(u64) > U16_MAX);
		qtap_stream_write(&histogram, sizeof(histogram),
				  bins->packets + bins->low, bytes);
		if (bound)
			class->bound_max_ns = 0;
	}
}

void qtap_bound_emit(struct qtap_occupancy *occupancy)
{
	const struct qtap *tap = container_of(occupancy, struct qtap, occupancy);

	qtap_summary_emit(tap, QTAP_RECORD_BOUND, &occupancy->since_bound);
	qtap_histogram_emit(tap, QTAP_RECORD_BOUND_HISTOGRAM);
	qtap_sojourn_emit(tap, QTAP_RECORD_BOUND_SOJOURN);
}
