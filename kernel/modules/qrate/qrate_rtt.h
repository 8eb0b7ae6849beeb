/* SPDX-License-Identifier: GPL-2.0-only */
/* Round-trip time estimate and probe timeout: RFC 9002, 5.3 and 6.2. */
#ifndef _QRATE_RTT_H
#define _QRATE_RTT_H

#include <qbed/types.h>

#define QRATE_MAX_BACKOFF 10

struct qrate_rtt_params {
	u64 first_ns;		/* timeout before the first RTT sample */
	u64 min_ns;		/* minimum timeout after it */
};

struct qrate_rtt {
	u64 last_ns;
	u64 min_ns;
	u64 smoothed_ns;	/* 0: no sample yet */
	u64 variation_ns;
	u32 backoff;		/* timeouts in a row */
};

static inline void qrate_rtt_sample(struct qrate_rtt *rtt, u64 rtt_ns)
{
	u64 distance_ns;

	rtt->last_ns = rtt_ns;
	if (!rtt->smoothed_ns) {
		rtt->min_ns = rtt_ns;
		rtt->smoothed_ns = rtt_ns ? rtt_ns : 1;
		rtt->variation_ns = rtt_ns / 2;
		return;
	}
	if (rtt_ns < rtt->min_ns)
		rtt->min_ns = rtt_ns;
	distance_ns = rtt_ns > rtt->smoothed_ns ? rtt_ns - rtt->smoothed_ns :
						  rtt->smoothed_ns - rtt_ns;
	rtt->variation_ns = (3 * rtt->variation_ns + distance_ns) / 4;
	rtt->smoothed_ns = (7 * rtt->smoothed_ns + rtt_ns) / 8;
	if (!rtt->smoothed_ns)
		rtt->smoothed_ns = 1;
}

/* RFC 9002, 6.2.1. There is no acknowledgement delay. */
static inline u64 qrate_rtt_timeout_ns(const struct qrate_rtt *rtt, struct qrate_rtt_params params)
{
	u64 timeout_ns = params.first_ns;

	if (rtt->smoothed_ns) {
		timeout_ns = rtt->smoothed_ns + 4 * rtt->variation_ns;
		if (timeout_ns < params.min_ns)
			timeout_ns = params.min_ns;
	}
	return timeout_ns << rtt->backoff;
}

/*
 * RFC 9002, 6.1.2: an unacknowledged packet sent this long ago, and before an
 * acknowledged one, is lost.
 */
static inline u64 qrate_rtt_threshold_ns(const struct qrate_rtt *rtt)
{
	u64 larger_ns = rtt->smoothed_ns > rtt->last_ns ? rtt->smoothed_ns : rtt->last_ns;

	return larger_ns + larger_ns / 8;
}

#endif /* _QRATE_RTT_H */
