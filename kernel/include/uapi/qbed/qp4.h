/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * qp4: a P4 switch of a network namespace, asked through /dev/qp4, which means
 * the namespace of who opened it.
 *
 * A write is one request, whole: struct qp4_request and what the command says.
 * What is read next is its answer: struct qp4_answer and what the command says,
 * or why not, in words; then nothing (end of file), until the next request.
 * Numbers are in the machine's byte order.
 */
#ifndef _UAPI_QBED_QP4_H
#define _UAPI_QBED_QP4_H

#include <linux/types.h>

#define QP4_DEVICE "qp4"
#define QP4_MOST_PORTS 512		/* v1model's port numbers have 9 bits; the last one means: drop */
#define QP4_DROP_PORT 511
#define QP4_MOST_REQUEST (64u << 20)	/* bytes */
#define QP4_MOST_PACKET 65535u		/* bytes */

enum qp4_command {
	/* a program's image (crates/p4engine): it takes the place of the one that runs, whose packets in the queues
	 * still leave by it; if it is refused, that one goes on
	 */
	QP4_LOAD = 1,
	/* the name of an interface of this namespace, a qlink: it becomes port `value` */
	QP4_ATTACH = 2,
	/* port `value` is an interface again */
	QP4_DETACH = 3,
	/* a request to the program (control.rs, postcard); the answer is one, too */
	QP4_CONTROL = 4,
	/* answer: struct qp4_counters */
	QP4_COUNTERS = 5,
	/* answer: what the program said since, at most `value` messages: struct qp4_event and its bytes, each */
	QP4_EVENTS = 6,
	/* port `value` is the CPU port from now on: packets that leave by it are events (QP4_EVENT_PACKET), as the
	 * program's egress leaves them; QP4_DROP_PORT: there is none, as in the beginning. No interface can have it.
	 */
	QP4_CPU_PORT = 7,
	/* a packet, at most QP4_MOST_PACKET bytes, to the program's ingress, come in by the CPU port */
	QP4_PACKET_OUT = 8,
};

struct qp4_request {
	__u32 command;
	__u32 value;
};

struct qp4_answer {
	__u32 error;		/* 0, or an errno, and then words follow */
	__u32 reserved;
};

/* Packets that the shell dropped, by reason; the program's own drops are in its totals (QP4_CONTROL). */
struct qp4_counters {
	__u64 received;		/* on all ports */
	__u64 sent;		/* onto all wires */
	__u64 no_program;
	__u64 no_port;		/* no such port, or its interface is down */
	__u64 refused;		/* by the port's queue, at once */
	__u64 too_many_rounds;	/* resubmitted, recirculated or cloned without end */
	__u64 foreign;		/* sent through a port by others than the program */
	__u64 runt;		/* shorter than an Ethernet header */
	__u64 no_memory;
	__u64 no_group;		/* to a multicast group or clone session that is not there */
	__u64 events_lost;	/* messages of the program for which nobody came */
	__u64 packets_in;	/* to the CPU port's egress, and from there to who asks for events */
	__u64 packets_in_lost;	/* of them: nobody came for them */
	__u64 packets_out;	/* from who asks, by the CPU port: not among `received` */
};

enum qp4_event_kind {
	QP4_EVENT_DIGEST = 1,	/* `id`: whose; the fields' values */
	QP4_EVENT_LOG = 2,	/* words */
	QP4_EVENT_FAILED = 3,	/* an assert's words */
	QP4_EVENT_PACKET = 4,	/* what left by the CPU port, headers and payload; `id`: that port */
};

struct qp4_event {
	__u32 kind;
	__u32 id;
	__u64 time_ns;		/* CLOCK_MONOTONIC */
	__u32 bytes;		/* that follow, without what fills them up to a multiple of 8 */
	__u32 reserved;
};

#endif /* _UAPI_QBED_QP4_H */
