/* SPDX-License-Identifier: GPL-2.0-only */
/* Internal interfaces of the module. */
#ifndef _QTAP_H
#define _QTAP_H

#include <linux/list.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <net/sch_generic.h>
#if IS_ENABLED(CONFIG_UML_TIME_TRAVEL_SUPPORT)
#include <linux/time-internal.h>
#endif

#include <qbed/egress.h>
#include <qbed/qtap.h>

#include "qtap_occupancy.h"
#include "qtap_sojourn.h"

struct qtap_params {
	u32 id;
	u32 flags;
	u64 start_ns;		/* origin of the records' times */
};

/* Since ATTACH: offered = sent + dropped + queue. */
struct qtap_totals {
	u64 offered_packets;
	u64 offered_bytes;
	u64 sent_packets;
	u64 sent_bytes;
	u64 dropped_packets;
	u64 dropped_bytes;
	u64 marked_packets;
};

/* The packets of one queue. */
struct qtap_packets {
	struct list_head queued;
	struct list_head freed;		/* since qtap_packets_begin() */
	u64 next_number;
};

struct qtap {
	/* four lines: what an operation accesses without samples, sojourn times and events */
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);
	spinlock_t lock;	/* the root lock does not cover lockless qdiscs */
	int owner;		/* CPU inside the qdisc: netem enqueues into itself */
	u64 now_ns;		/* of the operation */
	struct qtap_params params;
	struct qtap_sojourn *sojourn;	/* NULL: not requested */
	struct qbed_link *link;		/* NULL: the device is not a qlink */
	struct qtap_totals totals;
	struct qtap_occupancy occupancy;

	struct Qdisc *sch;	/* the hooked qdisc; NULL: none */
	struct qtap_packets packets;
	struct qbed_observer observer;	/* of the link's egress hook */
	u64 last_packet;		/* number of the last dequeued packet */

	const struct Qdisc_ops *original_ops;
	struct Qdisc_ops ops;	/* the copy in use; container_of() of it is the tap */
	bool bypass;		/* the qdisc's original TCQ_F_CAN_BYPASS */
	struct net_device *dev;	/* NULL: unregistered */
	netdevice_tracker dev_tracker;
	struct list_head list;
};

/* A queue length in the course of an operation. */
struct qtap_length {
	u32 packets;
	u32 bytes;
};

static inline struct qtap_length qtap_tracked_length(const struct qtap *tap)
{
	return (struct qtap_length) { tap->occupancy.packets, tap->occupancy.bytes };
}

static inline struct qtap *qtap_from_qdisc(const struct Qdisc *sch)
{
	return container_of(sch->ops, struct qtap, ops);
}

/* Newer kernels collect packets dropped at dequeue here, to free them without the lock. */
static inline struct sk_buff *qtap_dequeue_drops(const struct Qdisc *sch)
{
#ifdef TCQ_F_DEQUEUE_DROPS
	if (sch->flags & TCQ_F_DEQUEUE_DROPS)
		return sch->to_free;
#endif
	return NULL;
}

static inline bool qtap_records_events(const struct qtap *tap)
{
	return unlikely(tap->params.flags & QTAP_FLAG_EVENTS);
}

static inline struct qtap_record qtap_record(const struct qtap *tap, u16 type, size_t length,
					     u64 time_ns)
{
	return (struct qtap_record) {
		.type = type,
		.length = length,
		.id = tap->params.id,
		.time_ns = time_ns - tap->params.start_ns,
	};
}

/* datapath.c */
extern u64 qtap_clock_offset_ns;	/* from virtual time to CLOCK_MONOTONIC */

static inline u64 qtap_now(void)
{
#if IS_ENABLED(CONFIG_UML_TIME_TRAVEL_SUPPORT)
	if (likely(time_travel_mode == TT_MODE_INFCPU))
		return time_travel_now() + qtap_clock_offset_ns;
#endif
	return ktime_get_ns();
}

int qtap_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free);
struct sk_buff *qtap_dequeue(struct Qdisc *sch);
void qtap_reset(struct Qdisc *sch);
int qtap_change(struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *extack);
bool qtap_advance(struct qtap *tap);
void qtap_close_interval(struct qtap *tap);
void qtap_count_queued(struct qtap *tap, struct Qdisc *sch);
void qtap_observe(struct qbed_observer *observer);

/* hooks.c */
extern struct list_head qtap_list;	/* under RTNL */
int qtap_hook(struct qtap *tap);
void qtap_unhook(struct qtap *tap);
int qtap_hooks_init(void);
void qtap_hooks_exit(void);

/* events.c */
struct qtap_packet *qtap_events_offer(struct qtap *tap, struct sk_buff *skb);
void qtap_events_enqueue(struct qtap *tap, struct sk_buff *skb, struct qtap_packet *entered,
			 struct sk_buff *to_free, const struct sk_buff *to_free_before,
			 struct qtap_length dropped, struct qtap_length before);
void qtap_events_dequeue(struct qtap *tap, struct sk_buff *skb, u8 signal,
			 const struct sk_buff *drops_before, struct qtap_length dropped,
			 struct qtap_length before);
void qtap_events_silent_drops(struct qtap *tap, struct sk_buff *returned,
			      struct qtap_length dropped, struct qtap_length *queue);
void qtap_events_reset(struct qtap *tap, struct qtap_length queue);
void qtap_event_egress(const struct qtap *tap, struct sk_buff *skb, u8 op);
void qtap_packets_restore(struct qtap_packets *queue);
void qtap_packets_release(struct qtap_packets *queue);
int qtap_packet_cache_init(void);
void qtap_packet_cache_exit(void);

/* records.c; qtap_occupancy.h declares its other functions */
void qtap_summary_emit(const struct qtap *tap, u16 type, const struct qtap_integral *max);
void qtap_histogram_emit(const struct qtap *tap, u16 type);
void qtap_sojourn_emit(const struct qtap *tap, u16 type);

/* stream.c */
void qtap_stream_write(const void *record, size_t length, const void *array, size_t array_length);
void qtap_stream_flush(void);
int qtap_stream_init(void);
void qtap_stream_exit(void);

/* Start of an operation: packets freed from now on are freed by it. */
static inline void qtap_packets_begin(struct qtap_packets *queue)
{
	if (unlikely(!list_empty(&queue->freed)))
		qtap_packets_restore(queue);
}

/* Returns true after the end of the observation, when packets are no longer tracked. */
static inline bool qtap_closed(struct qtap *tap)
{
	if (likely(tap->occupancy.phase != QTAP_CLOSED))
		return false;
	if (!list_empty(&tap->packets.queued))
		qtap_packets_release(&tap->packets);
	return true;
}

#endif /* _QTAP_H */
