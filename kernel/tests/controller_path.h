/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Model of a path for one flow, in integers: packets are sent at the
 * controller's rate and queued before a link whose capacity changes;
 * acknowledgements carry every input that controllers use. Feedback of the
 * congestion point is not queued.
 */
#ifndef _CONTROLLER_PATH_H
#define _CONTROLLER_PATH_H

#include <string.h>

#include "controllers.h"
#include "unit.h"

#define PATH_PACKET_BYTES 1500
#define PATH_BUFFER_BYTES (200 * PATH_PACKET_BYTES)
#define PATH_DELAY_NS 20000		/* round-trip time without queueing */
#define PATH_MAX_IN_FLIGHT 4096		/* acknowledgements in flight */
#define PATH_Q_EQ 33			/* equilibrium of the congestion point, packets */
#define PATH_MAX_FB 63			/* largest |Fb| of 6 bits */
#define PATH_SECOND 1000000000ull

struct path_ack {
	struct rate_ack ack;
	bool lost;
};

struct path {
	const struct rate_controller *controller;
	const void *params;
	u8 kind;		/* enum qsignal_kind, in bytes */
	u64 (*capacity)(u64 now_ns);
	bool (*answered)(u64 now_ns);	/* false: acknowledgements and feedback are lost */
	bool (*busy)(u64 now_ns);	/* the flow has data to send */
	u64 state[32];
	u64 now_ns, drained_ns, packets, dropped;
	u64 queue_bytes;
	s64 arrival_packets;	/* queue length at the last arrival */
	u32 sampling;		/* accumulated sampling probability */
	struct path_ack acks[PATH_MAX_IN_FLIGHT];
	u32 ack_head, ack_tail;
	struct rate_feedback feedback[PATH_MAX_IN_FLIGHT];
	u32 feedback_head, feedback_tail;
};

static u64 path_rate(const struct path *path)
{
	return path->controller->rate(path->state, path->params);
}

static void path_start(struct path *path)
{
	EXPECT(path->controller->state_bytes <= sizeof(path->state));
	if (path->controller->start)
		path->controller->start(path->state, path->params, path->now_ns);
}

static void path_drain(struct path *path)
{
	u64 bytes = (path->now_ns - path->drained_ns) * path->capacity(path->now_ns) /
		    (8 * PATH_SECOND);

	path->queue_bytes -= bytes < path->queue_bytes ? bytes : path->queue_bytes;
	path->drained_ns = path->now_ns;
}

/*
 * QCN's congestion point, with w = 2 and |Fb| of 6 bits: samples 1 % to 25 % of
 * the packets. One in eight samples without congestion is sent as Fb = 0.
 */
static void path_sample(struct path *path)
{
	s64 packets = path->queue_bytes / PATH_PACKET_BYTES;
	s64 congestion = packets - PATH_Q_EQ + 2 * (packets - path->arrival_packets);
	u32 magnitude = congestion > 0 ? congestion * PATH_MAX_FB / (5 * PATH_Q_EQ) : 0;

	path->arrival_packets = packets;
	magnitude = magnitude < PATH_MAX_FB ? magnitude : PATH_MAX_FB;
	path->sampling += PATH_MAX_FB + 24 * magnitude;
	if (path->sampling < 100 * PATH_MAX_FB)
		return;
	path->sampling -= 100 * PATH_MAX_FB;
	if (!magnitude && path->packets % 8)
		return;
	EXPECT(path->feedback_tail - path->feedback_head < PATH_MAX_IN_FLIGHT);
	path->feedback[path->feedback_tail++ % PATH_MAX_IN_FLIGHT] = (struct rate_feedback) {
		.now_ns = path->now_ns + PATH_DELAY_NS,
		.magnitude = magnitude,
		.max = PATH_MAX_FB,
	};
}

static void path_send(struct path *path)
{
	struct path_ack *ack = &path->acks[path->ack_tail % PATH_MAX_IN_FLIGHT];
	u64 wait_ns;

	path_drain(path);
	EXPECT(path->ack_tail - path->ack_head < PATH_MAX_IN_FLIGHT);
	path->ack_tail++;
	path->packets++;
	*ack = (struct path_ack) {
		.lost = path->queue_bytes + PATH_PACKET_BYTES > PATH_BUFFER_BYTES,
	};
	path_sample(path);
	path->dropped += ack->lost;
	path->queue_bytes += ack->lost ? 0 : PATH_PACKET_BYTES;
	wait_ns = path->queue_bytes * 8 * PATH_SECOND / path->capacity(path->now_ns);
	ack->ack = (struct rate_ack) {
		.now_ns = path->now_ns + PATH_DELAY_NS + wait_ns,
		.rtt_ns = PATH_DELAY_NS + wait_ns,
		.signal = path->queue_bytes,
		.bytes = PATH_PACKET_BYTES,
		.has_signal = path->kind != QSIGNAL_NONE,
		.kind = path->kind,
		.unit = QSIGNAL_BYTES,
	};
	if (path->controller->on_sent)
		path->controller->on_sent(path->state, path->params, path->now_ns, PATH_PACKET_BYTES);
}

static void path_receive_ack(struct path *path, const struct path_ack *ack)
{
	const struct rate_controller *controller = path->controller;

	path->now_ns = ack->ack.now_ns;
	path->ack_head++;
	if (!path->answered(path->now_ns))
		return;
	if (ack->lost && controller->on_loss)
		controller->on_loss(path->state, path->params, path->now_ns);
	if (!ack->lost && controller->on_ack)
		controller->on_ack(path->state, path->params, &ack->ack);
}

static void path_receive_feedback(struct path *path, const struct rate_feedback *feedback)
{
	path->now_ns = feedback->now_ns;
	path->feedback_head++;
	if (path->answered(path->now_ns) && path->controller->on_feedback)
		path->controller->on_feedback(path->state, path->params, feedback);
}

/* Delivers acknowledgements and feedback until @end_ns. */
static void path_receive_until(struct path *path, u64 end_ns)
{
	for (;;) {
		const struct path_ack *ack = &path->acks[path->ack_head % PATH_MAX_IN_FLIGHT];
		const struct rate_feedback *feedback = &path->feedback[path->feedback_head % PATH_MAX_IN_FLIGHT];
		u64 ack_ns = path->ack_head != path->ack_tail ? ack->ack.now_ns : U64_MAX;
		u64 feedback_ns = path->feedback_head != path->feedback_tail ? feedback->now_ns : U64_MAX;

		if (ack_ns > end_ns && feedback_ns > end_ns)
			return;
		if (feedback_ns < ack_ns)
			path_receive_feedback(path, feedback);
		else
			path_receive_ack(path, ack);
	}
}

/* Runs the path until @end_ns. @next_ns: time of the flow's next transmission */
static void path_run(struct path *path, u64 *next_ns, u64 end_ns)
{
	bool busy;

	while (*next_ns < end_ns) {
		path_receive_until(path, *next_ns);
		path->now_ns = *next_ns;
		busy = path->busy(path->now_ns);
		*next_ns += busy ? PATH_PACKET_BYTES * 8 * PATH_SECOND / path_rate(path) : 1000;
		if (busy)
			path_send(path);
		else if (path->busy(*next_ns))
			path_start(path);
	}
	path_receive_until(path, end_ns - 1);
}

#endif /* _CONTROLLER_PATH_H */
