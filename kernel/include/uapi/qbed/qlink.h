/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * qlink: netlink attributes of a point-to-point Ethernet link in virtual time.
 *
 * RTM_NEWLINK, IFLA_INFO_KIND "qlink", these in IFLA_INFO_DATA. "This end" is
 * the device of the message, "the other" the one described by IFLA_QLINK_PEER.
 */
#ifndef _UAPI_QBED_QLINK_H
#define _UAPI_QBED_QLINK_H

#define QLINK_KIND "qlink"

/* Rate of a link without serialization and delay: frames are delivered at once. */
#define QLINK_RATE_NONE (~0ULL)

enum {
	IFLA_QLINK_UNSPEC,
	/* nested: struct ifinfomsg, then IFLA_* of the other end (creation only) */
	IFLA_QLINK_PEER,
	/* of this end's transmitter */
	IFLA_QLINK_RATE,	/* u64, bit/s, at least 1; required at creation */
	IFLA_QLINK_DELAY,	/* u64, ns of propagation */
	IFLA_QLINK_OVERHEAD,	/* bytes added to the serialization time of each frame */
	IFLA_QLINK_LOSS,	/* u32, probability x 2^32 */
	/* of the other end's transmitter; at creation they default to this end's */
	IFLA_QLINK_PEER_RATE,
	IFLA_QLINK_PEER_DELAY,
	IFLA_QLINK_PEER_OVERHEAD,
	IFLA_QLINK_PEER_LOSS,
	/* read-only frame counters; SENT - DELIVERED - LOST frames are in flight */
	IFLA_QLINK_SENT,	/* u64, transmissions started by this end */
	IFLA_QLINK_DELIVERED,	/* u64, delivered to the other end */
	IFLA_QLINK_LOST,	/* u64, dropped by the loss model, or because the peer is down */
	IFLA_QLINK_PAD,
	/* at creation, this end's default to 0 and the other end's to this end's */
	IFLA_QLINK_JITTER,	/* u64, ns: maximum random addition to the delay of a frame */
	IFLA_QLINK_REORDERING,	/* u32, not 0: jitter may reorder frames */
	IFLA_QLINK_PEER_JITTER,
	IFLA_QLINK_PEER_REORDERING,
	/* creation of a cut link only: the other end is a stub, and its node is in another part of the lab */
	IFLA_QLINK_PART,	/* u32, number of that part */
	IFLA_QLINK_NUMBER,	/* u32, number of the link, the same in both parts */
	/* change of an end only: what it receives is sent by this device of its namespace, and the reverse */
	IFLA_QLINK_BORDER,	/* u32, ifindex */
	__IFLA_QLINK_MAX
};

#define IFLA_QLINK_MAX (__IFLA_QLINK_MAX - 1)

#endif /* _UAPI_QBED_QLINK_H */
