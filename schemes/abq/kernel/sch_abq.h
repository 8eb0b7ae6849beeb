/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/* Netlink attributes and statistics of the qdisc `abq`. */
#ifndef _SCH_ABQ_H
#define _SCH_ABQ_H

#include <linux/types.h>

/*
 * TCA_OPTIONS: at least one limit, and exactly one threshold, whose unit is that
 * of X. A change replaces them all. The limit is Qmax of the algorithm, and that
 * of the FIFO that is the child until another is grafted to class :1.
 */
enum {
	TCA_ABQ_UNSPEC,
	TCA_ABQ_LIMIT_BYTES,		/* u32, at least 1 */
	TCA_ABQ_LIMIT_PACKETS,		/* u32, at least 1 */
	TCA_ABQ_THRESHOLD_BYTES,	/* u32: K */
	TCA_ABQ_THRESHOLD_PACKETS,	/* u32: K */
	TCA_ABQ_HOLD_LIMIT,		/* u32 packets, at least 1; absent: 1000 */
	TCA_ABQ_MTU,			/* u32 bytes, at least 1; absent: the device's frame */
	__TCA_ABQ_MAX
};

#define TCA_ABQ_MAX (__TCA_ABQ_MAX - 1)

/* TCA_STATS_APP. Acknowledgements are packets; holds = released + overflow + held. */
struct tc_abq_xstats {
	__u64 holds;			/* acknowledgements that were held */
	__u64 releases;			/* times that the output queue fell to X */
	__u64 released;			/* held ones that left by a release, a reset or a change */
	__u64 released_with_ece;	/* those that left with ECN-Echo */
	__u64 corrected;		/* those whose ECN-Echo was set here */
	__u64 overflow;			/* those that left early because the input queue was full */
	__u64 held_packet_ns;		/* integral of the input queue's length over time */
	__u64 entries_us;		/* times that each state was entered */
	__u64 entries_cs;
	__u64 entries_lcs;
	__u32 held_ipv4;		/* in the input queue now */
	__u32 held_ipv6;
	__u32 max_held;			/* longest input queue */
	__u32 state;			/* 0 uncongested, 1 congested, 2 lightly congested */
	__u32 x_bytes;			/* X, in the unit of the threshold; the other is 0 */
	__u32 x_packets;
};

#endif /* _SCH_ABQ_H */
