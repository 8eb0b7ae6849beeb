// SPDX-License-Identifier: GPL-2.0-only
/* The controller aimd: a round trip without queueing adds the step, one with queueing or a loss cuts the rate. */
#include "aimd.h"
#include "unit.h"

static const struct aimd_params defaults = AIMD_DEFAULTS;

/* An acknowledgement at @now_ns of a packet with this round-trip time. */
static void acknowledge(struct aimd_state *state, const struct aimd_params *params, u64 now_ns, u64 rtt_ns)
{
	struct rate_ack ack = { .now_ns = now_ns, .rtt_ns = rtt_ns, .bytes = 1500, .kind = QSIGNAL_NONE };

	aimd_on_ack(state, params, &ack);
}

int main(void)
{
	const u64 rtt_ns = defaults.min_rtt_ns, start_bps = defaults.start_rate_bps;
	const u64 late_ns = defaults.min_rtt_ns + defaults.threshold_ns + 1;
	struct aimd_state state;

	aimd_start(&state, &defaults, 0);
	acknowledge(&state, &defaults, rtt_ns - 1, rtt_ns);
	EXPECT_EQUAL(aimd_rate(&state, &defaults), start_bps);	/* within the round trip */
	acknowledge(&state, &defaults, rtt_ns, rtt_ns);
	EXPECT_EQUAL(aimd_rate(&state, &defaults), start_bps + defaults.step_bps);

	/* One late packet of a round trip decides, and the next round trip begins anew. */
	acknowledge(&state, &defaults, rtt_ns + 1, late_ns);
	acknowledge(&state, &defaults, 2 * rtt_ns, rtt_ns);
	EXPECT_EQUAL(aimd_rate(&state, &defaults), (start_bps + defaults.step_bps) / 2);
	acknowledge(&state, &defaults, 3 * rtt_ns, rtt_ns);
	EXPECT_EQUAL(aimd_rate(&state, &defaults), (start_bps + defaults.step_bps) / 2 + defaults.step_bps);

	/* A loss cuts as well; the rate stays within its limits. */
	for (int i = 4; i < 20; i++) {
		aimd_on_loss(&state, &defaults, i * rtt_ns - 1);
		acknowledge(&state, &defaults, i * rtt_ns, rtt_ns);
	}
	EXPECT_EQUAL(aimd_rate(&state, &defaults), defaults.min_rate_bps);
	for (int i = 20; i < 200; i++)
		acknowledge(&state, &defaults, i * rtt_ns, rtt_ns);
	EXPECT_EQUAL(aimd_rate(&state, &defaults), defaults.max_rate_bps);
	printf("%s: pass\n", __FILE__);
	return 0;
}
