// SPDX-License-Identifier: GPL-2.0-only
/*
 * tc's words for the qdisc `rpm`: a plugin, q_rpm.so in the folder of TC_LIB_DIR
 * or where the system's iproute2 looks for them. An amount is a size (`128kb`, as
 * tc reads sizes) or a number of packets (`20p`).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utils.h"
#include "tc_util.h"

#include "sch_rpm.h"

static void explain(void)
{
	fprintf(stderr,
		"Usage: ... rpm limit AMOUNT [ target TIME ] [ interval TIME ] [ per_port { on | off } ]\n"
		"           [ registers NUMBER ] [ reverse_timeout TIME ]\n"
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

static int add_time(struct nlmsghdr *n, int number, const char *text)
{
	__s64 ns;

	return get_time64(&ns, text) || addattr64(n, 1024, number, ns) ? -1 : 0;
}

static int add_flag(struct nlmsghdr *n, int number, const char *text)
{
	if (strcmp(text, "on") && strcmp(text, "off"))
		return -1;
	return addattr32(n, 1024, number, !strcmp(text, "on"));
}

static int rpm_option(struct nlmsghdr *n, const char *name, const char *value)
{
	if (!strcmp(name, "limit"))
		return add_amount(n, TCA_RPM_LIMIT_BYTES, TCA_RPM_LIMIT_PACKETS, value);
	if (!strcmp(name, "target"))
		return add_time(n, TCA_RPM_TARGET_NS, value);
	if (!strcmp(name, "interval"))
		return add_time(n, TCA_RPM_INTERVAL_NS, value);
	if (!strcmp(name, "per_port"))
		return add_flag(n, TCA_RPM_PER_PORT, value);
	if (!strcmp(name, "registers"))
		return add_number(n, TCA_RPM_REGISTERS, value);
	if (!strcmp(name, "reverse_timeout"))
		return add_time(n, TCA_RPM_REVERSE_TIMEOUT_NS, value);
	return -1;
}

static int rpm_parse_opt(const struct qdisc_util *qu, int argc, char **argv, struct nlmsghdr *n,
			 const char *dev)
{
	struct rtattr *tail = addattr_nest(n, 1024, TCA_OPTIONS);

	for (; argc > 0; argc -= 2, argv += 2) {
		if (argc < 2 || rpm_option(n, argv[0], argv[1])) {
			if (strcmp(argv[0], "help"))
				fprintf(stderr, "rpm: what is \"%s %s\"?\n", argv[0],
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

static void print_time(struct rtattr *attribute, const char *key, const char *format)
{
	SPRINT_BUF(text);

	if (!attribute)
		return;
	print_u64(PRINT_JSON, key, NULL, rta_getattr_u64(attribute));
	print_string(PRINT_FP, NULL, format, sprint_time64(rta_getattr_u64(attribute), text));
}

static int rpm_print_opt(const struct qdisc_util *qu, FILE *f, struct rtattr *opt)
{
	struct rtattr *tb[TCA_RPM_MAX + 1];

	if (!opt)
		return 0;
	parse_rtattr_nested(tb, TCA_RPM_MAX, opt);
	print_bytes(tb[TCA_RPM_LIMIT_BYTES], "limit_bytes", "limit %s ");
	print_number(tb[TCA_RPM_LIMIT_PACKETS], "limit_packets", "limit %up ");
	print_time(tb[TCA_RPM_TARGET_NS], "target", "target %s ");
	print_time(tb[TCA_RPM_INTERVAL_NS], "interval", "interval %s ");
	if (tb[TCA_RPM_PER_PORT])
		print_string(PRINT_ANY, "per_port", "per_port %s ", rta_getattr_u32(tb[TCA_RPM_PER_PORT]) ? "on" : "off");
	print_number(tb[TCA_RPM_REGISTERS], "registers", "registers %u ");
	print_time(tb[TCA_RPM_REVERSE_TIMEOUT_NS], "reverse_timeout", "reverse_timeout %s ");
	return 0;
}

static int rpm_print_xstats(const struct qdisc_util *qu, FILE *f, struct rtattr *xstats)
{
	struct tc_rpm_xstats s = {};
	size_t length;

	if (!xstats)
		return 0;
	length = RTA_PAYLOAD(xstats);
	memcpy(&s, RTA_DATA(xstats), length < sizeof(s) ? length : sizeof(s));
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

/* The first parameter is const in newer versions of iproute2 only; hence the casts. */
struct qdisc_util rpm_qdisc_util = {
	.id = "rpm",
	.parse_qopt = (void *)rpm_parse_opt,
	.print_qopt = (void *)rpm_print_opt,
	.print_xstats = (void *)rpm_print_xstats,
};
