// SPDX-License-Identifier: GPL-2.0-only
/* tc's words for the qdisc `qcodel`. */
#include "scheme_plugin.h"
#include "sch_qcodel.h"

static int qcodel_print_xstats(const struct qdisc_util *qu, FILE *f, struct rtattr *xstats)
{
	struct tc_qcodel_xstats s = {};

	if (!scheme_read_xstats(&s, sizeof(s), xstats))
		return 0;
	print_u64(PRINT_ANY, "marked", "  marked %llu", s.marked);
	print_u64(PRINT_ANY, "dropped", " dropped %llu", s.dropped);
	print_u64(PRINT_ANY, "overlimit", " overlimit %llu", s.overlimit);
	print_u64(PRINT_ANY, "ldelay_ns", " ldelay_ns %llu", s.ldelay_ns);
	print_nl();
	print_uint(PRINT_ANY, "count", "  count %u", s.count);
	print_uint(PRINT_ANY, "lastcount", " lastcount %u", s.lastcount);
	print_uint(PRINT_ANY, "dropping", " dropping %u", s.dropping);
	print_uint(PRINT_ANY, "maxpacket", " maxpacket %u", s.maxpacket);
	return 0;
}

struct scheme_plugin qcodel_qdisc_util = {
	.util = SCHEME_UTIL("qcodel", qcodel_print_xstats),
	.usage = "limit AMOUNT [ target TIME ] [ interval TIME ] [ ecn { on | off } ] [ mtu BYTES ]\n"
		 "AMOUNT: BYTES, or a number of packets such as 20p",
	.options = {
		{ "limit", SCHEME_AMOUNT, TCA_QCODEL_LIMIT_BYTES, TCA_QCODEL_LIMIT_PACKETS },
		{ "target", SCHEME_TIME, TCA_QCODEL_TARGET_NS },
		{ "interval", SCHEME_TIME, TCA_QCODEL_INTERVAL_NS },
		{ "ecn", SCHEME_FLAG, TCA_QCODEL_ECN },
		{ "mtu", SCHEME_NUMBER, TCA_QCODEL_MTU },
	},
};
