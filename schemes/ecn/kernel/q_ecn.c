// SPDX-License-Identifier: GPL-2.0-only
/* tc's words for the qdisc `ecn`. */
#include "scheme_plugin.h"
#include "sch_ecn.h"

static int ecn_print_xstats(const struct qdisc_util *qu, FILE *f, struct rtattr *xstats)
{
	struct tc_ecn_xstats s = {};

	if (!scheme_read_xstats(&s, sizeof(s), xstats))
		return 0;
	print_u64(PRINT_ANY, "marked", "  marked %llu", s.marked);
	print_u64(PRINT_ANY, "unmarked", " unmarked %llu", s.unmarked);
	print_u64(PRINT_ANY, "dropped", " dropped %llu", s.dropped);
	return 0;
}

struct scheme_plugin ecn_qdisc_util = {
	.util = SCHEME_UTIL("ecn", ecn_print_xstats),
	.usage = "limit AMOUNT [ threshold AMOUNT ]\n"
		 "AMOUNT: BYTES, or a number of packets such as 20p",
	.options = {
		{ "limit", SCHEME_AMOUNT, TCA_ECN_LIMIT_BYTES, TCA_ECN_LIMIT_PACKETS },
		{ "threshold", SCHEME_AMOUNT, TCA_ECN_THRESHOLD_BYTES, TCA_ECN_THRESHOLD_PACKETS },
	},
};
