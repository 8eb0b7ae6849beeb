// SPDX-License-Identifier: GPL-2.0-only
/*
 * qp4: a network namespace as a P4 switch (include/uapi/qbed/qp4.h).
 *
 *   device.c     requests and replies of /dev/qp4
 *   ingress.c    from a port through the program's ingress
 *   queue.c      from ingress into a port's queue
 *   egress.c     between queue and wire, the program's egress
 *   metadata.c   metadata of queued packets
 *   events.c     events of the program, packets to the CPU port
 *   memory.c     functions that the engine imports
 *   core.o       the engine, Rust: core.h
 *
 * A switch is created when /dev/qp4 is first opened in its namespace, and exists
 * as long as the namespace. When a port's device is removed, the port is free.
 */
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <net/netns/generic.h>

#include "qp4.h"

static unsigned int qp4_net_id;

struct qp4_net {
	struct qp4_switch *sw;		/* NULL: not created yet */
};

/* Programs */

/* Also called with bottom halves disabled: freeing the engine's memory does not sleep. */
void qp4_pipeline_put(struct qp4_pipeline *pipeline)
{
	if (!refcount_dec_and_test(&pipeline->references))
		return;
	qp4_metadata_free_cached(pipeline);
	qp4_engine_free(pipeline->engine);
	kfree(pipeline);
}

static void qp4_swap_pipeline(struct qp4_switch *sw, struct qp4_pipeline *pipeline)
{
	local_bh_disable();
	swap(sw->pipeline, pipeline);
	if (pipeline)
		qp4_pipeline_put(pipeline);
	local_bh_enable();
}

int qp4_load(struct qp4_switch *sw, const u8 *image, size_t length, struct qp4_bytes *error)
{
	struct qp4_pipeline *pipeline = kzalloc(sizeof(*pipeline), GFP_KERNEL);

	if (!pipeline)
		return -ENOMEM;
	refcount_set(&pipeline->references, 1);
	pipeline->engine = qp4_engine_load(image, length, sw, error);
	if (!pipeline->engine) {
		kfree(pipeline);
		return -EINVAL;
	}
	pipeline->reach = qp4_engine_lookahead_bytes(pipeline->engine);
	if (pipeline->reach > QP4_MAX_FRONT)
		pipeline->reach = U32_MAX;
	pipeline->defers_checksums = pipeline->reach != U32_MAX &&
				     qp4_engine_defers_checksums(pipeline->engine);
	qp4_swap_pipeline(sw, pipeline);
	return 0;
}

/* Ports */

/*
 * Called under RTNL. Queued packets are dropped if the queue is destroyed;
 * otherwise they are sent without egress processing, or by the program if the
 * port is attached again.
 */
static void qp4_port_free(struct qp4_port *port)
{
	struct qbed_link *link = qbed_link(port->dev);

	netdev_rx_handler_unregister(port->dev);
	local_bh_disable();
	link->egress = NULL;
	port->sw->ports[port->number] = NULL;
	local_bh_enable();
	netdev_put(port->dev, &port->dev_tracker);
	kfree(port);
}

static int qp4_port_new(struct qp4_switch *sw, u16 number, struct net_device *dev)
{
	struct qbed_link *link = qbed_link(dev);
	struct qp4_port *port = kzalloc(sizeof(*port), GFP_KERNEL);
	int err;

	if (!port)
		return -ENOMEM;
	port->egress.egress = qp4_egress;
	port->sw = sw;
	port->dev = dev;
	port->number = number;
	err = netdev_rx_handler_register(dev, qp4_receive, port);
	if (err) {
		kfree(port);
		return err;
	}
	netdev_hold(dev, &port->dev_tracker, GFP_KERNEL);
	netif_keep_dst(dev);		/* the metadata is the dst of queued packets */
	dev_set_promiscuity(dev, 1);
	local_bh_disable();
	link->egress = &port->egress;
	sw->ports[number] = port;
	local_bh_enable();
	return 0;
}

int qp4_attach(struct qp4_switch *sw, u16 number, const char *name, const char **error)
{
	struct net_device *dev;
	int err = -EINVAL;

	rtnl_lock();
	dev = __dev_get_by_name(sw->net, name);
	if (!dev) {
		*error = "no such interface";
		err = -ENODEV;
	} else if (!qbed_link(dev)) {
		*error = "the interface is not a qlink";
	} else if (sw->ports[number] || number == sw->cpu_port) {
		*error = sw->ports[number] ? "the port has an interface" : "the port is the CPU port";
		err = -EEXIST;
	} else {
		err = qp4_port_new(sw, number, dev);
		*error = err == -EBUSY ? "the interface belongs to a switch or a bridge" : NULL;
	}
	rtnl_unlock();
	return err;
}

int qp4_detach(struct qp4_switch *sw, u16 number)
{
	struct net_device *dev;
	int err = -ENOENT;

	rtnl_lock();
	if (sw->ports[number]) {
		dev = sw->ports[number]->dev;
		qp4_port_free(sw->ports[number]);
		dev_set_promiscuity(dev, -1);
		err = 0;
	}
	rtnl_unlock();
	return err;
}

int qp4_set_cpu_port(struct qp4_switch *sw, u32 number, const char **error)
{
	int err = 0;

	rtnl_lock();
	if (number != QP4_DROP_PORT && sw->ports[number]) {
		*error = "the port has an interface";
		err = -EEXIST;
	} else {
		sw->cpu_port = number == QP4_DROP_PORT ? QP4_NO_PORT : number;
	}
	rtnl_unlock();
	return err;
}

static int qp4_netdevice_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct net_device *dev = netdev_notifier_info_to_dev(data);

	if (event == NETDEV_UNREGISTER && rtnl_dereference(dev->rx_handler) == qp4_receive)
		qp4_port_free(rtnl_dereference(dev->rx_handler_data));
	return NOTIFY_DONE;
}

static struct notifier_block qp4_netdevice_notifier = {
	.notifier_call = qp4_netdevice_event,
};

/* Switches */

static struct qp4_switch *qp4_switch_new(struct net *net)
{
	struct qp4_switch *sw = kzalloc(sizeof(*sw), GFP_KERNEL);

	if (!sw)
		return NULL;
	sw->net = net;
	mutex_init(&sw->lock);
	__skb_queue_head_init(&sw->deferred);
	sw->cpu_port = QP4_NO_PORT;
	skb_queue_head_init(&sw->events);
	skb_queue_head_init(&sw->packets_in);
	init_waitqueue_head(&sw->events_wait);
	tasklet_setup(&sw->tasklet, qp4_run_deferred);
	return sw;
}

/* Creates the switch on first use. Returns NULL if there is no memory. */
struct qp4_switch *qp4_switch_of(const struct net *net)
{
	static DEFINE_MUTEX(lock);
	struct qp4_net *qnet = net_generic(net, qp4_net_id);

	mutex_lock(&lock);
	if (!qnet->sw)
		qnet->sw = qp4_switch_new((struct net *)net);
	mutex_unlock(&lock);
	return qnet->sw;
}

/* Called after the namespace's devices, and with them the ports, were removed. */
static void __net_exit qp4_net_exit(struct net *net)
{
	struct qp4_net *qnet = net_generic(net, qp4_net_id);
	struct qp4_switch *sw = qnet->sw;
	u32 i;

	if (!sw)
		return;
	rtnl_lock();			/* the module may be removed before the devices */
	for (i = 0; i < QP4_MOST_PORTS; i++) {
		if (sw->ports[i])
			qp4_port_free(sw->ports[i]);
	}
	rtnl_unlock();
	tasklet_kill(&sw->tasklet);
	qp4_purge(sw);
	qp4_swap_pipeline(sw, NULL);
	skb_queue_purge(&sw->events);
	skb_queue_purge(&sw->packets_in);
	kfree(sw);
}

static struct pernet_operations qp4_net_operations = {
	.exit = qp4_net_exit,
	.id = &qp4_net_id,
	.size = sizeof(struct qp4_net),
};

static int __init qp4_init(void)
{
	int err;

	err = qp4_metadata_init();
	if (err)
		return err;
	err = register_pernet_subsys(&qp4_net_operations);
	if (err)
		goto metadata;
	err = register_netdevice_notifier(&qp4_netdevice_notifier);
	if (err)
		goto pernet;
	err = qp4_device_init();
	if (err)
		goto notifier;
	return 0;

notifier:
	unregister_netdevice_notifier(&qp4_netdevice_notifier);
pernet:
	unregister_pernet_subsys(&qp4_net_operations);
metadata:
	qp4_metadata_exit();
	return err;
}

static void __exit qp4_exit(void)
{
	qp4_device_exit();
	unregister_netdevice_notifier(&qp4_netdevice_notifier);
	unregister_pernet_subsys(&qp4_net_operations);
	qp4_metadata_exit();
	qp4_memory_exit();
}

module_init(qp4_init);
module_exit(qp4_exit);

MODULE_DESCRIPTION("A network namespace as a P4 switch");
MODULE_LICENSE("GPL");
