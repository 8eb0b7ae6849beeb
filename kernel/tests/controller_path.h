/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A path for one flow, in integers: packets leave at the controller's rate, wait
 * in one queue whose link's capacity changes, and are answered with everything
 * that any controller goes by. What a congestion point reflects does not wait.
 */
#ifndef _CONTROLLER_PATH_H
#define _CONTROLLER_PATH_H

#include <string.h>

#include "controllers.h"
#include "unit.h"

#define PATH_PACKET_BYTES 1500
#define PATH_BUFFER_BYTES (200 * PATH_PACKET_BYTES)
#define PATH_DELAY_NS 20000		/* there and back, without queueing */
#define PATH_AWAY 4096			/* answers on their way, at most */
#define PATH_Q_EQ 33			/* packets that a congestion point wants in the queue */
#define PATH_LARGEST 63			/* |Fb|, of 6 bits */
#define PATH_SECOND 1000000000ull

struct path_answer {
	struct rate_ack ack;
	bool lost;
};

struct path {
	const struct rate_controller *controller;
	const void *params;
	u8 kind;		/* enum qsignal_kind, in bytes */
	u64 (*capacity)(u64 now_ns);
	bool (*answered)(u64 now_ns);	/* of answers that arrive now */
	bool (*busy)(u64 now_ns);	/* the flow has something to send */
	u64 state[32];
	u64 now_ns, drained_ns, packets, dropped;
	u64 queue_bytes;
	s64 arrival_packets;	/* in the queue, when the last packet arrived */
	u32 sampling;		/* probabilities of being sampled that add up to a sample */
	struct path_answer away[PATH_AWAY];
	u32 first, last;
	struct rate_feedback told[PATH_AWAY];
	u32 first_told, last_told;
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
 * packets, and says also of one in eight samples that there is no congestion.
 */
static void path_sample(struct path *path)
{
	s64 packets = path->queue_bytes / PATH_PACKET_BYTES;
	s64 congestion = packets - PATH_Q_EQ + 2 * (packets - path->arrival_packets);
	u32 magnitude = congestion > 0 ? congestion * PATH_LARGEST / (5 * PATH_Q_EQ) : 0;

	path->arrival_packets = packets;
	magnitude = magnitude < PATH_LARGEST ? magnitude : PATH_LARGEST;
	path->sampling += PATH_LARGEST + 24 * magnitude;
	if (path->sampling < 100 * PATH_LARGEST)
		return;
	path->sampling -= 100 * PATH_LARGEST;
	if (!magnitude && path->packets % 8)
		return;
	EXPECT(path->last_told - path->first_told < PATH_AWAY);
	path->told[path->last_told++ % PATH_AWAY] = (struct rate_feedback) {
		.now_ns = path->now_ns + PATH_DELAY_NS,
		.magnitude = magnitude,
		.most = PATH_LARGEST,
	};
}

static void path_send(struct path *path)
{
	struct path_answer *answer = &path->away[path->last % PATH_AWAY];
	u64 wait_ns;

	path_drain(path);
	EXPECT(path->last - path->first < PATH_AWAY);
	path->last++;
	path->packets++;
	*answer = (struct path_answer) {
		.lost = path->queue_bytes + PATH_PACKET_BYTES > PATH_BUFFER_BYTES,
	};
	path_sample(path);
	path->dropped += answer->lost;
	path->queue_bytes += answer->lost ? 0 : PATH_PACKET_BYTES;
	wait_ns = path->queue_bytes * 8 * PATH_SECOND / path->capacity(path->now_ns);
	answer->ack = (struct rate_ack) {
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

static void path_receive(struct path *path, const struct path_answer *answer)
{
	const struct rate_controller *controller = path->controller;

	path->now_ns = answer->ack.now_ns;
	path->first++;
	if (!path->answered(path->now_ns))
		return;
	if (answer->lost && controller->on_loss)
		controller->on_loss(path->state, path->params, path->now_ns);
	if (!answer->lost && controller->on_ack)
		controller->on_ack(path->state, path->params, &answer->ack);
}

static void path_hear(struct path *path, const struct rate_feedback *feedback)
{
	path->now_ns = feedback->now_ns;
	path->first_told++;
	if (path->answered(path->now_ns) && path->controller->on_feedback)
		path->controller->on_feedback(path->state, path->params, feedback);
}

/* What comes back until @end_ns. */
static void path_listen(struct path *path, u64 end_ns)
{
	for (;;) {
		const struct path_answer *answer = &path->away[path->first % PATH_AWAY];
		const struct rate_feedback *told = &path->told[path->first_told % PATH_AWAY];
		u64 answer_ns = path->first != path->last ? answer->ack.now_ns : U64_MAX;
		u64 told_ns = path->first_told != path->last_told ? told->now_ns : U64_MAX;

		if (answer_ns > end_ns && told_ns > end_ns)
			return;
		if (told_ns < answer_ns)
			path_hear(path, told);
		else
			path_receive(path, answer);
	}
}

/* Until @end_ns; @next_ns: when the flow may send again. */
static void path_run(struct path *path, u64 *next_ns, u64 end_ns)
{
	bool busy;

	while (*next_ns < end_ns) {
		path_listen(path, *next_ns);
		path->now_ns = *next_ns;
		busy = path->busy(path->now_ns);
		*next_ns += busy ? PATH_PACKET_BYTES * 8 * PATH_SECOND / path_rate(path) : 1000;
		if (busy)
			path_send(path);
		else if (path->busy(*next_ns))
			path_start(path);
	}
	path_listen(path, end_ns - 1);
}

#endif /* _CONTROLLER_PATH_H */
