// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hooks: the tap takes the place of a root qdisc's operations, follows a
 * replacement of the qdisc, and releases it when its device is unregistered.
 */
#include <linux/rtnetlink.h>
#include <linux/workqueue.h>

#include "qtap.h"

LIST_HEAD(qtap_list);

void qtap_unhook(struct qtap *tap)
{
	struct Qdisc *sch = tap->sch;

	if (!sch)
		return;
	spin_lock_bh(qdisc_lock(sch));
	spin_lock(&tap->lock);
	sch->enqueue = tap->enqueue;
	sch->dequeue = tap->dequeue;
	sch->ops = tap->original_ops;
	if (tap->bypass)
		sch->flags |= TCQ_F_CAN_BYPASS;
	tap->sch = NULL;
	if (tap->link)
		tap->link->observer = NULL;
	qtap_packets_release(&tap->packets);
	spin_unlock(&tap->lock);
	spin_unlock_bh(qdisc_lock(sch));
}

static void qtap_rehook(struct work_struct *work);
static DECLARE_WORK(qtap_rehook_work, qtap_rehook);

static void qtap_destroy(struct Qdisc *sch)
{
	struct qtap *tap = qtap_from_qdisc(sch);

	/* A root qdisc is destroyed under RTNL, after its reset. */
	qtap_unhook(tap);
	schedule_work(&qtap_rehook_work);
	if (tap->original_ops->destroy)
		tap->original_ops->destroy(sch);
}

int qtap_hook(struct qtap *tap)
{
	struct Qdisc *sch = rtnl_dereference(tap->dev->qdisc);

	if (!sch || sch->flags & TCQ_F_BUILTIN)
		return -ENODEV;		/* the device is down: hooked when it comes up */
	if (!sch->enqueue || sch->flags & TCQ_F_MQROOT || tap->dev->num_tx_queues != 1)
		return -EOPNOTSUPP;
	if (sch->enqueue == qtap_enqueue)
		return -EBUSY;

	spin_lock_bh(qdisc_lock(sch));
	spin_lock(&tap->lock);
	qtap_count_queued(tap, sch);
	tap->original_ops = sch->ops;
	tap->ops = *sch->ops;
	tap->ops.reset = qtap_reset;
	tap->ops.destroy = qtap_destroy;
	if (tap->ops.change)
		tap->ops.change = qtap_change;
	tap->enqueue = sch->enqueue;
	tap->dequeue = sch->dequeue;
	tap->bypass = sch->flags & TCQ_F_CAN_BYPASS;
	sch->flags &= ~TCQ_F_CAN_BYPASS;
	sch->ops = &tap->ops;
	sch->enqueue = qtap_enqueue;
	sch->dequeue = qtap_dequeue;
	tap->sch = sch;
	tap->link = qbed_link(tap->dev);
	if (tap->link)
		tap->link->observer = &tap->observer;
	spin_unlock(&tap->lock);
	spin_unlock_bh(qdisc_lock(sch));
	return 0;
}

/* Hooks the qdisc that replaced a tapped one. */
static void qtap_rehook(struct work_struct *work)
{
	struct qtap *tap;

	rtnl_lock();
	list_for_each_entry(tap, &qtap_list, list) {
		if (tap->dev && !tap->sch)
			qtap_hook(tap);
	}
	rtnl_unlock();
}

static int qtap_netdevice_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct net_device *dev = netdev_notifier_info_to_dev(data);
	struct qtap *tap;

	if (event != NETDEV_UP && event != NETDEV_UNREGISTER)
		return NOTIFY_DONE;
	list_for_each_entry(tap, &qtap_list, list) {
		if (tap->dev != dev)
			continue;
		if (event == NETDEV_UP) {
			if (!tap->sch)
				qtap_hook(tap);
			continue;
		}
		qtap_unhook(tap);
		tap->dev = NULL;
		netdev_put(dev, &tap->dev_tracker);
	}
	return NOTIFY_DONE;
}

static struct notifier_block qtap_netdevice_notifier = {
	.notifier_call = qtap_netdevice_event,
};

int qtap_hooks_init(void)
{
	return register_netdevice_notifier(&qtap_netdevice_notifier);
}

void qtap_hooks_exit(void)
{
	cancel_work_sync(&qtap_rehook_work);
	unregister_netdevice_notifier(&qtap_netdevice_notifier);
}
