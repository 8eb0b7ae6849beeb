// SPDX-License-Identifier: GPL-2.0-only
/* /dev/qp4: include/uapi/qbed/qp4.h */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "qp4.h"

/* One that asks. */
struct qp4_asker {
	struct net *net;
	struct qp4_switch *sw;
	struct mutex lock;
	u8 *answer;
	size_t length;
	size_t read;		/* of the answer, so far */
};

/* Answers */

static int qp4_answer(struct qp4_asker *asker, int err, const void *bytes, size_t length)
{
	struct qp4_answer *answer = kvmalloc(sizeof(*answer) + length, GFP_KERNEL);

	if (!answer)
		return -ENOMEM;
	*answer = (struct qp4_answer) { .error = -err };
	memcpy(answer + 1, bytes, length);
	asker->answer = (u8 *)answer;
	asker->length = sizeof(*answer) + length;
	asker->read = 0;
	return 0;
}

static int qp4_refuse(struct qp4_asker *asker, int err, const char *why)
{
	why = why ?: "";
	return qp4_answer(asker, err, why, strlen(why));
}

/* Gives @bytes back. */
static int qp4_answer_bytes(struct qp4_asker *asker, int err, struct qp4_bytes *bytes)
{
	int failed = qp4_answer(asker, err, bytes->data, bytes->length);

	qp4_bytes_free(bytes);
	return failed;
}

/* Requests */

static int qp4_do_events(struct qp4_asker *asker, u32 most)
{
	struct sk_buff_head taken;
	struct sk_buff *skb;
	size_t length = 0;
	u8 *bytes, *end;
	int err;

	__skb_queue_head_init(&taken);
	while (most-- && (skb = qp4_event_take(asker->sw))) {
		length += skb->len;
		__skb_queue_tail(&taken, skb);
	}
	bytes = kvmalloc(length + 1, GFP_KERNEL);
	if (!bytes) {
		asker->sw->counters.events_lost += skb_queue_len(&taken);
		__skb_queue_purge(&taken);
		return -ENOMEM;
	}
	end = bytes;
	while ((skb = __skb_dequeue(&taken))) {
		memcpy(end, skb->data, skb->len);
		end += skb->len;
		consume_skb(skb);
	}
	err = qp4_answer(asker, 0, bytes, length);
	kvfree(bytes);
	return err;
}

static int qp4_do_load(struct qp4_asker *asker, const u8 *bytes, size_t length)
{
	struct qp4_bytes why = {};
	int err = qp4_load(asker->sw, bytes, length, &why);

	return qp4_answer_bytes(asker, err, &why);
}

static int qp4_do_attach(struct qp4_asker *asker, u32 number, const u8 *bytes, size_t length)
{
	const char *why = NULL;
	char name[IFNAMSIZ];
	int err;

	if (number >= QP4_DROP_PORT)
		return qp4_refuse(asker, -ERANGE, "ports are 0 to 510");
	if (!length || length >= sizeof(name) || memchr(bytes, 0, length))
		return qp4_refuse(asker, -EINVAL, "expected the name of an interface");
	memcpy(name, bytes, length);
	name[length] = 0;
	err = qp4_attach(asker->sw, number, name, &why);
	return qp4_refuse(asker, err, why);
}

static int qp4_do_detach(struct qp4_asker *asker, u32 number)
{
	int err = number < QP4_MOST_PORTS ? qp4_detach(asker->sw, number) : -ENOENT;

	return qp4_refuse(asker, err, err ? "no such port" : NULL);
}

static int qp4_do_cpu_port(struct qp4_asker *asker, u32 number)
{
	const char *why = NULL;
	int err;

	if (number > QP4_DROP_PORT)
		return qp4_refuse(asker, -ERANGE, "ports are 0 to 510, and 511 is none");
	err = qp4_set_cpu_port(asker->sw, number, &why);
	return qp4_refuse(asker, err, why);
}

static int qp4_do_packet_out(struct qp4_asker *asker, const u8 *bytes, size_t length)
{
	struct qp4_switch *sw = asker->sw;
	struct sk_buff *skb;

	if (sw->cpu_port == QP4_NO_PORT)
		return qp4_refuse(asker, -ENOENT, "the switch has no CPU port");
	if (!sw->pipeline)
		return qp4_refuse(asker, -ENOENT, "no program is loaded");
	if (!length || length > QP4_MOST_PACKET)
		return qp4_refuse(asker, -EMSGSIZE, "a packet has 1 to 65535 bytes");
	skb = alloc_skb(NET_SKB_PAD + length, GFP_KERNEL);
	if (!skb)
		return -ENOMEM;
	skb_reserve(skb, NET_SKB_PAD);
	skb_put_data(skb, bytes, length);
	local_bh_disable();
	rcu_read_lock();
	sw->counters.packets_out++;
	qp4_ingress(sw, skb, sw->cpu_port, QP4_NORMAL, NULL);
	rcu_read_unlock();
	local_bh_enable();
	return qp4_answer(asker, 0, NULL, 0);
}

static int qp4_do_control(struct qp4_asker *asker, const u8 *bytes, size_t length)
{
	struct qp4_switch *sw = asker->sw;
	struct qp4_bytes answer = {};
	bool known;

	if (!sw->pipeline)
		return qp4_refuse(asker, -ENOENT, "no program is loaded");
	qp4_reserve();
	local_bh_disable();
	known = qp4_engine_control(sw->pipeline->engine, bytes, length, &answer);
	local_bh_enable();
	if (!known)
		return qp4_refuse(asker, -EINVAL, "not a request to a program");
	return qp4_answer_bytes(asker, 0, &answer);
}

/* Under the switch's lock */
static int qp4_do(struct qp4_asker *asker, const struct qp4_request *request, size_t length)
{
	const u8 *bytes = (const u8 *)(request + 1);

	switch (request->command) {
	case QP4_LOAD:
		return qp4_do_load(asker, bytes, length);
	case QP4_ATTACH:
		return qp4_do_attach(asker, request->value, bytes, length);
	case QP4_DETACH:
		return qp4_do_detach(asker, request->value);
	case QP4_CONTROL:
		return qp4_do_control(asker, bytes, length);
	case QP4_COUNTERS:
		return qp4_answer(asker, 0, &asker->sw->counters, sizeof(asker->sw->counters));
	case QP4_EVENTS:
		return qp4_do_events(asker, request->value);
	case QP4_CPU_PORT:
		return qp4_do_cpu_port(asker, request->value);
	case QP4_PACKET_OUT:
		return qp4_do_packet_out(asker, bytes, length);
	}
	return qp4_refuse(asker, -EOPNOTSUPP, "no such command");
}

static ssize_t qp4_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	struct qp4_asker *asker = file->private_data;
	struct qp4_request *request;
	int err;

	if (count < sizeof(*request) || count > QP4_MOST_REQUEST)
		return -EMSGSIZE;
	request = kvmalloc(count, GFP_KERNEL);
	if (!request)
		return -ENOMEM;
	if (copy_from_user(request, from, count)) {
		kvfree(request);
		return -EFAULT;
	}
	mutex_lock(&asker->lock);
	kvfree(asker->answer);
	asker->answer = NULL;
	asker->length = 0;
	asker->read = 0;
	mutex_lock(&asker->sw->lock);
	err = qp4_do(asker, request, count - sizeof(*request));
	mutex_unlock(&asker->sw->lock);
	mutex_unlock(&asker->lock);
	kvfree(request);
	return err ?: count;
}

static ssize_t qp4_read(struct file *file, char __user *to, size_t count, loff_t *pos)
{
	struct qp4_asker *asker = file->private_data;

	mutex_lock(&asker->lock);
	count = min(count, asker->length - asker->read);
	if (copy_to_user(to, asker->answer + asker->read, count))
		count = -EFAULT;
	else
		asker->read += count;
	mutex_unlock(&asker->lock);
	return count;
}

/* Readable: there are events to ask for. */
static __poll_t qp4_poll(struct file *file, poll_table *wait)
{
	struct qp4_asker *asker = file->private_data;

	poll_wait(file, &asker->sw->events_wait, wait);
	return EPOLLOUT | EPOLLWRNORM |
	       (qp4_events_wait(asker->sw) ? EPOLLIN | EPOLLRDNORM : 0);
}

static int qp4_open(struct inode *inode, struct file *file)
{
	struct net *net = current->nsproxy->net_ns;
	struct qp4_asker *asker;

	if (!ns_capable(net->user_ns, CAP_NET_ADMIN))
		return -EPERM;
	asker = kzalloc(sizeof(*asker), GFP_KERNEL);
	if (!asker)
		return -ENOMEM;
	asker->sw = qp4_switch_of(net);
	if (!asker->sw) {
		kfree(asker);
		return -ENOMEM;
	}
	asker->net = get_net(net);
	mutex_init(&asker->lock);
	file->private_data = asker;
	return 0;
}

static int qp4_release(struct inode *inode, struct file *file)
{
	struct qp4_asker *asker = file->private_data;

	put_net(asker->net);
	kvfree(asker->answer);
	kfree(asker);
	return 0;
}

static const struct file_operations qp4_fops = {
	.owner = THIS_MODULE,
	.open = qp4_open,
	.release = qp4_release,
	.read = qp4_read,
	.write = qp4_write,
	.poll = qp4_poll,
	.llseek = noop_llseek,
};

static struct miscdevice qp4_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = QP4_DEVICE,
	.mode = 0600,
	.fops = &qp4_fops,
};

int qp4_device_init(void)
{
	return misc_register(&qp4_device);
}

void qp4_device_exit(void)
{
	misc_deregister(&qp4_device);
}
