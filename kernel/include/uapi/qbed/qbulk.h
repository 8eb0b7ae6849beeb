/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * qbulk: ioctl of /dev/qbulk, which sends constant payload on TCP sockets
 * without copying it.
 */
#ifndef _UAPI_QBED_QBULK_H
#define _UAPI_QBED_QBULK_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define QBULK_MOST	(1 << 20)	/* maximum number of bytes per call */
#define QBULK_BYTE	0x71		/* value of every byte */

struct qbulk_send {
	__s32 socket;	/* the caller's file descriptor */
	__u32 bytes;
	__u32 more;	/* not 0: more data follows (MSG_MORE) */
};

/*
 * Equivalent of sendmsg() with MSG_DONTWAIT and MSG_NOSIGNAL. Returns the
 * number of bytes queued, or EAGAIN if the send buffer is full.
 */
#define QBULK_SEND _IOW('q', 1, struct qbulk_send)

#endif /* _UAPI_QBED_QBULK_H */
