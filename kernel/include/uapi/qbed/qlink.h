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

/* A rate: no transmitter and no wire, a frame is at the other end at once. */
#define QLINK_RATE_NONE (~0ULL)

enum {
	IFLA_QLINK_UNSPEC,
	/* nested: struct ifinfomsg, then IFLA_* of the other end (creation only) */
	IFLA_QLINK_PEER,
	/* of this end's transmitter */
	IFLA_QLINK_RATE,	/* u64, bit/s, at least 1; required at creation */
	IFLA_QLINK_DELAY,	/* u64, ns of propagation */
	IFLA_QLINK_OVERHEAD,	/* u32, bytes of wire time added to each frame */
	IFLA_QLINK_LOSS,	/* u32, probability x 2^32 */
	/* of the other end's transmitter; at creation they default to this end's */
	IFLA_QLINK_PEER_RATE,
	IFLA_QLINK_PEER_DELAY,
	IFLA_QLINK_PEER_OVERHEAD,
	IFLA_QLINK_PEER_LOSS,
	/* read only, frames; SENT - DELIVERED - LOST are on the wire */
	IFLA_QLINK_SENT,	/* u64, this end began to transmit */
	IFLA_QLINK_DELIVERED,	/* u64, reached the other end */
	IFLA_QLINK_LOST,	/* u64, to the loss model or a peer that is down */
	IFLA_QLINK_PAD,
	/* at creation this end's are 0 unless given, the other's default to them */
	IFLA_QLINK_JITTER,	/* u64, ns: the most that a frame takes longer, by chance */
	IFLA_QLINK_REORDERING,	/* u32, not 0: a frame may overtake those before it */
	IFLA_QLINK_PEER_JITTER,
	IFLA_QLINK_PEER_REORDERING,
	__IFLA_QLINK_MAX
};

#define IFLA_QLINK_MAX (__IFLA_QLINK_MAX - 1)

#endif /* _UAPI_QBED_QLINK_H */
