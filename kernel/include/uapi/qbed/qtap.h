/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * qtap: generic netlink control and record stream of the queue taps.
 *
 * Times are in ns: CLOCK_MONOTONIC in commands, relative to the tap's START in
 * records. All records are little-endian and a multiple of 8 bytes long.
 */
#ifndef _UAPI_QBED_QTAP_H
#define _UAPI_QBED_QTAP_H

#include <linux/types.h>

#define QTAP_FAMILY	"qtap"
#define QTAP_VERSION	1
#define QTAP_DEVICE	"qtap"	/* /dev/qtap */

enum {
	QTAP_CMD_UNSPEC,
	QTAP_CMD_ATTACH,	/* IFINDEX, ID; optional: FLAGS, INTERVAL, START, BIN_BYTES, END, BOUNDS */
	QTAP_CMD_FLUSH,		/* close all open intervals; emit summaries and histograms */
	QTAP_CMD_DETACH,	/* all taps */
	QTAP_CMD_PUSH,		/* emit all completed intervals and wake up readers */
	__QTAP_CMD_MAX
};

#define QTAP_CMD_MAX (__QTAP_CMD_MAX - 1)

enum {
	QTAP_ATTR_UNSPEC,
	QTAP_ATTR_IFINDEX,	/* u32, in the caller's network namespace */
	QTAP_ATTR_ID,		/* u32, id in the records */
	QTAP_ATTR_FLAGS,	/* u32, QTAP_FLAG_* */
	QTAP_ATTR_INTERVAL,	/* u64, ns, 0: no samples */
	QTAP_ATTR_START,	/* u64, ns; absent: now */
	QTAP_ATTR_BIN_BYTES,	/* u32, at least 1; absent: 1514 */
	QTAP_ATTR_END,		/* u64, ns, 0 or absent: open */
	QTAP_ATTR_PAD,
	QTAP_ATTR_BOUNDS,	/* u64[], ns, ascending: boundaries of windows */
	__QTAP_ATTR_MAX
};

#define QTAP_ATTR_MAX (__QTAP_ATTR_MAX - 1)

#define QTAP_FLAG_EVENTS 1u
#define QTAP_FLAG_SOJOURN 2u	/* record sojourn times */
#define QTAP_MAX_BOUNDS 64u

enum {
	QTAP_RECORD_SAMPLE = 1,
	QTAP_RECORD_EVENT = 2,
	QTAP_RECORD_SUMMARY = 3,
	QTAP_RECORD_HISTOGRAM = 4,
	/* A summary and a histogram at a bound; max_ fields: since the previous bound. */
	QTAP_RECORD_BOUND = 5,
	QTAP_RECORD_BOUND_HISTOGRAM = 6,
	/* With QTAP_FLAG_SOJOURN, for each class of which packets were dequeued. */
	QTAP_RECORD_SOJOURN = 7,
	QTAP_RECORD_BOUND_SOJOURN = 8,	/* max_ns: since the previous bound */
	QTAP_RECORD_SOJOURN_SAMPLE = 9,	/* precedes the sample of the same interval */
};

enum {
	QTAP_CLASS_OTHERS = 256,	/* others: DSCP << 2 | ECN at enqueue */
};

struct qtap_record {
	__u16 type;
	__u16 length;		/* including this header */
	__u32 id;
	__s64 time_ns;		/* since START */
};

/*
 * Occupancy over [time_ns - interval_ns, time_ns), and over `steady` following
 * intervals of the same length without enqueue, dequeue and drop.
 */
struct qtap_sample {
	struct qtap_record record;
	__u64 interval_ns;
	__u64 byte_ns;
	__u64 packet_ns;
	__u64 dequeued_bytes;
	__u32 min_bytes;
	__u32 max_bytes;
	__u32 min_packets;
	__u32 max_packets;
	__u32 enqueued;
	__u32 dequeued;
	__u32 dropped;
	__u32 marked;
	__u32 steady;		/* number of steady intervals */
	__u32 steady_bytes;	/* constant queue length during these */
	__u32 steady_packets;
	__u32 zero;
};

enum {
	QTAP_OP_ENQUEUE = 1,
	QTAP_OP_DEQUEUE = 2,
	QTAP_OP_DROP = 3,
	/* precede the dequeue record of the same packet */
	QTAP_OP_MARK = 4,	/* CE set here */
	QTAP_OP_SIGNAL = 5,	/* congestion signalled, but not by CE in the packet */
};

#define QTAP_PACKET_UNKNOWN (~0ULL)

struct qtap_event {
	struct qtap_record record;
	__u8 op;
	__u8 ecn;		/* after the operation */
	__u8 family;		/* 4, 6, or 0: not IP */
	__u8 protocol;
	__u32 bytes;
	__u32 queue_bytes;	/* after the operation */
	__u32 queue_packets;
	__u64 packet;		/* sequence number of the packet in this queue */
	__u16 sport;
	__u16 dport;
	__u32 tcp_seq;
	__u32 tcp_ack;
	__u16 payload;		/* bytes */
	__u8 tcp_flags;
	__u8 pad;
	__u8 saddr[16];
	__u8 daddr[16];
	__u8 zero[8];
};

struct qtap_summary {
	struct qtap_record record;
	/* since START */
	__u64 duration_ns;
	__u64 byte_ns;
	__u64 packet_ns;
	__u64 max_bytes;
	__u64 max_packets;
	/* since ATTACH; offered = sent + dropped + queue */
	__u64 offered_packets;
	__u64 offered_bytes;
	__u64 sent_packets;
	__u64 sent_bytes;
	__u64 dropped_packets;
	__u64 dropped_bytes;
	__u64 marked_packets;
	/* current, and at START */
	__u64 queue_packets;
	__u64 queue_bytes;
	__u64 start_queue_packets;
	__u64 start_queue_bytes;
};

/* Followed by bins times u64: ns with occupancy in [i, i + 1) * bin_bytes. */
struct qtap_histogram {
	struct qtap_record record;
	__u32 bin_bytes;
	__u32 bins;
};

/*
 * Sojourn times of the packets of a class that were dequeued since START.
 * Followed by bins times u64: number of packets in bin first + i. Bin b < 128
 * is b ns; any other bin begins at (64 + b % 64) << (b / 64 - 1) ns and ends
 * where the next bin begins.
 */
struct qtap_sojourn_histogram {
	struct qtap_record record;
	__u32 class;
	__u32 first;
	__u64 packets;
	__u64 sum_ns;
	__u64 max_ns;
	__u32 bins;
	__u32 zero;
};

/*
 * Sojourn times of the packets of a class that were dequeued in [time_ns -
 * interval_ns, time_ns).
 */
struct qtap_sojourn_sample {
	struct qtap_record record;
	__u64 interval_ns;
	__u32 class;
	__u32 packets;
	__u64 sum_ns;
	__u64 max_ns;
	__u64 p50_ns;		/* p50_ns and p99_ns are at most 1/64 too large */
	__u64 p99_ns;
};

#endif /* _UAPI_QBED_QTAP_H */
