/* SPDX-License-Identifier: GPL-2.0-only */
/* Internal interfaces of the module. */
#ifndef _QRATE_H
#define _QRATE_H

#include <linux/hrtimer.h>
#include <linux/in6.h>
#include <linux/net.h>
#include <linux/rcupdate.h>
#include <linux/skbuff.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/dst.h>
#include <net/genetlink.h>
#include <net/net_namespace.h>

#include <qbed/controller.h>
#include <qbed/qrate.h>
#include <qbed/signal.h>
#include <qbed/signal_compact.h>

#include "qrate_arrivals.h"
#include "qrate_flight.h"
#include "qrate_pace.h"
#include "qrate_rtt.h"

#define QRATE_MAX_PAYLOAD (65535u - 20 - 8 - QSIGNAL_COMPACT_BYTES)

/*
 * Maximum number of packets that a sender tracks, from the oldest
 * unacknowledged to the newest.
 */
#define QRATE_MAX_PACKETS 65536u

union qrate_address {
	__be32 v4;
	struct in6_addr v6;
};

/* Path to a remote socket, with its cached route. */
struct qrate_path {
	struct net *net;
	sa_family_t family;
	__be16 source_port;
	__be16 destination_port;
	union qrate_address source;
	union qrate_address destination;
	struct dst_entry __rcu *dst;
	u32 cookie;		/* for dst_check() */
};

enum qrate_role {
	QRATE_SENDER = 0,
	QRATE_RECEIVER = 1,
};

/* First member of each sender and receiver: what a dump iterates over. */
struct qrate_record {
	enum qrate_role role;
	u32 id;			/* index in qrate_net.records */
	u32 flow;
	u64 start_ns;
	u64 end_ns;		/* sender: 0 until it has ended */
};

struct qrate_sender_params {
	u64 size;		/* bytes of payload; U64_MAX: unlimited */
	u64 stop_ns;		/* no new data after this time; U64_MAX: unlimited */
	u32 payload;		/* bytes per packet */
	u32 overhead;		/* bytes of headers per packet, from IP on */
	u8 kind;
	u8 unit;
	u8 bits;
	bool forward;		/* the controller gets the signal of the forward path only */
	bool compact;		/* compact headers */
	u32 full;		/* compact headers: length in `unit` whose shares the signal has */
};

struct qrate_sender_stats {
	u64 last_signal;
	u64 feedbacks;
	u64 sent_bytes;
	u64 sent_packets;
	u64 acked_bytes;
	u64 lost_packets;
	u32 timeouts;
};

struct qrate_sender {
	struct qrate_record record;
	struct qrate_path path;
	struct socket *socket;		/* closed and NULL some time after the end */
	struct list_head ended;		/* in qrate_net.ended until the socket is closed */
	struct rcu_head rcu;
	struct qrate_sender_params params;
	const struct rate_controller *controller;
	void *controller_params;
	void *controller_state;

	spinlock_t lock;	/* protects the members down to stats */
	struct hrtimer timer;	/* next transmission or probe timeout */
	u64 armed_ns;		/* expiry of the timer; U64_MAX: not armed */
	u64 probed_ns;		/* time of the last timeout */
	u64 next_offset;	/* offset of the next new payload */
	bool ready;		/* there is data to send, and space to track it */
	bool stopped;		/* no new payload is sent */
	bool dead;
	struct qrate_pace pace;
	struct qrate_flight flight;
	struct qrate_rtt rtt;
	struct qrate_sender_stats stats;

	/* constant, used when the sender has ended */
	struct qrate_net *qnet;
	void (*on_ended)(struct net *net, u32 flow);
};

/* A UDP port that receives flows. */
struct qrate_listener {
	struct qrate_net *qnet;
	struct list_head list;
	struct socket *sockets[2];	/* IPv4, IPv6 */
	__be16 port;
	u32 reflect;			/* P0, x 2^32 */
};

struct qrate_receiver_stats {
	u64 packets;
	u64 feedbacks;
};

struct qrate_receiver {
	struct qrate_record record;
	struct qrate_path path;		/* back to the sender */
	struct qrate_listener *listener;
	struct hlist_node node;
	struct rcu_head rcu;		/* the hash table is shared by all namespaces */

	spinlock_t lock;		/* protects the members below */
	struct qrate_window window;
	struct qrate_coverage coverage;
	u64 size;			/* known once the last byte was received; else U64_MAX */
	struct qrate_receiver_stats stats;
};

/* State of a network namespace. */
struct qrate_net {
	struct net *net;
	struct xarray records;		/* by id, in order of start */
	struct xarray senders;		/* by flow; under genl_lock */
	struct list_head listeners;	/* under genl_lock */
	u32 receivers;
	struct list_head ended;		/* ended senders whose socket is still open */
	spinlock_t ended_lock;
	struct delayed_work reap;
};

#define QRATE_RUNNING XA_MARK_1		/* mark in records: senders that have not ended */

/* Delay of the work that closes the sockets of ended senders. */
#define QRATE_REAP_JIFFIES (HZ / 2)

/* net.c */
struct qrate_net *qrate_net(const struct net *net);
int qrate_nets_init(void);
void qrate_nets_exit(void);

/* path.c */
struct socket *qrate_socket_open(struct net *net, sa_family_t family,
				 const union qrate_address *address, __be16 port,
				 int (*receive)(struct sock *sk, struct sk_buff *skb), void *owner);
void qrate_socket_close(struct socket *socket);
struct dst_entry *qrate_path_route(struct qrate_path *path);
u32 qrate_path_overhead(const struct qrate_path *path, const struct qsignal_header *header);
void qrate_path_send(struct qrate_path *path, const struct qsignal_header *header, u32 payload);
void qrate_path_release(struct qrate_path *path);
bool qrate_pull_header(struct sk_buff *skb, struct qsignal_header *header);
int qrate_payload_init(void);
void qrate_payload_exit(void);

/* sender_datapath.c */
struct qsignal_header qrate_data_header(const struct qrate_sender_params *params);
enum hrtimer_restart qrate_sender_timer(struct hrtimer *timer);
int qrate_sender_receive(struct sock *sk, struct sk_buff *skb);
void qrate_sender_run(struct qrate_sender *sender);
void qrate_sender_stop(struct qrate_sender *sender);

/* sender.c */
struct qrate_sender *qrate_sender_new(struct qrate_net *qnet,
				      const struct rate_controller *controller,
				      void (*on_ended)(struct net *net, u32 flow));
int qrate_sender_start(struct qrate_net *qnet, struct qrate_sender *sender,
		       struct netlink_ext_ack *extack);
void qrate_reap(struct work_struct *work);
void qrate_sender_halt(struct qrate_sender *sender);
void qrate_sender_free(struct qrate_sender *sender);

/* receiver.c */
int qrate_listen(struct qrate_net *qnet, __be16 port, const u32 *reflect,
		 struct netlink_ext_ack *extack);
void qrate_listener_close(struct qrate_listener *listener);
void qrate_receiver_free(struct qrate_receiver *receiver);

/* reply.c */
int qrate_put_flow(struct sk_buff *skb, struct qrate_record *record);

/* netlink.c */
extern struct genl_family qrate_family;

#endif /* _QRATE_H */
