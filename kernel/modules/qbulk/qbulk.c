// SPDX-License-Identifier: GPL-2.0-only
/*
 * Payload that is the same byte again and again: /dev/qbulk gives it to TCP
 * sockets without copying it anywhere.
 *
 * A flow's sender offers as much as its socket takes, and nobody looks at it.
 * Copied, a thousand flows of 1 MB are 1 GB that the host has to clear, and
 * that then lies between the processor and what it works with. Here every
 * packet's payload is one page. TCP does with QBULK_SEND what it does with a
 * sendmsg() of as many bytes, but that a packet's payload may lie in two pieces
 * where it lay in one, so that a receiver's queue joins fewer packets into one,
 * and that what is not sent yet lies in fewer packets.
 */
#include <linux/bvec.h>
#include <linux/errno.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/minmax.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/socket.h>
#include <linux/uaccess.h>
#include <linux/uio.h>
#include <net/sock.h>
#include <net/tcp.h>

#include <uapi/qbed/qbulk.h>

/* Of 1448 bytes 23 KB; 44 segments brought no more. */
#define QBULK_SEGMENTS 16u

static struct page *qbulk_page;
static struct bio_vec qbulk_pages[QBULK_MOST / PAGE_SIZE];

/*
 * To a device without offloads TCP makes a packet of each segment as it takes
 * the payload, and of a thousand senders each has gone from the cache until it
 * is sent. In larger ones, segments are cut off as they are sent. The goal is
 * as tcp_xmit_size_goal() leaves it; gso_max_segs still says what is sent at once.
 */
static void qbulk_join_unsent(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 mss, segments;

	lock_sock(sk);
	mss = tp->mss_cache;
	if (sk->sk_gso_max_segs == 1 && mss) {
		segments = min_t(u32, QBULK_SEGMENTS * mss, GSO_LEGACY_MAX_SIZE);
		segments = tcp_bound_to_half_wnd(tp, segments) / mss;
		if (segments) {
			sk->sk_gso_max_size = segments * mss;
			tp->gso_segs = segments;
		}
	}
	release_sock(sk);
}

static int qbulk_send(struct socket *socket, struct msghdr *message)
{
	if (!sk_is_tcp(socket->sk))
		return -EOPNOTSUPP;
	qbulk_join_unsent(socket->sk);
	return sock_sendmsg(socket, message);
}

static long qbulk_ioctl(struct file *file, unsigned int command, unsigned long arg)
{
	struct msghdr message = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_SPLICE_PAGES |
					       MSG_NO_SHARED_FRAGS };
	struct qbulk_send wish;
	struct socket *socket;
	int err;

	if (command != QBULK_SEND)
		return -ENOTTY;
	if (copy_from_user(&wish, (void __user *)arg, sizeof(wish)))
		return -EFAULT;
	socket = sockfd_lookup(wish.socket, &err);
	if (!socket)
		return err;
	if (wish.more)
		message.msg_flags |= MSG_MORE;
	iov_iter_bvec(&message.msg_iter, ITER_SOURCE, qbulk_pages, ARRAY_SIZE(qbulk_pages),
		      min_t(u32, wish.bytes, QBULK_MOST));
	err = qbulk_send(socket, &message);
	sockfd_put(socket);
	return err;
}

static const struct file_operations qbulk_operations = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= qbulk_ioctl,
	.llseek		= noop_llseek,
};

static struct miscdevice qbulk_device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "qbulk",
	.fops	= &qbulk_operations,
	.mode	= 0600,
};

static int __init qbulk_init(void)
{
	unsigned int i;
	int err;

	qbulk_page = alloc_page(GFP_KERNEL);
	if (!qbulk_page)
		return -ENOMEM;
	memset(page_address(qbulk_page), QBULK_BYTE, PAGE_SIZE);
	for (i = 0; i < ARRAY_SIZE(qbulk_pages); i++)
		bvec_set_page(&qbulk_pages[i], qbulk_page, PAGE_SIZE, 0);
	err = misc_register(&qbulk_device);
	if (err)
		put_page(qbulk_page);
	return err;
}

/* Packets that are on their way keep the page. */
static void __exit qbulk_exit(void)
{
	misc_deregister(&qbulk_device);
	put_page(qbulk_page);
}

module_init(qbulk_init);
module_exit(qbulk_exit);
MODULE_DESCRIPTION("Payload that nobody reads, without copies");
MODULE_LICENSE("GPL");
