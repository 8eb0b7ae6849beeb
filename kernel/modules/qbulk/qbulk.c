// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/qbulk: constant payload for TCP sockets, sent without copying.
 *
 * A sender offers as much data as its socket accepts, and no receiver reads it.
 * If it were copied, a thousand flows of 1 MB would occupy 1 GB that the host
 * has to clear and that evicts useful data from the CPU caches. Here the
 * payload of every packet is one shared page. TCP behaves as with a sendmsg()
 * of the same size, except that the payload of a packet may consist of two
 * fragments instead of one, so that a receive queue coalesces fewer packets,
 * and that unsent data is kept in fewer packets.
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

#include <qbed/constant_page.h>
#include <uapi/qbed/qbulk.h>

/* 23 KB with segments of 1448 bytes; 44 segments were not faster. */
#define QBULK_SEGMENTS 16u

static struct page *qbulk_page;
static struct bio_vec qbulk_pages[QBULK_MOST / PAGE_SIZE];

/*
 * For a device without offloads, TCP builds one packet per segment when it
 * accepts the payload, and with a thousand senders these packets are out of the
 * CPU cache when they are sent. Larger packets are segmented when they are
 * sent. The size is the one of tcp_xmit_size_goal(); gso_max_segs still limits
 * what is sent at once.
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
	struct qbulk_send request;
	struct socket *socket;
	int err;

	if (command != QBULK_SEND)
		return -ENOTTY;
	if (copy_from_user(&request, (void __user *)arg, sizeof(request)))
		return -EFAULT;
	socket = sockfd_lookup(request.socket, &err);
	if (!socket)
		return err;
	if (request.more)
		message.msg_flags |= MSG_MORE;
	iov_iter_bvec(&message.msg_iter, ITER_SOURCE, qbulk_pages, ARRAY_SIZE(qbulk_pages),
		      min_t(u32, request.bytes, QBULK_MOST));
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

	qbulk_page = qbed_constant_page_alloc(GFP_KERNEL);
	if (!qbulk_page)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(qbulk_pages); i++)
		bvec_set_page(&qbulk_pages[i], qbulk_page, PAGE_SIZE, 0);
	err = misc_register(&qbulk_device);
	if (err)
		put_page(qbulk_page);
	return err;
}

/* Packets in flight hold references to the page. */
static void __exit qbulk_exit(void)
{
	misc_deregister(&qbulk_device);
	put_page(qbulk_page);
}

module_init(qbulk_init);
module_exit(qbulk_exit);
MODULE_DESCRIPTION("Constant TCP payload without copies");
MODULE_LICENSE("GPL");
