/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Input side of the qdisc `rpm`: the registers of a network namespace, and the
 * hook that sets ECE in received acknowledgements.
 *
 * A namespace is a switch: all its rpm qdiscs with per-flow registers share one
 * array. A per_port qdisc has one register.
 */
#ifndef _SCH_RPM_REGISTERS_H
#define _SCH_RPM_REGISTERS_H

#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/siphash.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include <qbed/tcp_segment.h>

#include "rpm_algorithm.h"

struct rpm_switch {
	spinlock_t lock;		/* protects registers, ports and their statistics */
	struct list_head ports;		/* all ports; the hook is registered while there are any */
	struct rpm_params params;	/* parameters of the registers: those set last */
	struct rpm_register *registers;
	u32 register_count;
	u32 register_users;
};

struct rpm_port {
	struct list_head list;		/* empty: not joined */
	struct rpm_switch *sw;
	struct net *net;
	struct net_device *dev;
	struct rpm_params params;	/* per_port: acknowledgements received on dev decrement
					 * `shared`
					 */
	struct rpm_register shared;
	struct rpm_stats stats;
	u64 changed_ns;			/* time up to which stats.pending_time_ns is integrated */
};

static unsigned int rpm_net_id __read_mostly;

/* Constant, so that runs are reproducible; provoking collisions gains an attacker little. */
static const siphash_key_t rpm_hash_key = { { 0x7265766572736520ull, 0x7061746820524543ull } };

static u64 rpm_hash(const struct tcp_flow *flow)
{
	return siphash(flow, sizeof(*flow), &rpm_hash_key);
}

/* Returns the register of @flow, and its @signature. */
static struct rpm_register *rpm_register_of(struct rpm_switch *sw, const struct tcp_flow *flow,
					    u32 *signature)
{
	u64 hash = rpm_hash(flow);

	*signature = rpm_signature(hash);
	return &sw->registers[rpm_position(hash, sw->register_count)];
}

/* The law signals congestion with @skb. Returns true if the decision was registered for the reverse path. */
static bool rpm_register_decision(struct rpm_port *port, struct sk_buff *skb, bool had_ce)
{
	struct rpm_stats *stats = &port->stats;
	enum rpm_path path = RPM_FORWARD;
	u64 now_ns = ktime_get_ns();
	struct tcp_segment segment;
	struct rpm_register *reg;
	u32 signature;

	spin_lock(&port->sw->lock);
	stats->marked++;
	if (had_ce) {
		stats->ce_arrived++;
		goto unlock;
	}
	if (!tcp_segment_parse(skb, &segment)) {
		path = RPM_FORWARD;
	} else if (port->params.per_port) {
		path = rpm_on_congestion(&port->params, &port->shared, RPM_ANY_FLOW, port, now_ns);
	} else {
		reg = rpm_register_of(port->sw, &segment.flow, &signature);
		path = rpm_on_congestion(&port->sw->params, reg, signature, port, now_ns);
	}
	switch (path) {
	case RPM_REVERSE:
		rpm_stats_advance(stats, &port->changed_ns, now_ns);
		stats->pending++;
		break;
	case RPM_MERGED:
		stats->merged++;
		break;
	case RPM_COLLISION:
		stats->collisions++;
		fallthrough;
	case RPM_FORWARD:
		stats->forward_marks++;
		break;
	}
unlock:
	spin_unlock(&port->sw->lock);
	return path == RPM_REVERSE || path == RPM_MERGED;
}

static void rpm_cleared(struct rpm_port *port, u32 decisions, u64 now_ns)
{
	rpm_stats_advance(&port->stats, &port->changed_ns, now_ns);
	port->stats.pending -= decisions;
	port->stats.cleared += decisions;
}

/* Returns true if the acknowledgement carries a decision. */
static bool rpm_apply_ack(const struct rpm_params *params, struct rpm_register *reg,
			     u32 signature, struct sk_buff *skb, struct tcp_segment *segment,
			     enum rpm_ack ack, u64 now_ns)
{
	struct rpm_arrival arrival = rpm_on_ack(params, reg, signature, ack, now_ns);
	struct rpm_port *port = arrival.port;

	if (arrival.cleared)
		rpm_cleared(port, arrival.cleared, now_ns);
	if (arrival.verdict != RPM_MARK)
		return false;

	if (segment->th->ece) {
		port->stats.ece_already_set++;
	} else if (tcp_segment_set_ece(skb, segment)) {
		port->stats.reverse_marks++;
	} else {
		reg->pending++;		/* no memory: left to the next acknowledgement */
		return false;
	}
	rpm_stats_advance(&port->stats, &port->changed_ns, now_ns);
	port->stats.pending--;
	return true;
}

/* The connection of @flow ended: release its register. */
static void rpm_release_register(struct rpm_switch *sw, const struct tcp_flow *flow, u64 now_ns)
{
	u32 signature, cleared;
	struct rpm_register *reg = rpm_register_of(sw, flow, &signature);

	cleared = rpm_on_end(reg, signature);
	if (cleared)
		rpm_cleared(reg->port, cleared, now_ns);
}

/* Processes an acknowledgement of @flow. */
static void rpm_process_ack(struct rpm_switch *sw, const struct tcp_flow *flow, struct sk_buff *skb,
			struct tcp_segment *segment, u64 now_ns)
{
	enum rpm_ack ack = segment->th->syn ? RPM_ACK_OPENS : RPM_ACK;
	struct rpm_register *reg;
	struct rpm_port *port;
	u32 signature;

	list_for_each_entry(port, &sw->ports, list) {
		if (!port->params.per_port || port->dev != skb->dev)
			continue;
		if (rpm_apply_ack(&port->params, &port->shared, RPM_ANY_FLOW, skb, segment,
				     ack, now_ns))
			ack = RPM_ACK_TAKEN;
	}
	if (sw->registers) {
		reg = rpm_register_of(sw, flow, &signature);
		rpm_apply_ack(&sw->params, reg, signature, skb, segment, ack, now_ns);
	}
}

static void rpm_process_segment(struct rpm_switch *sw, struct sk_buff *skb, struct tcp_segment *segment)
{
	const struct tcp_flow flow = tcp_flow_reversed(&segment->flow);
	const struct tcphdr th = *segment->th;
	u64 now_ns = ktime_get_ns();
	struct rpm_register *reg;
	u32 signature;

	spin_lock(&sw->lock);
	if (sw->registers && (th.syn || th.rst))
		rpm_release_register(sw, &segment->flow, now_ns);
	if (sw->registers && th.rst)
		rpm_release_register(sw, &flow, now_ns);
	if (th.ack && !th.rst)
		rpm_process_ack(sw, &flow, skb, segment, now_ns);
	/* Last, so that the acknowledgement in this segment does not take over the register. */
	if (sw->registers && th.fin) {
		reg = rpm_register_of(sw, &segment->flow, &signature);
		rpm_on_fin(reg, signature);
	}
	spin_unlock(&sw->lock);
}

static unsigned int rpm_input(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct tcp_segment segment;

	if (tcp_segment_parse(skb, &segment))
		rpm_process_segment(net_generic(state->net, rpm_net_id), skb, &segment);
	return NF_ACCEPT;
}

/* Before NAT: the 5-tuple is the one on the wire, as at the output. */
static const struct nf_hook_ops rpm_hook = {
	.hook = rpm_input,
	.pf = NFPROTO_INET,
	.hooknum = NF_INET_PRE_ROUTING,
	.priority = NF_IP_PRI_RAW,
};

/* The port's qdisc was reset or is destroyed: discard its pending decisions. */
static void rpm_port_clear(struct rpm_port *port)
{
	struct rpm_switch *sw = port->sw;
	u32 cleared = 0, i;

	if (list_empty(&port->list))
		return;
	spin_lock_bh(&sw->lock);
	if (port->params.per_port) {
		cleared = rpm_clear(&port->shared);
	} else if (port->stats.pending) {
		for (i = 0; i < sw->register_count; i++) {
			if (sw->registers[i].port == port)
				cleared += rpm_clear(&sw->registers[i]);
		}
	}
	rpm_cleared(port, cleared, ktime_get_ns());
	spin_unlock_bh(&sw->lock);
}

static int rpm_registers_get(struct rpm_switch *sw, u32 count, struct netlink_ext_ack *extack)
{
	struct rpm_register *registers;

	if (sw->register_users) {
		if (count != sw->register_count) {
			NL_SET_ERR_MSG(extack,
				       "rpm qdiscs of a namespace share their registers: `registers` must be equal");
			return -EINVAL;
		}
	} else {
		registers = kvcalloc(count, sizeof(*registers), GFP_KERNEL);
		if (!registers)
			return -ENOMEM;
		spin_lock_bh(&sw->lock);
		sw->registers = registers;
		sw->register_count = count;
		spin_unlock_bh(&sw->lock);
	}
	sw->register_users++;
	return 0;
}

static void rpm_registers_put(struct rpm_switch *sw)
{
	struct rpm_register *registers = sw->registers;

	if (--sw->register_users)
		return;
	spin_lock_bh(&sw->lock);
	sw->registers = NULL;
	sw->register_count = 0;
	spin_unlock_bh(&sw->lock);
	kvfree(registers);
}

/* Called under RTNL, like rpm_port_leave(). @port->dev and @port->params are set. */
static int rpm_port_join(struct rpm_port *port, struct netlink_ext_ack *extack)
{
	struct rpm_switch *sw;
	int err;

	port->net = dev_net(port->dev);
	sw = net_generic(port->net, rpm_net_id);
	port->sw = sw;
	if (!port->params.per_port) {
		err = rpm_registers_get(sw, port->params.registers, extack);
		if (err)
			return err;
	}
	if (list_empty(&sw->ports)) {
		err = nf_register_net_hook(port->net, &rpm_hook);
		if (err) {
			if (!port->params.per_port)
				rpm_registers_put(sw);
			return err;
		}
	}
	spin_lock_bh(&sw->lock);
	port->changed_ns = ktime_get_ns();
	list_add_tail(&port->list, &sw->ports);
	spin_unlock_bh(&sw->lock);
	return 0;
}

static void rpm_port_leave(struct rpm_port *port)
{
	struct rpm_switch *sw = port->sw;

	if (list_empty(&port->list))
		return;
	rpm_port_clear(port);
	spin_lock_bh(&sw->lock);
	list_del_init(&port->list);
	spin_unlock_bh(&sw->lock);
	if (list_empty(&sw->ports))
		nf_unregister_net_hook(port->net, &rpm_hook);
	if (!port->params.per_port)
		rpm_registers_put(sw);
}

static int __net_init rpm_net_init(struct net *net)
{
	struct rpm_switch *sw = net_generic(net, rpm_net_id);

	spin_lock_init(&sw->lock);
	INIT_LIST_HEAD(&sw->ports);
	return 0;
}

static struct pernet_operations rpm_net_ops = {
	.init = rpm_net_init,
	.id = &rpm_net_id,
	.size = sizeof(struct rpm_switch),
};

#endif /* _SCH_RPM_REGISTERS_H */
