/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of the module share. */
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

/* Nodes and contexts that wait for a packet; a burst needs more of them for a while. */
#define QP4_POOL 256u
/* A program that may look further into a packet gets it in one piece. */
#define QP4_MOST_FRONT 2048u

/*
 * A loaded program. Packets in the queues hold it, and leave by it when another
 * one has taken its place.
 */
struct qp4_pipeline {
	refcount_t references;
	struct qp4_engine *engine;
	u32 reach;			/* bytes of a packet's front; U32_MAX: all of it */
	u32 nodes;			/* that wait, with their contexts */
	u32 contexts;			/* of nodes that went with a dropped packet */
	struct qp4_node *node[QP4_POOL];
	struct qp4_context *context[QP4_POOL];
};

/* What the engine is shown of a packet, until the next one is shown to it. */
struct qp4_front {
	const u8 *bytes;
	u32 length;
};

/* What goes with a packet from ingress to egress: as its route, which whoever drops the packet lets go. */
struct qp4_node {
	struct dst_entry dst;
	struct qp4_pipeline *pipeline;
	struct qp4_context *context;
	u8 *behind;			/* what was cut off before the queue; NULL: nothing */
	u32 behind_bytes;
	u64 enqueued_us;
	u32 enqueued_depth;
	u32 truncate_bytes;		/* of a clone, on the wire; U32_MAX: whole */
	u16 ingress_port;
};

struct qp4_port {
	struct qbed_egress egress;
	struct qp4_switch *sw;
	struct net_device *dev;
	netdevice_tracker dev_tracker;
	u16 number;
};

/* Of a network namespace. Changed under `lock`, and with bottom halves off where packets look. */
struct qp4_switch {
	struct net *net;
	struct mutex lock;
	struct qp4_pipeline *pipeline;	/* NULL: no program */
	struct qp4_port *ports[QP4_MOST_PORTS];
	struct qp4_counters counters;

	/* packets that egress made, with their nodes: they go on when the port's queue is done with */
	struct sk_buff_head again;
	struct tasklet_struct tasklet;

	u64 rounds_us;			/* when the rounds were made */
	u32 rounds;

	u32 cpu_port;			/* QP4_NO_PORT: none */

	/* for who asks: what the program said, and what left by the CPU port */
	struct sk_buff_head events;
	struct sk_buff_head packets_in;
	wait_queue_head_t events_wait;
};

/* Of a packet that waits in qp4_switch.again, in skb->cb: a clone, for a port, or one that comes again. */
struct qp4_way {
	u16 port;
	bool clone;
};

/* main.c */
struct qp4_switch *qp4_switch_of(const struct net *net);
int qp4_load(struct qp4_switch *sw, const u8 *image, size_t length, struct qp4_bytes *why);
int qp4_attach(struct qp4_switch *sw, u16 number, const char *name, const char **why);
int qp4_detach(struct qp4_switch *sw, u16 number);
int qp4_set_cpu_port(struct qp4_switch *sw, u32 number, const char **why);
void qp4_pipeline_put(struct qp4_pipeline *pipeline);

/* node.c */
struct qp4_node *qp4_node_new(struct qp4_pipeline *pipeline, u16 ingress_port);
struct qp4_node *qp4_node_copy(const struct qp4_node *from, u8 instance, u16 rid);
struct qp4_node *qp4_node_take(struct sk_buff *skb);
void qp4_node_free(struct qp4_node *node);
void qp4_nodes_free(struct qp4_pipeline *pipeline);
int qp4_node_init(void);
void qp4_node_exit(void);

/* ingress.c */
rx_handler_result_t qp4_receive(struct sk_buff **pskb);
void qp4_ingress(struct qp4_switch *sw, struct sk_buff *skb, u16 port, u8 instance,
		 struct qp4_node *again);

/* queue.c */
u64 qp4_now_us(void);
void qp4_drop(struct sk_buff *skb, u64 *counter);
bool qp4_round(struct qp4_switch *sw);
bool qp4_truncate(struct sk_buff *skb, u32 bytes);
bool qp4_truncate_queued(struct sk_buff *skb, struct qp4_node *node, u32 bytes);
u32 qp4_depth(const struct net_device *dev);
void qp4_enqueue(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_node *node, u16 number,
		 u8 priority);
struct sk_buff *qp4_clone_one(struct qp4_switch *sw, struct sk_buff *skb,
			      const struct qp4_node *node, const struct qp4_replica *replica,
			      u8 instance, u32 truncate_bytes, struct qp4_node **copied);
void qp4_later(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_node *node,
	       struct qp4_way way);
void qp4_again(struct tasklet_struct *tasklet);
void qp4_purge(struct qp4_switch *sw);

/* egress.c */
struct sk_buff *qp4_egress(struct qbed_egress *egress, struct sk_buff *skb);
void qp4_leave_cpu(struct qp4_switch *sw, struct sk_buff *skb, struct qp4_node *node);

/* memory.c */
void qp4_reserve(void);
void qp4_memory_exit(void);

/* events.c */
void qp4_packet_in(struct qp4_switch *sw, struct sk_buff *skb);
struct sk_buff *qp4_event_take(struct qp4_switch *sw);
bool qp4_events_wait(const struct qp4_switch *sw);

/* device.c */
int qp4_device_init(void);
void qp4_device_exit(void);

#endif /* _QP4_H */
