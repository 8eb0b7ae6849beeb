// SPDX-License-Identifier: GPL-2.0-only
/*
 * tc's words for the qdisc `abq`: a plugin, q_abq.so in the folder of TC_LIB_DIR
 * or where the system's iproute2 looks for them. An amount is a size (`128kb`, as
 * tc reads sizes) or a number of packets (`20p`).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utils.h"
#include "tc_util.h"

#include "sch_abq.h"

static void explain(void)
{
	fprintf(stderr,
		"Usage: ... abq limit AMOUNT threshold AMOUNT [ hold_limit PACKETS ] [ mtu BYTES ]\n"
		"AMOUNT: BYTES, or a number of packets such as 20p\n");
}

/* Adds @text as @bytes or as @packets, the attributes' numbers. */
static int add_amount(struct nlmsghdr *n, int bytes, int packets, const char *text)
{
	unsigned int value;
	char *end;

	value = strtoul(text, &end, 10);
	if (end != text && !strcmp(end, "p"))
		return addattr32(n, 1024, packets, value);
	if (get_size(&value, text))
		return -1;
	return addattr32(n, 1024, bytes, value);
}

static int add_number(struct nlmsghdr *n, int number, const char *text)
{
	unsigned int value;

	return get_unsigned(&value, text, 0) || addattr32(n, 1024, number, value) ? -1 : 0;
}

static int abq_option(struct nlmsghdr *n, const char *name, const char *value)
{
	if (!strcmp(name, "limit"))
		return add_amount(n, TCA_ABQ_LIMIT_BYTES, TCA_ABQ_LIMIT_PACKETS, value);
	if (!strcmp(name, "threshold"))
		return add_amount(n, TCA_ABQ_THRESHOLD_BYTES, TCA_ABQ_THRESHOLD_PACKETS, value);
	if (!strcmp(name, "hold_limit"))
		return add_number(n, TCA_ABQ_HOLD_LIMIT, value);
	if (!strcmp(name, "mtu"))
		return add_number(n, TCA_ABQ_MTU, value);
	return -1;
}

static int abq_parse_opt(const struct qdisc_util *qu, int argc, char **argv, struct nlmsghdr *n,
			 const char *dev)
{
	struct rtattr *tail = addattr_nest(n, 1024, TCA_OPTIONS);

	for (; argc > 0; argc -= 2, argv += 2) {
		if (argc < 2 || abq_option(n, argv[0], argv[1])) {
			if (strcmp(argv[0], "help"))
				fprintf(stderr, "abq: what is \"%s %s\"?\n", argv[0],
					argc < 2 ? "" : argv[1]);
			explain();
			return -1;
		}
	}
	addattr_nest_end(n, tail);
	return 0;
}

static void print_number(struct rtattr *attribute, const char *key, const char *format)
{
	if (attribute)
		print_uint(PRINT_ANY, key, format, rta_getattr_u32(attribute));
}

static void print_bytes(struct rtattr *attribute, const char *key, const char *format)
{
	if (attribute)
		print_size(PRINT_ANY, key, format, rta_getattr_u32(attribute));
}

static int abq_print_opt(const struct qdisc_util *qu, FILE *f, struct rtattr *opt)
{
	struct rtattr *tb[TCA_ABQ_MAX + 1];

	if (!opt)
		return 0;
	parse_rtattr_nested(tb, TCA_ABQ_MAX, opt);
	print_bytes(tb[TCA_ABQ_LIMIT_BYTES], "limit_bytes", "limit %s ");
	print_number(tb[TCA_ABQ_LIMIT_PACKETS], "limit_packets", "limit %up ");
	print_bytes(tb[TCA_ABQ_THRESHOLD_BYTES], "threshold_bytes", "threshold %s ");
	print_number(tb[TCA_ABQ_THRESHOLD_PACKETS], "threshold_packets", "threshold %up ");
	print_number(tb[TCA_ABQ_HOLD_LIMIT], "hold_limit", "hold_limit %u ");
	print_number(tb[TCA_ABQ_MTU], "mtu", "mtu %u ");
	return 0;
}

static const char *abq_state_name(__u32 state)
{
	static const char * const names[] = { "US", "CS", "LCS" };

	return state < 3 ? names[state] : "?";
}

static int abq_print_xstats(const struct qdisc_util *qu, FILE *f, struct rtattr *xstats)
{
	struct tc_abq_xstats s = {};
	size_t length;

	if (!xstats)
		return 0;
	length = RTA_PAYLOAD(xstats);
	memcpy(&s, RTA_DATA(xstats), length < sizeof(s) ? length : sizeof(s));
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

/* The first parameter is const in newer versions of iproute2 only; hence the casts. */
struct qdisc_util abq_qdisc_util = {
	.id = "abq",
	.parse_qopt = (void *)abq_parse_opt,
	.print_qopt = (void *)abq_print_opt,
	.print_xstats = (void *)abq_print_xstats,
};
