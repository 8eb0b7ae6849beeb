/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/* Netlink attributes and statistics of the qdisc `rpm`. */
#ifndef _SCH_RPM_H
#define _SCH_RPM_H

#include <linux/types.h>

/*
 * TCA_OPTIONS: at least one limit; a limit that is absent does not exist. Other
 * absent attributes have their defaults. A change replaces them all but
 * TCA_RPM_REGISTERS and TCA_RPM_PER_PORT, which are fixed at creation.
 */
enum {
	TCA_RPM_UNSPEC,
	TCA_RPM_LIMIT_BYTES,		/* u32, at least 1 */
	TCA_RPM_LIMIT_PACKETS,		/* u32, at least 1 */
	TCA_RPM_TARGET_NS,		/* u64, 1024 to 1e11; default 5 ms */
	TCA_RPM_INTERVAL_NS,		/* u64, 1024 to 1e11; default 100 ms */
	TCA_RPM_PER_PORT,		/* u32, 1: one register for all flows of the device; default 0 */
	TCA_RPM_REGISTERS,		/* u32, power of two up to 2^24; default 65536; the
					 * same for all qdiscs of a network namespace
					 */
	TCA_RPM_REVERSE_TIMEOUT_NS,	/* u64, at least 1; default 1 s */
	TCA_RPM_PAD,
	__TCA_RPM_MAX
};

#define TCA_RPM_MAX (__TCA_RPM_MAX - 1)

/*
 * TCA_STATS_APP. Packets, unless it says otherwise.
 *
 *   marked = forward_marks + ce_arrived
 *          + reverse_marks + ece_already_set + cleared + pending
 */
struct tc_rpm_xstats {
	__u64 marked;		/* CoDel's decisions about ECN-capable packets */
	__u64 reverse_marks;	/* acknowledgements in which ECE was set here */
	__u64 forward_marks;	/* CE left in the packet */
	__u64 ce_arrived;	/* decided about packets that had come with CE, and keep it */
	__u64 ece_already_set;	/* acknowledgements that took a decision but had ECE */
	__u64 cleared;		/* decisions given up: their flow or the queue is gone */
	__u64 pending;		/* decisions that wait for an acknowledgement */
	__u64 collisions;	/* those of forward_marks whose register another flow held */
	__u64 dropped;		/* by CoDel at dequeue */
	__u64 overlimit;	/* did not fit */
	__u64 ldelay_ns;	/* sojourn time of the last packet dequeued */
	__u64 pending_ns;	/* sum of the times that decisions waited for acknowledgements */
	__u32 count;		/* CoDel's signals since the dropping state began */
	__u32 lastcount;	/* count when it began */
	__u32 dropping;		/* in the dropping state */
	__u32 maxpacket;	/* bytes: largest packet seen */
};

#endif /* _SCH_RPM_H */
