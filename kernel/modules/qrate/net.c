// SPDX-License-Identifier: GPL-2.0-only
/* State of a network namespace. */
#include <linux/slab.h>
#include <net/netns/generic.h>

#include "qrate.h"

static unsigned int qrate_net_id;

struct qrate_net *qrate_net(const struct net *net)
{
	return net_generic(net, qrate_net_id);
}

static int __net_init qrate_net_init(struct net *net)
{
	struct qrate_net *qnet = qrate_net(net);

	qnet->net = net;
	xa_init_flags(&qnet->records, XA_FLAGS_ALLOC | XA_FLAGS_LOCK_BH);
	xa_init(&qnet->senders);
	INIT_LIST_HEAD(&qnet->listeners);
	INIT_LIST_HEAD(&qnet->ended);
	spin_lock_init(&qnet->ended_lock);
	INIT_DELAYED_WORK(&qnet->reap, qrate_reap);
	return 0;
}

/*
 * After this function and a grace period nothing is sent, and only the senders'
 * sockets receive.
 */
static void __net_exit qrate_net_pre_exit(struct net *net)
{
	struct qrate_net *qnet = qrate_net(net);
	struct qrate_listener *listener;
	struct qrate_sender *sender;
	unsigned long flow;

	list_for_each_entry(listener, &qnet->listeners, list)
		qrate_listener_close(listener);
	xa_for_each(&qnet->senders, flow, sender)
		qrate_sender_halt(sender);
}

static void __net_exit qrate_net_exit(struct net *net)
{
	struct qrate_net *qnet = qrate_net(net);
	struct qrate_listener *listener, *next;
	struct qrate_record *record;
	unsigned long id;

	cancel_delayed_work_sync(&qnet->reap);
	xa_for_each(&qnet->records, id, record) {
		if (record->role == QRATE_SENDER)
			qrate_sender_free(container_of(record, struct qrate_sender, record));
		else
			qrate_receiver_free(container_of(record, struct qrate_receiver, record));
	}
	list_for_each_entry_safe(listener, next, &qnet->listeners, list)
		kfree(listener);
	xa_destroy(&qnet->senders);
	xa_destroy(&qnet->records);
}

static struct pernet_operations qrate_net_operations = {
	.init = qrate_net_init,
	.pre_exit = qrate_net_pre_exit,
	.exit = qrate_net_exit,
	.id = &qrate_net_id,
	.size = sizeof(struct qrate_net),
};

int qrate_nets_init(void)
{
	return register_pernet_subsys(&qrate_net_operations);
}

void qrate_nets_exit(void)
{
	unregister_pernet_subsys(&qrate_net_operations);
}
