// SPDX-License-Identifier: GPL-2.0-only
/*
 * ip plugin for the link device: `ip link add qa type qlink rate 10gbit delay
 * 5us peer qb` (IP_LIB_DIR is its folder).
 * Options of this end apply to the other end as well, unless a peer-... option
 * is given.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <net/if.h>
#include <linux/if_link.h>

#include "utils.h"
#include "ip_common.h"

#include "qlink.h"

#define PEER_SHIFT	(IFLA_QLINK_PEER_RATE - IFLA_QLINK_RATE)

static const struct {
	const char *name;
	double bps;
} qlink_units[] = {
	{ "tbit", 1e12 }, { "gbit", 1e9 }, { "mbit", 1e6 }, { "kbit", 1e3 }, { "bit", 1 },
};

/* Parses a rate: ip itself does not link tc's parser. */
static int qlink_get_rate(__u64 *bps, const char *text)
{
	char *unit;
	double rate = strtod(text, &unit);
	int i;

	for (i = 0; i < ARRAY_SIZE(qlink_units); i++) {
		if (strcasecmp(unit, qlink_units[i].name) == 0 && rate > 0) {
			*bps = rate * qlink_units[i].bps + 0.5;
			return *bps ? 0 : -1;
		}
	}
	return -1;
}

static void qlink_sprint_rate(__u64 bps, char *text, size_t size)
{
	int i = 0;

	while (bps % (__u64)qlink_units[i].bps)
		i++;
	snprintf(text, size, "%llu%s", bps / (__u64)qlink_units[i].bps, qlink_units[i].name);
}

static void qlink_print_help(struct link_util *lu, int argc, char **argv, FILE *f)
{
	fprintf(f,
		"Usage: ... qlink rate RATE [delay TIME] [overhead BYTES] [loss PERCENT]\n"
		"                 [peer NAME] [peer-rate RATE] [peer-delay TIME]\n"
		"                 [peer-overhead BYTES] [peer-loss PERCENT]\n"
		"RATE: 10gbit, 1mbit ...; TIME: 5us, 40ms ...\n");
}

/* Parses an option of one end's transmitter; returns 0 if @word is one. */
static int qlink_parse_end(struct nlmsghdr *n, const char *word, const char *value,
			   int shift)
{
	double percent;
	unsigned int bytes;
	char *end;
	__s64 time_ns;
	__u64 rate;

	if (strcmp(word, "rate") == 0) {
		if (qlink_get_rate(&rate, value))
			invarg("a rate such as 10gbit", value);
		addattr64(n, 1024, IFLA_QLINK_RATE + shift, rate);
	} else if (strcmp(word, "delay") == 0) {
		if (get_time64(&time_ns, value) || time_ns < 0)
			invarg("a time such as 5us", value);
		addattr64(n, 1024, IFLA_QLINK_DELAY + shift, time_ns);
	} else if (strcmp(word, "overhead") == 0) {
		if (get_unsigned(&bytes, value, 0))
			invarg("a number of bytes", value);
		addattr32(n, 1024, IFLA_QLINK_OVERHEAD + shift, bytes);
	} else if (strcmp(word, "loss") == 0) {
		percent = strtod(value, &end);
		if (end == value || (*end && strcmp(end, "%")) || percent < 0 || percent >= 100)
			invarg("a percentage from 0 to below 100", value);
		addattr32(n, 1024, IFLA_QLINK_LOSS + shift, percent / 100 * 4294967296.0);
	} else {
		return -1;
	}
	return 0;
}

static void qlink_parse_peer(struct nlmsghdr *n, const char *name)
{
	struct rtattr *peer = addattr_nest(n, 1024, IFLA_QLINK_PEER);

	if (check_ifname(name))
		invarg("a device name", name);
	memset(NLMSG_TAIL(n), 0, sizeof(struct ifinfomsg));
	n->nlmsg_len += NLMSG_ALIGN(sizeof(struct ifinfomsg));
	addattr_l(n, 1024, IFLA_IFNAME, name, strlen(name) + 1);
	addattr_nest_end(n, peer);
}

static int qlink_parse_opt(struct link_util *lu, int argc, char **argv,
			   struct nlmsghdr *n)
{
	bool peer = false;

	for (; argc > 0; argc -= 2, argv += 2) {
		const char *word = *argv, *value = argc > 1 ? argv[1] : NULL;
		int shift = 0;

		if (!value) {
			qlink_print_help(lu, argc, argv, stderr);
			return -1;
		}
		if (strcmp(word, "peer") == 0) {
			qlink_parse_peer(n, value);
			peer = true;
			continue;
		}
		if (strncmp(word, "peer-", 5) == 0) {
			word += 5;
			shift = PEER_SHIFT;
		}
		if (qlink_parse_end(n, word, value, shift)) {
			fprintf(stderr, "qlink: what is \"%s\"?\n", *argv);
			qlink_print_help(lu, argc, argv, stderr);
			return -1;
		}
	}
	if (!peer && n->nlmsg_flags & NLM_F_CREATE)
		qlink_parse_peer(n, "qlink%d");
	return 0;
}

static void qlink_print_end(struct rtattr *tb[], int shift, const char *prefix)
{
	struct rtattr **end = tb + shift;
	char key[32], rate[32], time[SPRINT_BSIZE];

	if (!end[IFLA_QLINK_RATE])
		return;
	snprintf(key, sizeof(key), "%srate_bps", prefix);
	print_u64(PRINT_JSON, key, NULL, rta_getattr_u64(end[IFLA_QLINK_RATE]));
	qlink_sprint_rate(rta_getattr_u64(end[IFLA_QLINK_RATE]), rate, sizeof(rate));
	print_string(PRINT_FP, NULL, prefix[0] ? "peer-rate %s " : "rate %s ", rate);
	if (end[IFLA_QLINK_DELAY]) {
		snprintf(key, sizeof(key), "%sdelay_ns", prefix);
		print_u64(PRINT_JSON, key, NULL, rta_getattr_u64(end[IFLA_QLINK_DELAY]));
		print_string(PRINT_FP, NULL, prefix[0] ? "peer-delay %s " : "delay %s ",
			     sprint_time64(rta_getattr_u64(end[IFLA_QLINK_DELAY]), time));
	}
	if (end[IFLA_QLINK_OVERHEAD] && rta_getattr_u32(end[IFLA_QLINK_OVERHEAD]))
		print_uint(PRINT_ANY, "overhead", "overhead %u ",
			   rta_getattr_u32(end[IFLA_QLINK_OVERHEAD]));
	if (end[IFLA_QLINK_LOSS] && rta_getattr_u32(end[IFLA_QLINK_LOSS]))
		print_float(PRINT_ANY, "loss", "loss %g%% ",
			    rta_getattr_u32(end[IFLA_QLINK_LOSS]) / 42949672.96);
}

static void qlink_print_opt(struct link_util *lu, FILE *f, struct rtattr *tb[])
{
	if (!tb)
		return;
	qlink_print_end(tb, 0, "");
	qlink_print_end(tb, PEER_SHIFT, "peer-");
	if (tb[IFLA_QLINK_SENT])
		print_u64(PRINT_ANY, "sent", "sent %llu ", rta_getattr_u64(tb[IFLA_QLINK_SENT]));
	if (tb[IFLA_QLINK_DELIVERED])
		print_u64(PRINT_ANY, "delivered", "delivered %llu ",
			  rta_getattr_u64(tb[IFLA_QLINK_DELIVERED]));
	if (tb[IFLA_QLINK_LOST])
		print_u64(PRINT_ANY, "lost", "lost %llu ", rta_getattr_u64(tb[IFLA_QLINK_LOST]));
}

struct link_util qlink_link_util = {
	.id = QLINK_KIND,
	.maxattr = IFLA_QLINK_MAX,
	.parse_opt = qlink_parse_opt,
	.print_opt = qlink_print_opt,
	.print_help = qlink_print_help,
};
