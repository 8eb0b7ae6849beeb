/* SPDX-License-Identifier: GPL-2.0-only */
/* Round-trip times and how long to wait for an answer: RFC 9002, 5.3 and 6.2. */
#ifndef _QRATE_RTT_H
#define _QRATE_RTT_H

#include <qbed/types.h>

#define QRATE_MOST_BACKOFF 10

struct qrate_rtt_params {
	u64 first_ns;		/* how long to wait while no round trip is known */
	u64 least_ns;		/* at least, then */
};

struct qrate_rtt {
	u64 last_ns;
	u64 least_ns;
	u64 smoothed_ns;	/* 0: none known */
	u64 variation_ns;
	u32 backoff;		/* timeouts in a row */
};

static inline void qrate_rtt_sample(struct qrate_rtt *rtt, u64 rtt_ns)
{
	u64 distance_ns;

	rtt->last_ns = rtt_ns;
	if (!rtt->smoothed_ns) {
		rtt->least_ns = rtt_ns;
		rtt->smoothed_ns = rtt_ns ? rtt_ns : 1;
		rtt->variation_ns = rtt_ns / 2;
		return;
	}
	if (rtt_ns < rtt->least_ns)
		rtt->least_ns = rtt_ns;
	distance_ns = rtt_ns > rtt->smoothed_ns ? rtt_ns - rtt->smoothed_ns :
						  rtt->smoothed_ns - rtt_ns;
	rtt->variation_ns = (3 * rtt->variation_ns + distance_ns) / 4;
	rtt->smoothed_ns = (7 * rtt->smoothed_ns + rtt_ns) / 8;
	if (!rtt->smoothed_ns)
		rtt->smoothed_ns = 1;
}

/* RFC 9002, 6.2.1, without the delay of acknowledgements, which there is none of */
static inline u64 qrate_rtt_timeout_ns(const struct qrate_rtt *rtt, struct qrate_rtt_params params)
{
	u64 timeout_ns = params.first_ns;

	if (rtt->smoothed_ns) {
		timeout_ns = rtt->smoothed_ns + 4 * rtt->variation_ns;
		if (timeout_ns < params.least_ns)
			timeout_ns = params.least_ns;
	}
	return timeout_ns << rtt->backoff;
}

/* RFC 9002, 6.1.2: what was sent so long before now, and before what was answered, is lost. */
static inline u64 qrate_rtt_threshold_ns(const struct qrate_rtt *rtt)
{
	u64 larger_ns = rtt->smoothed_ns > rtt->last_ns ? rtt->smoothed_ns : rtt->last_ns;

	return larger_ns + larger_ns / 8;
}

#endif /* _QRATE_RTT_H */
