/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/* Netlink attributes and statistics of the qdisc `ecn`. */
#ifndef _SCH_ECN_H
#define _SCH_ECN_H

#include <linux/types.h>

/*
 * TCA_OPTIONS: at least one limit; a bound that is absent does not exist. A
 * change replaces them all.
 */
enum {
	TCA_ECN_UNSPEC,
	TCA_ECN_LIMIT_BYTES,		/* u32, at least 1 */
	TCA_ECN_LIMIT_PACKETS,		/* u32, at least 1 */
	TCA_ECN_THRESHOLD_BYTES,	/* u32: mark on arrival above it */
	TCA_ECN_THRESHOLD_PACKETS,	/* u32: mark on arrival above it */
	__TCA_ECN_MAX
};

#define TCA_ECN_MAX (__TCA_ECN_MAX - 1)

/* TCA_STATS_APP. Packets. */
struct tc_ecn_xstats {
	__u64 marked;	/* CE set here */
	__u64 unmarked;	/* above the threshold, but not ECN-capable: enqueued as is */
	__u64 dropped;	/* did not fit */
};

#endif /* _SCH_ECN_H */
