/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Common code of the tc plugins of the schemes. A plugin consists of two
 * tables, generated from scheme.yml: how each option is parsed, encoded and
 * printed, and the list of statistics. It is built as q_NAME.so, in the folder
 * of TC_LIB_DIR or in iproute2's default folder.
 */
#ifndef _QBED_SCHEME_PLUGIN_H
#define _QBED_SCHEME_PLUGIN_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utils.h"
#include "tc_util.h"

#define SCHEME_MAX_OPTIONS 31
#define SCHEME_MAX_STATISTICS 63
#define SCHEME_MAX_ATTRIBUTE 63
#define SCHEME_MAX_CHOICES 7
#define SCHEME_STATISTICS_PER_LINE 6

enum scheme_kind {
	SCHEME_AMOUNT,		/* a size such as 128kb, or packets such as 20p: two attributes */
	SCHEME_SIZE,		/* bytes */
	SCHEME_NUMBER,
	SCHEME_TIME,
	SCHEME_RATE,		/* bit/s */
	SCHEME_FRACTION,
	SCHEME_FLAG,		/* on or off */
	SCHEME_CHOICE,		/* a word */
};

struct scheme_option {
	const char *name;
	enum scheme_kind kind;
	int bytes;		/* size of the attribute */
	int attribute;		/* attribute number; for an amount that in bytes */
	int packets;		/* for an amount: attribute number in packets */
	__u64 scale;		/* for a time: value of 1 ms; for a fraction: value of 1 */
	/* NULL-terminated; the index is the value */
	const char *choices[SCHEME_MAX_CHOICES + 1];
};

struct scheme_statistic {
	const char *name;
	int bytes;
};

/* A plugin exports one as NAME_qdisc_util; its first member is the one tc looks up. */
struct scheme_plugin {
	struct qdisc_util util;
	const char *usage;
	/* both end with an entry without a name */
	struct scheme_option options[SCHEME_MAX_OPTIONS + 1];
	struct scheme_statistic statistics[SCHEME_MAX_STATISTICS + 1];
};

/* Decodes an unsigned integer of any size, little-endian like the schemes' attributes. */
static __u64 scheme_number(const void *from, int bytes)
{
	__u64 value = 0;

	memcpy(&value, from, bytes);
	return value;
}

/* Parses a fraction such as 0.1 or 10%. Returns nonzero on error. */
static int scheme_get_fraction(__u64 *value, const char *text, __u64 one)
{
	char *end;
	double fraction = strtod(text, &end);

	if (!strcmp(end, "%"))
		fraction /= 100;
	else if (*end)
		return -1;
	if (end == text || !(fraction >= 0 && fraction <= 1))
		return -1;
	*value = fraction * one + 0.5;
	return 0;
}

/* Parses a choice. Returns nonzero if @text is not one of the words. */
static int scheme_get_choice(__u64 *value, const char *text, const struct scheme_option *option)
{
	__u64 number;

	for (number = 0; option->choices[number]; number++) {
		if (!strcmp(option->choices[number], text)) {
			*value = number;
			return 0;
		}
	}
	return -1;
}

/* Parses a value. Returns nonzero if @text is not a valid value of the option. */
static int scheme_read(const struct scheme_option *option, const char *text, __u64 *value)
{
	unsigned int bytes;
	__s64 ns;

	switch (option->kind) {
	case SCHEME_AMOUNT:
	case SCHEME_SIZE:
		if (get_size(&bytes, text))
			return -1;
		*value = bytes;
		return 0;
	case SCHEME_NUMBER:
		return get_u64(value, text, 0);
	case SCHEME_TIME:
		if (get_time64(&ns, text) || ns < 0)
			return -1;
		*value = ns / (1000000 / option->scale);
		return 0;
	case SCHEME_RATE:
		if (get_rate64(value, text))
			return -1;
		*value *= 8;
		return 0;
	case SCHEME_FRACTION:
		return scheme_get_fraction(value, text, option->scale);
	case SCHEME_FLAG:
		*value = !strcmp(text, "on");
		return *value || !strcmp(text, "off") ? 0 : -1;
	case SCHEME_CHOICE:
		return scheme_get_choice(value, text, option);
	}
	return -1;
}

static int scheme_add(struct nlmsghdr *n, const struct scheme_option *option, const char *text)
{
	int attribute = option->attribute;
	__u64 value;
	char *end;

	value = strtoull(text, &end, 10);
	if (option->kind == SCHEME_AMOUNT && end != text && !strcmp(end, "p"))
		attribute = option->packets;
	else if (scheme_read(option, text, &value))
		return -1;
	if (option->bytes < 8 && value >> (8 * option->bytes))
		return -1;
	return addattr_l(n, 1024, attribute, &value, option->bytes);
}

static const struct scheme_option *scheme_find(const struct scheme_plugin *plugin,
					       const char *name)
{
	const struct scheme_option *option;

	for (option = plugin->options; option->name; option++) {
		if (!strcmp(option->name, name))
			return option;
	}
	return NULL;
}

static int scheme_parse_opt(const struct qdisc_util *util, int argc, char **argv,
			    struct nlmsghdr *n, const char *dev)
{
	const struct scheme_plugin *plugin = (const struct scheme_plugin *)util;
	struct rtattr *tail = addattr_nest(n, 1024, TCA_OPTIONS);

	for (; argc > 0; argc -= 2, argv += 2) {
		const struct scheme_option *option = scheme_find(plugin, argv[0]);

		if (argc < 2 || !option || scheme_add(n, option, argv[1])) {
			if (strcmp(argv[0], "help"))
				fprintf(stderr, "%s: what is \"%s %s\"?\n", util->id, argv[0],
					argc < 2 ? "" : argv[1]);
			fprintf(stderr, "Usage: ... %s %s\n", util->id, plugin->usage);
			return -1;
		}
	}
	addattr_nest_end(n, tail);
	return 0;
}

/* Prints a value. @key: name in JSON */
static void scheme_print(const struct scheme_option *option, const char *key, __u64 value)
{
	char text[SPRINT_BSIZE];

	switch (option->kind) {
	case SCHEME_AMOUNT:
	case SCHEME_SIZE:
		print_size(PRINT_ANY, key, "%s ", value);
		break;
	case SCHEME_NUMBER:
		print_u64(PRINT_ANY, key, "%llu ", value);
		break;
	case SCHEME_TIME:
		value *= 1000000 / option->scale;
		print_u64(PRINT_JSON, key, NULL, value);
		print_string(PRINT_FP, NULL, "%s ", sprint_time64(value, text));
		break;
	case SCHEME_RATE:
		print_u64(PRINT_ANY, key, "%llubit ", value);
		break;
	case SCHEME_FRACTION:
		print_float(PRINT_ANY, key, "%g ", (double)value / option->scale);
		break;
	case SCHEME_FLAG:
		print_string(PRINT_ANY, key, "%s ", value ? "on" : "off");
		break;
	case SCHEME_CHOICE:
		/* a newer kernel may have further choices */
		if (value < SCHEME_MAX_CHOICES && option->choices[value])
			print_string(PRINT_ANY, key, "%s ", option->choices[value]);
		else
			print_u64(PRINT_ANY, key, "%llu ", value);
		break;
	}
}

static void scheme_print_option(const struct scheme_option *option, struct rtattr **tb)
{
	bool amount = option->kind == SCHEME_AMOUNT;
	struct rtattr *value = tb[option->attribute];
	struct rtattr *packets = amount ? tb[option->packets] : NULL;
	char key[32];

	if (!value && !packets)
		return;
	print_string(PRINT_FP, NULL, "%s ", option->name);
	snprintf(key, sizeof(key), amount ? "%s_bytes" : "%s", option->name);
	if (value)
		scheme_print(option, key, scheme_number(RTA_DATA(value), option->bytes));
	snprintf(key, sizeof(key), "%s_packets", option->name);
	if (packets)
		print_u64(PRINT_ANY, key, "%llup ", scheme_number(RTA_DATA(packets), option->bytes));
}

static int scheme_print_opt(const struct qdisc_util *util, FILE *f, struct rtattr *opt)
{
	const struct scheme_plugin *plugin = (const struct scheme_plugin *)util;
	struct rtattr *tb[SCHEME_MAX_ATTRIBUTE + 1];
	const struct scheme_option *option;

	if (!opt)
		return 0;
	parse_rtattr_nested(tb, SCHEME_MAX_ATTRIBUTE, opt);
	for (option = plugin->options; option->name; option++)
		scheme_print_option(option, tb);
	return 0;
}

/* Statistics that an older kernel does not provide are omitted. */
static int scheme_print_xstats(const struct qdisc_util *util, FILE *f, struct rtattr *xstats)
{
	const struct scheme_plugin *plugin = (const struct scheme_plugin *)util;
	const struct scheme_statistic *s;
	int shown = 0;
	size_t at = 0;

	if (!xstats)
		return 0;
	for (s = plugin->statistics; s->name; s++, shown++) {
		at = (at + s->bytes - 1) / s->bytes * s->bytes;
		if (at + s->bytes > RTA_PAYLOAD(xstats))
			break;
		if (shown && shown % SCHEME_STATISTICS_PER_LINE == 0)
			print_nl();
		print_string(PRINT_FP, NULL, shown % SCHEME_STATISTICS_PER_LINE ? " %s" : "  %s", s->name);
		print_u64(PRINT_ANY, s->name, " %llu",
			  scheme_number((char *)RTA_DATA(xstats) + at, s->bytes));
		at += s->bytes;
	}
	return 0;
}

/* The first parameters are const in newer versions of iproute2 only; hence the casts. */
#define SCHEME_UTIL(name) {				\
	.id = (name),					\
	.parse_qopt = (void *)scheme_parse_opt,		\
	.print_qopt = (void *)scheme_print_opt,		\
	.print_xstats = (void *)scheme_print_xstats,	\
}

#endif /* _QBED_SCHEME_PLUGIN_H */
