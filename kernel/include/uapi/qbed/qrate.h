/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * qrate: reliable flows over UDP whose sender is paced by a controller in the
 * kernel. Generic netlink, family "qrate"; a request means the network
 * namespace of its socket.
 */
#ifndef _UAPI_QBED_QRATE_H
#define _UAPI_QBED_QRATE_H

#define QRATE_FAMILY "qrate"
#define QRATE_FAMILY_VERSION 1

enum qrate_command {
	QRATE_CMD_UNSPEC,
	/* SOURCE_PORT, REFLECT or not: receive flows on this UDP port, IPv4 and IPv6 */
	QRATE_CMD_LISTEN,
	/* start a flow: FLOW, SOURCE, DESTINATION, both ports, CONTROLLER; the rest has defaults */
	QRATE_CMD_FLOW_NEW,
	/* dump: a message a flow that is sent from here or was received here, with what is known of it.
	 * With FLOW, not as a dump: of that flow. RUNNING (flag): only of senders that have not ended.
	 */
	QRATE_CMD_FLOW_GET,
	/* no more new data from a sender (what is on its way is still acknowledged); then it has ended */
	QRATE_CMD_FLOW_STOP,
	/* multicast group "ended": FLOW of a sender whose last byte was acknowledged */
	QRATE_CMD_FLOW_ENDED,
	__QRATE_CMD_MAX
};

#define QRATE_CMD_MAX (__QRATE_CMD_MAX - 1)
#define QRATE_GROUP_ENDED "ended"

enum qrate_attribute {
	QRATE_A_UNSPEC,
	QRATE_A_PAD,
	QRATE_A_FLOW,		/* u32, the agent's number; on one machine no two senders share one */
	QRATE_A_SOURCE,		/* 4 or 16 bytes, an address of this namespace */
	QRATE_A_DESTINATION,	/* of the same family */
	QRATE_A_SOURCE_PORT,	/* u16, host order */
	QRATE_A_DESTINATION_PORT,	/* u16, host order */
	QRATE_A_SIZE,		/* u64, bytes of payload; absent: until it is stopped */
	QRATE_A_STOP_TIME,	/* u64, CLOCK_MONOTONIC ns: no new data from then on */
	QRATE_A_PAYLOAD,	/* u32, bytes of payload a packet; absent: what fits into the path's MTU */
	QRATE_A_CONTROLLER,	/* string: which one */
	QRATE_A_PARAMETERS,	/* nested: its parameters, numbered by its declaration */
	QRATE_A_SIGNAL,		/* u8, enum qsignal_kind; absent: none */
	QRATE_A_UNIT,		/* u8, enum qsignal_unit */
	QRATE_A_BITS,		/* u8, 1 to 32 */
	QRATE_A_FORWARD,	/* flag: the controller sees the forward path's signal alone */
	QRATE_A_REFLECT,	/* u32, probability x 2^32: QCN's P0, of the receiver: LISTEN, which may come again with another */
	QRATE_A_RUNNING,	/* flag, of FLOW_GET */
	/* what FLOW_GET says */
	QRATE_A_ROLE,		/* u8, 0 sender, 1 receiver */
	QRATE_A_ENDED,		/* flag */
	QRATE_A_START_TIME,	/* u64, CLOCK_MONOTONIC ns */
	QRATE_A_END_TIME,	/* u64: sender: last byte acknowledged; receiver: last new byte arrived */
	QRATE_A_RATE,		/* u64, bit/s of IP packets, now */
	QRATE_A_RTT,		/* u64, ns, the last one */
	QRATE_A_RTT_LEAST,	/* u64, ns */
	QRATE_A_LAST_SIGNAL,	/* u64, what the controller saw last; of SUM_SQU the root */
	QRATE_A_FEEDBACKS,	/* u64, QCN messages */
	QRATE_A_SENT_BYTES,	/* u64, payload, repeated ones too */
	QRATE_A_SENT_PACKETS,	/* u64 */
	QRATE_A_ACKED_BYTES,	/* u64, each once */
	QRATE_A_RECEIVED_BYTES,	/* u64, each once */
	QRATE_A_RECEIVED_PACKETS,	/* u64, all */
	QRATE_A_LOST_PACKETS,	/* u64, taken for lost and sent anew */
	QRATE_A_TIMEOUTS,	/* u32 */
	QRATE_A_INFLIGHT,	/* u64, bytes of payload */
	__QRATE_A_MAX
};

#define QRATE_A_MAX (__QRATE_A_MAX - 1)

#endif /* _UAPI_QBED_QRATE_H */
