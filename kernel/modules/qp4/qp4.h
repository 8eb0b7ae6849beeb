/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Internal interfaces of the module.
 *
 * The files of the packet path depend on each other in a cycle, because a
 * recirculated packet passes ingress.c, queue.c and egress.c, then queue.c
 * (qp4_run_deferred) and ingress.c again.
 */
#ifndef _QP4_H
#define _QP4_H

#include <linux/interrupt.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/refcount.h>
#include <linux/skbuff.h>
#include <linux/wait.h>
#include <net/dst.h>
#include <net/net_namespace.h>

#include <qbed/egress.h>
#include <qbed/qp4.h>

#include "core.h"

#define QP4_NO_PORT U32_MAX

/* Maximum number of cached free metadata and contexts each. */
#define QP4_MAX_FREE 256u
/* If a program may access more bytes of a packet, the packet is linearized. */
#define QP4_MAX_FRONT 2048u

/*
 * A loaded program. Queued packets hold a reference, and pass its egress even
 * if it has been replaced.
 */
struct qp4_pipeline {
	refcount_t references;
	struct qp4_engine *engine;
	u32 reach;			/* leading bytes of a packet that it accesses; U32_MAX: all */
	bool defers_checksums;
	u32 free_metadata_count;	/* each with its context */
	u32 free_context_count;		/* contexts of dropped packets */
	struct qp4_metadata *free_metadata[QP4_MAX_FREE];
	struct qp4_context *free_context[QP4_MAX_FREE];
};

/*
 * Metadata of a packet between ingress and egress. It is the packet's dst, so
 * it is released when the packet is dropped.
 */
struct qp4_metadata {
	struct dst_entry dst;
	struct qp4_pipeline *pipeline;
	struct qp4_context *context;
	u8 *tail;			/* bytes truncated before the queue, or NULL */
	u32 tail_bytes;
	u64 enqueued_us;
	u32 enqueued_depth;
	u32 truncate_bytes;		/* length of a clone on the wire; U32_MAX: not truncated */
	u16 ingress_port;
	bool *held;			/* during qp4_enqueue(): whether it has a reference */
};

struct qp4_port {
	struct qbed_egress egress;
	struct qp4_switch *sw;
	struct net_device *dev;
	netdevice_tracker dev_tracker;
	u16 number;
};

/*
 * The P4 switch of a network namespace. Changed under `lock`; members used by
 * the packet path also with bottom halves disabled.
 */
struct qp4_switch {
	struct net *net;
	struct mutex lock;
	struct qp4_pipeline *pipeline;	/* NULL: no program */
	struct qp4_port *ports[QP4_MOST_PORTS];
	struct qp4_counters counters;

	/* for functions that the engine calls: its packet, and the checksum if it asked for it */
	const struct sk_buff *packet;
	__sum16 checksum;
	bool has_checksum;

	/* packets created by egress, processed after the port's queue run */
	struct sk_buff_head deferred;
	struct tasklet_struct tasklet;

	u64 now_us;			/* of the last packet that arrived or left a queue */
	u64 rounds_us;			/* microsecond in which `rounds` are counted */
	u32 rounds;

	u32 cpu_port;			/* QP4_NO_PORT: none */

	/* for QP4_EVENTS: events of the program, and packets sent to the CPU port */
	struct sk_buff_head events;
	struct sk_buff_head packets_in;
	wait_queue_head_t events_wait;
};

/*
 * Control block of a packet in qp4_switch.deferred: a clone for a port, or a
 * recirculated packet.
 */
struct qp4_deferred_cb {
	u16 port;
	bool clone;
};

/* main.c */
struct qp4_switch *qp4_switch_of(const struct net *net);
int qp4_load(struct qp4_switch *sw, const u8 *image, size_t length, struct qp4_bytes *error);
int qp4_attach(struct qp4_switch *sw, u16 number, const char *name, const char **error);
int qp4_detach(struct qp4_switch *sw, u16 number);
int qp4_set_cpu_port(struct qp4_switch *sw, u32 number, const char **error);
void qp4_pipeline_put(struct qp4_pipeline *pipeline);

/* metadata.c */
struct qp4_metadata *qp4_metadata_new(struct qp4_pipeline *pipeline, u16 ingress_port);
struct qp4_metadata *qp4_metadata_copy(const struct qp4_metadata *from, u8 instance, u16 rid);
struct qp4_metadata *qp4_metadata_take(struct sk_buff *skb);
void qp4_metadata_free(struct qp4_metadata *meta);
void qp4_metadata_free_cached(struct qp4_pipeline *pipeline);
int qp4_metadata_init(void);
void qp4_metadata_exit(void);

/* head.c */
u32 qp4_checksum_position(const struct sk_buff *skb);
void qp4_set_packet(struct qp4_switch *sw, const struct sk_buff *skb);
bool qp4_store_checksum(struct qp4_switch *sw, struct sk_buff *skb);
bool qp4_complete(struct qp4_switch *sw, struct sk_buff *skb, const struct qp4_metadata *meta,
		  struct qp4_emission *emission);
void qp4_update_checksum(const struct sk_buff *skb, const struct qp4_metadata *meta);
bool qp4_keeps_checksum(const struct sk_buff *skb, const struct qp4_emission *emission);

/* ingress.c */
rx_handler_result_t qp4_receive(struct sk_buff **pskb);
void qp4_ingress(struct qp4_switch *sw, struct sk_buff *skb, u16 port, u8 instance,
		 struct qp4_metadata *previous);

/* queue.c */
u64 qp4_now_us(struct qp4_switch *sw);
void qp4_drop(struct sk_buff *skb, u64 *counter);
bool qp4_round(struct qp4_switch *sw);
bool qp4_truncate(struct sk_buff *skb, u32 bytes);
bool qp4_truncate_queued(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_metadata *meta,
			 u32 bytes);
u32 qp4_depth(const struct net_device *dev);
void qp4_enqueue(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_metadata *meta, u16 number,
		 u8 priority);
struct sk_buff *qp4_clone_one(struct qp4_switch *sw, struct sk_buff *skb,
			      const struct qp4_metadata *meta, const struct qp4_replica *replica,
			      u8 instance, u32 truncate_bytes, struct qp4_metadata **copied);
void qp4_defer(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_metadata *meta,
	       struct qp4_deferred_cb cb);
void qp4_run_deferred(struct tasklet_struct *tasklet);
void qp4_purge(struct qp4_switch *sw);

/* egress.c */
struct sk_buff *qp4_egress(struct qbed_egress *egress, struct sk_buff *skb);
void qp4_leave_cpu(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_metadata *meta);

/* memory.c */
void qp4_reserve(void);
void qp4_memory_exit(void);

/* events.c */
void qp4_packet_in(struct qp4_switch *sw, struct sk_buff *skb);
struct sk_buff *qp4_event_take(struct qp4_switch *sw);
bool qp4_has_events(const struct qp4_switch *sw);

/* device.c */
int qp4_device_init(void);
void qp4_device_exit(void);

#endif /* _QP4_H */
