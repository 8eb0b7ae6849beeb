// SPDX-License-Identifier: GPL-2.0-only
/*
 * tc's words for the qdisc `ecn`: a plugin, q_ecn.so in the folder of TC_LIB_DIR
 * or where the system's iproute2 looks for them. An amount is a size (`128kb`, as
 * tc reads sizes) or a number of packets (`20p`).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utils.h"
#include "tc_util.h"

#include "sch_ecn.h"

static void explain(void)
{
	fprintf(stderr,
		"Usage: ... ecn limit AMOUNT [ threshold AMOUNT ]\n"
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

static int ecn_option(struct nlmsghdr *n, const char *name, const char *value)
{
	if (!strcmp(name, "limit"))
		return add_amount(n, TCA_ECN_LIMIT_BYTES, TCA_ECN_LIMIT_PACKETS, value);
	if (!strcmp(name, "threshold"))
		return add_amount(n, TCA_ECN_THRESHOLD_BYTES, TCA_ECN_THRESHOLD_PACKETS, value);
	return -1;
}

static int ecn_parse_opt(const struct qdisc_util *qu, int argc, char **argv, struct nlmsghdr *n,
			 const char *dev)
{
	struct rtattr *tail = addattr_nest(n, 1024, TCA_OPTIONS);

	for (; argc > 0; argc -= 2, argv += 2) {
		if (argc < 2 || ecn_option(n, argv[0], argv[1])) {
			if (strcmp(argv[0], "help"))
				fprintf(stderr, "ecn: what is \"%s %s\"?\n", argv[0],
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

static int ecn_print_opt(const struct qdisc_util *qu, FILE *f, struct rtattr *opt)
{
	struct rtattr *tb[TCA_ECN_MAX + 1];

	if (!opt)
		return 0;
	parse_rtattr_nested(tb, TCA_ECN_MAX, opt);
	print_bytes(tb[TCA_ECN_LIMIT_BYTES], "limit_bytes", "limit %s ");
	print_number(tb[TCA_ECN_LIMIT_PACKETS], "limit_packets", "limit %up ");
	print_bytes(tb[TCA_ECN_THRESHOLD_BYTES], "threshold_bytes", "threshold %s ");
	print_number(tb[TCA_ECN_THRESHOLD_PACKETS], "threshold_packets", "threshold %up ");
	return 0;
}

static int ecn_print_xstats(const struct qdisc_util *qu, FILE *f, struct rtattr *xstats)
{
	struct tc_ecn_xstats s = {};
	size_t length;

	if (!xstats)
		return 0;
	length = RTA_PAYLOAD(xstats);
	memcpy(&s, RTA_DATA(xstats), length < sizeof(s) ? length : sizeof(s));
	print_u64(PRINT_ANY, "marked", "  marked %llu", s.marked);
	print_u64(PRINT_ANY, "unmarked", " unmarked %llu", s.unmarked);
	print_u64(PRINT_ANY, "dropped", " dropped %llu", s.dropped);
	return 0;
}

/* The first parameter is const in newer versions of iproute2 only; hence the casts. */
struct qdisc_util ecn_qdisc_util = {
	.id = "ecn",
	.parse_qopt = (void *)ecn_parse_opt,
	.print_qopt = (void *)ecn_print_opt,
	.print_xstats = (void *)ecn_print_xstats,
};
