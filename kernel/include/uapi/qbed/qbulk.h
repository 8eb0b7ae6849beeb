/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * qbulk: /dev/qbulk gives TCP sockets payload that nobody reads.
 */
#ifndef _UAPI_QBED_QBULK_H
#define _UAPI_QBED_QBULK_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define QBULK_MOST	(1 << 20)	/* bytes that one call takes */
#define QBULK_BYTE	0x71		/* each of them */

struct qbulk_send {
	__s32 socket;	/* descriptor of the caller's */
	__u32 bytes;
	__u32 more;	/* not 0: more follows at once (MSG_MORE) */
};

/*
 * Like sendmsg() with MSG_DONTWAIT and MSG_NOSIGNAL: how many bytes the socket
 * took, or EAGAIN where it is full.
 */
#define QBULK_SEND _IOW('q', 1, struct qbulk_send)

#endif /* _UAPI_QBED_QBULK_H */
