/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/* Netlink attributes and statistics of the qdisc `qcodel`. */
#ifndef _SCH_QCODEL_H
#define _SCH_QCODEL_H

#include <linux/types.h>

/*
 * TCA_OPTIONS: at least one limit; a limit that is absent does not exist. Other
 * absent attributes have their defaults. A change replaces them all.
 */
enum {
	TCA_QCODEL_UNSPEC,
	TCA_QCODEL_LIMIT_BYTES,		/* u32, at least 1 */
	TCA_QCODEL_LIMIT_PACKETS,	/* u32, at least 1 */
	TCA_QCODEL_TARGET_NS,		/* u64, 1024 to 1e11; default 5 ms */
	TCA_QCODEL_INTERVAL_NS,		/* u64, 1024 to 1e11; default 100 ms */
	TCA_QCODEL_ECN,			/* u32, 1: mark instead of drop, if ECN-capable */
	TCA_QCODEL_MTU,			/* u32, bytes: no signal at or below it; default: of the device */
	TCA_QCODEL_PAD,
	__TCA_QCODEL_MAX
};

#define TCA_QCODEL_MAX (__TCA_QCODEL_MAX - 1)

/* TCA_STATS_APP */
struct tc_qcodel_xstats {
	__u64 marked;		/* packets: CE set by CoDel (or found set where it would) */
	__u64 dropped;		/* packets: dropped by CoDel at dequeue */
	__u64 overlimit;	/* packets: did not fit */
	__u64 ldelay_ns;	/* sojourn time of the last packet dequeued */
	__u32 count;		/* signals since the dropping state began */
	__u32 lastcount;	/* count when it began */
	__u32 dropping;		/* in the dropping state */
	__u32 maxpacket;	/* bytes: largest packet seen */
};

#endif /* _SCH_QCODEL_H */
