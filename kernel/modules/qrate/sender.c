// SPDX-License-Identifier: GPL-2.0-only
/* Start and end of a sender. */
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "qrate.h"

#define QRATE_FIRST_CAPACITY 16

/*
 * Minimum time that an ended sender keeps its socket: without it, the host
 * would send ICMP errors for packets still in flight.
 */
#define QRATE_LINGER_NS (NSEC_PER_SEC / 2)

/* Allocates a sender without route, socket and flow id. */
struct qrate_sender *qrate_sender_new(struct qrate_net *qnet,
				      const struct rate_controller *controller,
				      void (*on_ended)(struct net *net, u32 flow))
{
	struct qrate_sender *sender = kzalloc(sizeof(*sender), GFP_KERNEL);

	if (!sender)
		return NULL;
	sender->qnet = qnet;
	sender->on_ended = on_ended;
	sender->path.net = qnet->net;
	sender->controller = controller;
	sender->controller_params = kzalloc(controller->params_bytes, GFP_KERNEL);
	sender->controller_state = kzalloc(controller->state_bytes, GFP_KERNEL);
	sender->flight.capacity = QRATE_FIRST_CAPACITY;
	sender->flight.packets = kmalloc_array(QRATE_FIRST_CAPACITY, sizeof(struct qrate_packet),
					       GFP_KERNEL);
	sender->armed_ns = U64_MAX;
	sender->ready = true;
	spin_lock_init(&sender->lock);
	INIT_LIST_HEAD(&sender->ended);
#ifdef QRATE_HAVE_HRTIMER_SETUP
	hrtimer_setup(&sender->timer, qrate_sender_timer, CLOCK_MONOTONIC,
		      HRTIMER_MODE_ABS_SOFT);
#else
	hrtimer_init(&sender->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	sender->timer.function = qrate_sender_timer;
#endif
	if (sender->controller_params && sender->controller_state && sender->flight.packets)
		return sender;
	qrate_sender_free(sender);
	return NULL;
}

/* Checks the requested payload size against the path MTU, or derives it. */
static int qrate_set_payload(struct qrate_sender *sender, struct netlink_ext_ack *extack)
{
	struct qrate_sender_params *params = &sender->params;
	struct qsignal_header header = qrate_data_header(params);
	struct dst_entry *dst;
	u32 mtu;

	params->overhead = qrate_path_overhead(&sender->path, &header);
	rcu_read_lock();
	dst = qrate_path_route(&sender->path);
	mtu = IS_ERR(dst) ? 0 : min_t(u32, dst_mtu(dst), 65535);
	rcu_read_unlock();
	if (IS_ERR(dst)) {
		NL_SET_ERR_MSG(extack, "no route to the destination");
		return PTR_ERR(dst);
	}
	if (mtu <= params->overhead || params->payload > mtu - params->overhead) {
		NL_SET_ERR_MSG(extack, "the payload does not fit into the path's MTU");
		return -EMSGSIZE;
	}
	if (!params->payload)
		params->payload = mtu - params->overhead;
	return 0;
}

static int qrate_register(struct qrate_net *qnet, struct qrate_sender *sender)
{
	int err;

	err = xa_insert(&qnet->senders, sender->record.flow, sender, GFP_KERNEL);
	if (err)
		return err;
	err = xa_alloc_bh(&qnet->records, &sender->record.id, &sender->record, xa_limit_32b,
			  GFP_KERNEL);
	if (err) {
		xa_erase(&qnet->senders, sender->record.flow);
		return err;
	}
	xa_lock_bh(&qnet->records);
	__xa_set_mark(&qnet->records, sender->record.id, QRATE_RUNNING);
	xa_unlock_bh(&qnet->records);
	return 0;
}

/* Registers and starts a sender. On success @qnet owns it. */
int qrate_sender_start(struct qrate_net *qnet, struct qrate_sender *sender,
		       struct netlink_ext_ack *extack)
{
	const struct qrate_path *path = &sender->path;
	int err;

	err = qrate_set_payload(sender, extack);
	if (err)
		return err;
	sender->socket = qrate_socket_open(qnet->net, path->family, &path->source,
					   path->source_port, qrate_sender_receive, sender);
	if (IS_ERR(sender->socket)) {
		err = PTR_ERR(sender->socket);
		sender->socket = NULL;
		NL_SET_ERR_MSG(extack, "cannot bind to the source address and port");
		return err;
	}
	err = qrate_register(qnet, sender);
	if (err) {
		NL_SET_ERR_MSG(extack, "a sender of this flow exists");
		return err == -EBUSY ? -EEXIST : err;
	}
	local_bh_disable();	/* send the first packet at this instant */
	sender->record.start_ns = ktime_get_ns();
	sender->pace.next_ns = sender->record.start_ns;
	if (sender->controller->start)
		sender->controller->start(sender->controller_state, sender->controller_params,
					  sender->record.start_ns);
	qrate_sender_run(sender);
	local_bh_enable();
	return 0;
}

/* Stops transmission permanently. */
void qrate_sender_halt(struct qrate_sender *sender)
{
	spin_lock_bh(&sender->lock);
	sender->dead = true;
	spin_unlock_bh(&sender->lock);
	hrtimer_cancel(&sender->timer);
}

static void qrate_sender_free_rcu(struct rcu_head *rcu)
{
	struct qrate_sender *sender = container_of(rcu, struct qrate_sender, rcu);

	qrate_path_release(&sender->path);
	kfree(sender->flight.packets);
	kfree(sender->controller_params);
	kfree(sender->controller_state);
	kfree(sender);
}

/* The sender was halted or never started. Packets may still be arriving. */
void qrate_sender_free(struct qrate_sender *sender)
{
	qrate_socket_close(sender->socket);
	call_rcu(&sender->rcu, qrate_sender_free_rcu);
}

/* Removes a sender from the list whose socket lingered long enough, or returns NULL. */
static struct qrate_sender *qrate_pop_lingered(struct qrate_net *qnet)
{
	struct qrate_sender *sender;

	spin_lock_bh(&qnet->ended_lock);
	sender = list_first_entry_or_null(&qnet->ended, struct qrate_sender, ended);
	if (sender && sender->record.end_ns + QRATE_LINGER_NS > ktime_get_ns())
		sender = NULL;
	if (sender)
		list_del_init(&sender->ended);
	spin_unlock_bh(&qnet->ended_lock);
	return sender;
}

/* Closes the sockets of ended senders, which are most of a flow's memory. The state stays. */
void qrate_reap(struct work_struct *work)
{
	struct qrate_net *qnet = container_of(to_delayed_work(work), struct qrate_net, reap);
	struct qrate_sender *sender;

	while ((sender = qrate_pop_lingered(qnet))) {
		qrate_socket_close(sender->socket);
		sender->socket = NULL;
	}
	if (!list_empty(&qnet->ended))
		schedule_delayed_work(&qnet->reap, QRATE_REAP_JIFFIES);
}
