// SPDX-License-Identifier: GPL-2.0-only
/* tc's words for the qdisc `abq`. */
#include "scheme_plugin.h"
#include "sch_abq.h"

static const char *abq_state_name(__u32 state)
{
	static const char * const names[] = { "US", "CS", "LCS" };

	return state < 3 ? names[state] : "?";
}

static int abq_print_xstats(const struct qdisc_util *qu, FILE *f, struct rtattr *xstats)
{
	struct tc_abq_xstats s = {};

	if (!scheme_read_xstats(&s, sizeof(s), xstats))
		return 0;
	print_string(PRINT_ANY, "state", "  state %s", abq_state_name(s.state));
	print_uint(PRINT_ANY, "x_bytes", " x %ub", s.x_bytes);
	print_uint(PRINT_ANY, "x_packets", " %up", s.x_packets);
	print_u64(PRINT_ANY, "entries_us", " entries US %llu", s.entries_us);
	print_u64(PRINT_ANY, "entries_cs", " CS %llu", s.entries_cs);
	print_u64(PRINT_ANY, "entries_lcs", " LCS %llu", s.entries_lcs);
	print_nl();
	print_uint(PRINT_ANY, "held_ipv4", "  held IPv4 %u", s.held_ipv4);
	print_uint(PRINT_ANY, "held_ipv6", " IPv6 %u", s.held_ipv6);
	print_uint(PRINT_ANY, "max_held", " at most %u", s.max_held);
	print_u64(PRINT_ANY, "held_packet_ns", " integral %llu packet ns", s.held_packet_ns);
	print_nl();
	print_u64(PRINT_ANY, "holds", "  holds %llu", s.holds);
	print_u64(PRINT_ANY, "releases", " releases %llu", s.releases);
	print_u64(PRINT_ANY, "released", " released %llu", s.released);
	print_u64(PRINT_ANY, "released_with_ece", " with ECE %llu", s.released_with_ece);
	print_u64(PRINT_ANY, "corrected", " corrected %llu", s.corrected);
	print_u64(PRINT_ANY, "overflow", " overflow %llu", s.overflow);
	return 0;
}

struct scheme_plugin abq_qdisc_util = {
	.util = SCHEME_UTIL("abq", abq_print_xstats),
	.usage = "limit AMOUNT threshold AMOUNT [ hold_limit PACKETS ] [ mtu BYTES ]\n"
		 "AMOUNT: BYTES, or a number of packets such as 20p",
	.options = {
		{ "limit", SCHEME_AMOUNT, TCA_ABQ_LIMIT_BYTES, TCA_ABQ_LIMIT_PACKETS },
		{ "threshold", SCHEME_AMOUNT, TCA_ABQ_THRESHOLD_BYTES, TCA_ABQ_THRESHOLD_PACKETS },
		{ "hold_limit", SCHEME_NUMBER, TCA_ABQ_HOLD_LIMIT },
		{ "mtu", SCHEME_NUMBER, TCA_ABQ_MTU },
	},
};
