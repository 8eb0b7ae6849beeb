/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * qp4: control interface of a P4 switch in a network namespace, /dev/qp4. An
 * open file refers to the namespace of the process that opened it.
 *
 * One write is one request: struct qp4_request and the command's data. The
 * following reads return its reply: struct qp4_answer and the command's data
 * or, on an error, a message; then end of file until the next request. Integers
 * are in native byte order.
 */
#ifndef _UAPI_QBED_QP4_H
#define _UAPI_QBED_QP4_H

#include <linux/types.h>

#define QP4_DEVICE "qp4"
#define QP4_MOST_PORTS 512		/* v1model's port numbers have 9 bits; 511 means drop */
#define QP4_DROP_PORT 511
#define QP4_MOST_REQUEST (64u << 20)	/* bytes */
#define QP4_MOST_PACKET 65535u		/* bytes */

enum qp4_command {
	/* load a program's image (crates/p4engine) in place of the current program. Packets that are
	 * queued still pass the egress of the program that queued them. If the image is refused,
	 * the current program stays.
	 */
	QP4_LOAD = 1,
	/* attach an interface of this namespace, a qlink, by name: it becomes port `value` */
	QP4_ATTACH = 2,
	/* detach port `value` */
	QP4_DETACH = 3,
	/* a control request to the program (control.rs, postcard), and its reply */
	QP4_CONTROL = 4,
	/* reply: struct qp4_counters */
	QP4_COUNTERS = 5,
	/*
	 * reply: at most `value` events since the last call, each a struct qp4_event and its
	 * data
	 */
	QP4_EVENTS = 6,
	/* make port `value` the CPU port. Packets sent to it pass the program's egress and become
	 * events (QP4_EVENT_PACKET). QP4_DROP_PORT: no CPU port, the default. No interface can be
	 * attached to it.
	 */
	QP4_CPU_PORT = 7,
	/*
	 * inject a packet of at most QP4_MOST_PACKET bytes into ingress, received on the CPU
	 * port
	 */
	QP4_PACKET_OUT = 8,
};

struct qp4_request {
	__u32 command;
	__u32 value;
};

struct qp4_answer {
	__u32 error;		/* 0, or an errno followed by a message */
	__u32 reserved;
};

/*
 * Packets, and those dropped by the module, by reason. Drops by the program are
 * in its own counters (QP4_CONTROL).
 */
struct qp4_counters {
	__u64 received;		/* on all ports */
	__u64 sent;		/* onto all wires */
	__u64 no_program;
	__u64 no_port;		/* the port does not exist or its interface is down */
	__u64 refused;		/* by the port's queue, on enqueue */
	__u64 too_many_rounds;	/* limit on resubmission, recirculation and cloning */
	__u64 foreign;		/* sent through a port, but not by the program */
	__u64 runt;		/* shorter than an Ethernet header */
	__u64 no_memory;
	__u64 no_group;		/* unknown multicast group or clone session */
	__u64 events_lost;	/* events dropped because the queue was full */
	__u64 packets_in;	/* sent to the CPU port */
	__u64 packets_in_lost;	/* of these: dropped because the queue was full */
	__u64 packets_out;	/* injected by QP4_PACKET_OUT, not counted in `received` */
};

enum qp4_event_kind {
	QP4_EVENT_DIGEST = 1,	/* `id`: digest id; data: values of the fields */
	QP4_EVENT_LOG = 2,	/* data: a message */
	QP4_EVENT_FAILED = 3,	/* data: message of a failed assert */
	QP4_EVENT_PACKET = 4,	/* data: a packet sent to the CPU port; `id`: that port */
};

struct qp4_event {
	__u32 kind;
	__u32 id;
	__u64 time_ns;		/* CLOCK_MONOTONIC */
	__u32 bytes;		/* length of the data, without padding to a multiple of 8 */
	__u32 reserved;
};

#endif /* _UAPI_QBED_QP4_H */
