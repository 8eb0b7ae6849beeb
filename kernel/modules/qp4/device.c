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

/* An open file of /dev/qp4. */
struct qp4_file {
	struct net *net;
	struct qp4_switch *sw;
	struct mutex lock;
	u8 *reply;
	size_t length;
	size_t offset;		/* bytes of the reply already read */
};

/* Replies */

static int qp4_reply(struct qp4_file *client, int err, const void *bytes, size_t length)
{
	struct qp4_answer *answer = kvmalloc(sizeof(*answer) + length, GFP_KERNEL);

	if (!answer)
		return -ENOMEM;
	*answer = (struct qp4_answer) { .error = -err };
	memcpy(answer + 1, bytes, length);
	client->reply = (u8 *)answer;
	client->length = sizeof(*answer) + length;
	client->offset = 0;
	return 0;
}

static int qp4_reply_error(struct qp4_file *client, int err, const char *message)
{
	message = message ?: "";
	return qp4_reply(client, err, message, strlen(message));
}

/* Frees @bytes. */
static int qp4_reply_bytes(struct qp4_file *client, int err, struct qp4_bytes *bytes)
{
	int failed = qp4_reply(client, err, bytes->data, bytes->length);

	qp4_bytes_free(bytes);
	return failed;
}

/* Requests */

static int qp4_do_events(struct qp4_file *client, u32 max)
{
	struct sk_buff_head taken;
	struct sk_buff *skb;
	size_t length = 0;
	u8 *bytes, *end;
	int err;

	__skb_queue_head_init(&taken);
	while (max-- && (skb = qp4_event_take(client->sw))) {
		length += skb->len;
		__skb_queue_tail(&taken, skb);
	}
	bytes = kvmalloc(length + 1, GFP_KERNEL);
	if (!bytes) {
		client->sw->counters.events_lost += skb_queue_len(&taken);
		__skb_queue_purge(&taken);
		return -ENOMEM;
	}
	end = bytes;
	while ((skb = __skb_dequeue(&taken))) {
		memcpy(end, skb->data, skb->len);
		end += skb->len;
		consume_skb(skb);
	}
	err = qp4_reply(client, 0, bytes, length);
	kvfree(bytes);
	return err;
}

static int qp4_do_load(struct qp4_file *client, const u8 *bytes, size_t length)
{
	struct qp4_bytes error = {};
	int err = qp4_load(client->sw, bytes, length, &error);

	return qp4_reply_bytes(client, err, &error);
}

static int qp4_do_attach(struct qp4_file *client, u32 number, const u8 *bytes, size_t length)
{
	const char *error = NULL;
	char name[IFNAMSIZ];
	int err;

	if (number >= QP4_DROP_PORT)
		return qp4_reply_error(client, -ERANGE, "expected a port from 0 to 510");
	if (!length || length >= sizeof(name) || memchr(bytes, 0, length))
		return qp4_reply_error(client, -EINVAL, "expected the name of an interface");
	memcpy(name, bytes, length);
	name[length] = 0;
	err = qp4_attach(client->sw, number, name, &error);
	return qp4_reply_error(client, err, error);
}

static int qp4_do_detach(struct qp4_file *client, u32 number)
{
	int err = number < QP4_MOST_PORTS ? qp4_detach(client->sw, number) : -ENOENT;

	return qp4_reply_error(client, err, err ? "no such port" : NULL);
}

static int qp4_do_cpu_port(struct qp4_file *client, u32 number)
{
	const char *error = NULL;
	int err;

	if (number > QP4_DROP_PORT)
		return qp4_reply_error(client, -ERANGE, "expected a port from 0 to 510, or 511 for none");
	err = qp4_set_cpu_port(client->sw, number, &error);
	return qp4_reply_error(client, err, error);
}

static int qp4_do_packet_out(struct qp4_file *client, const u8 *bytes, size_t length)
{
	struct qp4_switch *sw = client->sw;
	struct sk_buff *skb;

	if (sw->cpu_port == QP4_NO_PORT)
		return qp4_reply_error(client, -ENOENT, "the switch has no CPU port");
	if (!sw->pipeline)
		return qp4_reply_error(client, -ENOENT, "no program is loaded");
	if (!length || length > QP4_MOST_PACKET)
		return qp4_reply_error(client, -EMSGSIZE, "a packet has 1 to 65535 bytes");
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
	return qp4_reply(client, 0, NULL, 0);
}

static int qp4_do_control(struct qp4_file *client, const u8 *bytes, size_t length)
{
	struct qp4_switch *sw = client->sw;
	struct qp4_bytes answer = {};
	bool known;

	if (!sw->pipeline)
		return qp4_reply_error(client, -ENOENT, "no program is loaded");
	qp4_reserve();
	local_bh_disable();
	known = qp4_engine_control(sw->pipeline->engine, bytes, length, &answer);
	local_bh_enable();
	if (!known)
		return qp4_reply_error(client, -EINVAL, "not a request to a program");
	return qp4_reply_bytes(client, 0, &answer);
}

/* Called under the switch's lock. */
static int qp4_execute(struct qp4_file *client, const struct qp4_request *request, size_t length)
{
	const u8 *bytes = (const u8 *)(request + 1);

	switch (request->command) {
	case QP4_LOAD:
		return qp4_do_load(client, bytes, length);
	case QP4_ATTACH:
		return qp4_do_attach(client, request->value, bytes, length);
	case QP4_DETACH:
		return qp4_do_detach(client, request->value);
	case QP4_CONTROL:
		return qp4_do_control(client, bytes, length);
	case QP4_COUNTERS:
		return qp4_reply(client, 0, &client->sw->counters, sizeof(client->sw->counters));
	case QP4_EVENTS:
		return qp4_do_events(client, request->value);
	case QP4_CPU_PORT:
		return qp4_do_cpu_port(client, request->value);
	case QP4_PACKET_OUT:
		return qp4_do_packet_out(client, bytes, length);
	}
	return qp4_reply_error(client, -EOPNOTSUPP, "no such command");
}

static ssize_t qp4_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	struct qp4_file *client = file->private_data;
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
	mutex_lock(&client->lock);
	kvfree(client->reply);
	client->reply = NULL;
	client->length = 0;
	client->offset = 0;
	mutex_lock(&client->sw->lock);
	err = qp4_execute(client, request, count - sizeof(*request));
	mutex_unlock(&client->sw->lock);
	mutex_unlock(&client->lock);
	kvfree(request);
	return err ?: count;
}

static ssize_t qp4_read(struct file *file, char __user *to, size_t count, loff_t *pos)
{
	struct qp4_file *client = file->private_data;

	mutex_lock(&client->lock);
	count = min(count, client->length - client->offset);
	if (copy_to_user(to, client->reply + client->offset, count))
		count = -EFAULT;
	else
		client->offset += count;
	mutex_unlock(&client->lock);
	return count;
}

/* The file is readable if there are events for QP4_EVENTS. */
static __poll_t qp4_poll(struct file *file, poll_table *wait)
{
	struct qp4_file *client = file->private_data;

	poll_wait(file, &client->sw->events_wait, wait);
	return EPOLLOUT | EPOLLWRNORM |
	       (qp4_has_events(client->sw) ? EPOLLIN | EPOLLRDNORM : 0);
}

static int qp4_open(struct inode *inode, struct file *file)
{
	struct net *net = current->nsproxy->net_ns;
	struct qp4_file *client;

	if (!ns_capable(net->user_ns, CAP_NET_ADMIN))
		return -EPERM;
	client = kzalloc(sizeof(*client), GFP_KERNEL);
	if (!client)
		return -ENOMEM;
	client->sw = qp4_switch_of(net);
	if (!client->sw) {
		kfree(client);
		return -ENOMEM;
	}
	client->net = get_net(net);
	mutex_init(&client->lock);
	file->private_data = client;
	return 0;
}

static int qp4_release(struct inode *inode, struct file *file)
{
	struct qp4_file *client = file->private_data;

	put_net(client->net);
	kvfree(client->reply);
	kfree(client);
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
