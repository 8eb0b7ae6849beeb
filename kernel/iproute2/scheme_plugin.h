/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What tc's plugins of the schemes share: a table of options says how each is
 * read, sent and shown. A plugin is q_NAME.so, in the folder of TC_LIB_DIR or where
 * the system's iproute2 looks for them.
 */
#ifndef _QBED_SCHEME_PLUGIN_H
#define _QBED_SCHEME_PLUGIN_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utils.h"
#include "tc_util.h"

#define SCHEME_MAX_OPTIONS 16
#define SCHEME_MAX_ATTRIBUTE 31

enum scheme_kind {
	SCHEME_AMOUNT,		/* a size such as 128kb, or packets such as 20p: two attributes */
	SCHEME_NUMBER,		/* u32 */
	SCHEME_TIME,		/* u64, ns */
	SCHEME_FLAG,		/* u32: on or off */
};

struct scheme_option {
	const char *name;
	enum scheme_kind kind;
	int attribute;		/* of an amount: in bytes */
	int packets;		/* of an amount: the attribute in packets */
};

/* A plugin exports one of these as NAME_qdisc_util, whose first member tc looks for. */
struct scheme_plugin {
	struct qdisc_util util;
	const char *usage;
	struct scheme_option options[SCHEME_MAX_OPTIONS];	/* up to the first without a name */
};

static int scheme_add_amount(struct nlmsghdr *n, const struct scheme_option *option,
			     const char *text)
{
	unsigned int value;
	char *end;

	value = strtoul(text, &end, 10);
	if (end != text && !strcmp(end, "p"))
		return addattr32(n, 1024, option->packets, value);
	return get_size(&value, text) ? -1 : addattr32(n, 1024, option->attribute, value);
}

/* Not 0: @text is no value of the option. */
static int scheme_add(struct nlmsghdr *n, const struct scheme_option *option, const char *text)
{
	unsigned int value;
	__s64 ns;

	switch (option->kind) {
	case SCHEME_AMOUNT:
		return scheme_add_amount(n, option, text);
	case SCHEME_NUMBER:
		return get_unsigned(&value, text, 0) || addattr32(n, 1024, option->attribute, value);
	case SCHEME_TIME:
		return get_time64(&ns, text) || addattr64(n, 1024, option->attribute, ns);
	case SCHEME_FLAG:
		if (strcmp(text, "on") && strcmp(text, "off"))
			return -1;
		return addattr32(n, 1024, option->attribute, !strcmp(text, "on"));
	}
	return -1;
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

static void scheme_print(const struct scheme_option *option, struct rtattr *value,
			 struct rtattr *packets)
{
	char key[32], text[SPRINT_BSIZE];

	if (!value && !packets)
		return;
	print_string(PRINT_FP, NULL, "%s ", option->name);
	snprintf(key, sizeof(key), option->kind == SCHEME_AMOUNT ? "%s_bytes" : "%s", option->name);
	switch (option->kind) {
	case SCHEME_AMOUNT:
		if (value)
			print_size(PRINT_ANY, key, "%s ", rta_getattr_u32(value));
		snprintf(key, sizeof(key), "%s_packets", option->name);
		if (packets)
			print_uint(PRINT_ANY, key, "%up ", rta_getattr_u32(packets));
		break;
	case SCHEME_NUMBER:
		print_uint(PRINT_ANY, key, "%u ", rta_getattr_u32(value));
		break;
	case SCHEME_TIME:
		print_u64(PRINT_JSON, key, NULL, rta_getattr_u64(value));
		print_string(PRINT_FP, NULL, "%s ", sprint_time64(rta_getattr_u64(value), text));
		break;
	case SCHEME_FLAG:
		print_string(PRINT_ANY, key, "%s ", rta_getattr_u32(value) ? "on" : "off");
		break;
	}
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
		scheme_print(option, tb[option->attribute],
			     option->kind == SCHEME_AMOUNT ? tb[option->packets] : NULL);
	return 0;
}

/* Fills @into, which is of @size and zero; an older kernel gives less. False: there are no statistics. */
static bool scheme_read_xstats(void *into, size_t size, struct rtattr *xstats)
{
	if (!xstats)
		return false;
	memcpy(into, RTA_DATA(xstats), RTA_PAYLOAD(xstats) < size ? RTA_PAYLOAD(xstats) : size);
	return true;
}

/* The first parameters are const in newer versions of iproute2 only; hence the casts. */
#define SCHEME_UTIL(name, xstats) {			\
	.id = (name),					\
	.parse_qopt = (void *)scheme_parse_opt,		\
	.print_qopt = (void *)scheme_print_opt,		\
	.print_xstats = (void *)(xstats),		\
}

#endif /* _QBED_SCHEME_PLUGIN_H */
