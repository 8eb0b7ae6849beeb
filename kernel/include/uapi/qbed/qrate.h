/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * qrate: reliable flows over UDP, paced by a rate controller in the kernel.
 * Generic netlink family "qrate"; a request refers to the network namespace of
 * its socket.
 */
#ifndef _UAPI_QBED_QRATE_H
#define _UAPI_QBED_QRATE_H

#define QRATE_FAMILY "qrate"
#define QRATE_FAMILY_VERSION 1

enum qrate_command {
	QRATE_CMD_UNSPEC,
	/* receive flows on UDP port SOURCE_PORT, IPv4 and IPv6; optional: REFLECT */
	QRATE_CMD_LISTEN,
	/* start a flow: FLOW, SOURCE, DESTINATION, both ports, CONTROLLER; the rest is optional */
	QRATE_CMD_FLOW_NEW,
	/* dump: one message per flow sent or received in this namespace. With FLOW and without
	 * NLM_F_DUMP: that flow only. RUNNING (flag): only senders that have not ended.
	 */
	QRATE_CMD_FLOW_GET,
	/* stop a sender: it sends no new data, and ends when all data in flight is acknowledged */
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
	QRATE_A_FLOW,		/* u32, chosen by the caller; unique among the senders of a machine
				 */
	QRATE_A_SOURCE,		/* 4 or 16 bytes, an address of this namespace */
	QRATE_A_DESTINATION,	/* 4 or 16 bytes, same family as SOURCE */
	QRATE_A_SOURCE_PORT,	/* u16, host order */
	QRATE_A_DESTINATION_PORT,	/* u16, host order */
	QRATE_A_SIZE,		/* u64, bytes of payload; absent: unlimited */
	QRATE_A_STOP_TIME,	/* u64, CLOCK_MONOTONIC ns: no new data after this time */
	QRATE_A_PAYLOAD,	/* u32, bytes of payload per packet; absent: derived from the path
				 * MTU
				 */
	QRATE_A_CONTROLLER,	/* string: name of the controller */
	QRATE_A_PARAMETERS,	/* nested: the controller's parameters, numbered by its declaration
				 */
	QRATE_A_SIGNAL,		/* u8, enum qsignal_kind; absent: none */
	QRATE_A_UNIT,		/* u8, enum qsignal_unit */
	QRATE_A_BITS,		/* u8, 1 to 32 */
	QRATE_A_FORWARD,	/* flag: the controller gets the signal of the forward path only */
	QRATE_A_REFLECT,	/* u32, probability x 2^32: P0 of QCN's reflection point; LISTEN may change it */
	QRATE_A_RUNNING,	/* flag, for FLOW_GET */
	/* replies to FLOW_GET */
	QRATE_A_ROLE,		/* u8, 0 sender, 1 receiver */
	QRATE_A_ENDED,		/* flag */
	QRATE_A_START_TIME,	/* u64, CLOCK_MONOTONIC ns */
	QRATE_A_END_TIME,	/* u64, CLOCK_MONOTONIC ns. Sender: last byte acknowledged;
				 * receiver: last new byte received
				 */
	QRATE_A_RATE,		/* u64, current rate in bit/s of IP packets */
	QRATE_A_RTT,		/* u64, ns, last sample */
	QRATE_A_MIN_RTT,	/* u64, ns, minimum */
	QRATE_A_LAST_SIGNAL,	/* u64, last signal passed to the controller; for SUM_SQU its square
				 * root
				 */
	QRATE_A_FEEDBACKS,	/* u64, QCN feedback messages */
	QRATE_A_SENT_BYTES,	/* u64, payload, including retransmissions */
	QRATE_A_SENT_PACKETS,	/* u64 */
	QRATE_A_ACKED_BYTES,	/* u64, payload, without duplicates */
	QRATE_A_RECEIVED_BYTES,	/* u64, payload, without duplicates */
	QRATE_A_RECEIVED_PACKETS,	/* u64, including duplicates */
	QRATE_A_LOST_PACKETS,	/* u64, declared lost and retransmitted */
	QRATE_A_TIMEOUTS,	/* u32 */
	QRATE_A_INFLIGHT,	/* u64, bytes of payload */
	/* for FLOW_NEW */
	QRATE_A_COMPACT,	/* u32, compact headers: length in UNIT of the buffer whose shares the
				 * signal has. SIGNAL: none, SUM, MAX or IND
				 */
	__QRATE_A_MAX
};

#define QRATE_A_MAX (__QRATE_A_MAX - 1)

#endif /* _UAPI_QBED_QRATE_H */
