// SPDX-License-Identifier: GPL-2.0-only
/* tc's words for the qdisc `rpm`. */
#include "scheme_plugin.h"
#include "sch_rpm.h"

static int rpm_print_xstats(const struct qdisc_util *qu, FILE *f, struct rtattr *xstats)
{
	struct tc_rpm_xstats s = {};

	if (!scheme_read_xstats(&s, sizeof(s), xstats))
		return 0;
	print_u64(PRINT_ANY, "marked", "  marked %llu", s.marked);
	print_u64(PRINT_ANY, "reverse_marks", " reverse %llu", s.reverse_marks);
	print_u64(PRINT_ANY, "forward_marks", " forward %llu", s.forward_marks);
	print_u64(PRINT_ANY, "collisions", " collisions %llu", s.collisions);
	print_u64(PRINT_ANY, "ce_arrived", " ce_arrived %llu", s.ce_arrived);
	print_nl();
	print_u64(PRINT_ANY, "ece_already_set", "  ece_already_set %llu", s.ece_already_set);
	print_u64(PRINT_ANY, "cleared", " cleared %llu", s.cleared);
	print_u64(PRINT_ANY, "pending", " pending %llu", s.pending);
	print_u64(PRINT_ANY, "pending_ns", " pending_ns %llu", s.pending_ns);
	print_nl();
	print_u64(PRINT_ANY, "dropped", "  dropped %llu", s.dropped);
	print_u64(PRINT_ANY, "overlimit", " overlimit %llu", s.overlimit);
	print_u64(PRINT_ANY, "ldelay_ns", " ldelay_ns %llu", s.ldelay_ns);
	print_uint(PRINT_ANY, "count", " count %u", s.count);
	print_uint(PRINT_ANY, "lastcount", " lastcount %u", s.lastcount);
	print_uint(PRINT_ANY, "dropping", " dropping %u", s.dropping);
	print_uint(PRINT_ANY, "maxpacket", " maxpacket %u", s.maxpacket);
	return 0;
}

struct scheme_plugin rpm_qdisc_util = {
	.util = SCHEME_UTIL("rpm", rpm_print_xstats),
	.usage = "limit AMOUNT [ target TIME ] [ interval TIME ] [ per_port { on | off } ]\n"
		 "           [ registers NUMBER ] [ reverse_timeout TIME ]\n"
		 "AMOUNT: BYTES, or a number of packets such as 20p",
	.options = {
		{ "limit", SCHEME_AMOUNT, TCA_RPM_LIMIT_BYTES, TCA_RPM_LIMIT_PACKETS },
		{ "target", SCHEME_TIME, TCA_RPM_TARGET_NS },
		{ "interval", SCHEME_TIME, TCA_RPM_INTERVAL_NS },
		{ "per_port", SCHEME_FLAG, TCA_RPM_PER_PORT },
		{ "registers", SCHEME_NUMBER, TCA_RPM_REGISTERS },
		{ "reverse_timeout", SCHEME_TIME, TCA_RPM_REVERSE_TIMEOUT_NS },
	},
};
