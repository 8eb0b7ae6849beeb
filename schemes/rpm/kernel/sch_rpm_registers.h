/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The input side of the qdisc `rpm`: the registers of a network namespace,
 * and the hook that sets ECE in acknowledgements on their way in.
 *
 * A namespace is a switch: all its rpm qdiscs that have a register for each flow
 * share one array of them. Those that are per_port have one register each.
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
	spinlock_t lock;		/* of all that decisions and acknowledgements change */
	struct list_head ports;		/* all; the hook stands while there are any */
	struct rpm_params params;	/* of the registers: those that were set last */
	struct rpm_register *registers;
	u32 register_count;
	u32 register_users;
};

struct rpm_port {
	struct list_head list;		/* empty: has not joined */
	struct rpm_switch *on;
	struct net *net;
	struct net_device *dev;
	struct rpm_params params;	/* per_port: acknowledgements that come in by dev empty `shared` */
	struct rpm_register shared;
	struct rpm_stats stats;
	u64 changed_ns;			/* stats.pending_time_ns is integrated up to here */
};

static unsigned int rpm_net_id __read_mostly;

/* Fixed, so that runs repeat; nobody gains much by provoking collisions. */
static const siphash_key_t rpm_hash_key = { { 0x7265766572736520ull, 0x7061746820524543ull } };

static u64 rpm_hash(const struct tcp_flow *flow)
{
	return siphash(flow, sizeof(*flow), &rpm_hash_key);
}

/* The register of @flow, and what identifies the flow in it. */
static struct rpm_register *rpm_register_of(struct rpm_switch *on, const struct tcp_flow *flow,
					    u32 *signature)
{
	u64 hash = rpm_hash(flow);

	*signature = rpm_signature(hash);
	return &on->registers[rpm_position(hash, on->register_count)];
}

/*
 * CoDel has marked @skb. True: the decision is registered, and goes the
 * reverse path instead.
 */
static bool rpm_decided(struct rpm_port *port, struct sk_buff *skb, bool had_ce)
{
	struct rpm_stats *stats = &port->stats;
	enum rpm_path path = RPM_FORWARD;
	u64 now_ns = ktime_get_ns();
	struct tcp_segment segment;
	struct rpm_register *reg;
	u32 signature;

	spin_lock(&port->on->lock);
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
		reg = rpm_register_of(port->on, &segment.flow, &signature);
		path = rpm_on_congestion(&port->on->params, reg, signature, port, now_ns);
	}
	switch (path) {
	case RPM_REVERSE:
		rpm_stats_advance(stats, &port->changed_ns, now_ns);
		stats->pending++;
		break;
	case RPM_COLLISION:
		stats->collisions++;
		fallthrough;
	case RPM_FORWARD:
		stats->forward_marks++;
		break;
	}
unlock:
	spin_unlock(&port->on->lock);
	return path == RPM_REVERSE;
}

static void rpm_cleared(struct rpm_port *port, u32 decisions, u64 now_ns)
{
	rpm_stats_advance(&port->stats, &port->changed_ns, now_ns);
	port->stats.pending -= decisions;
	port->stats.cleared += decisions;
}

/* True: the acknowledgement carries a decision away. */
static bool rpm_acknowledged(const struct rpm_params *params, struct rpm_register *reg,
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
		reg->pending++;		/* no memory: the next one shall carry it */
		return false;
	}
	rpm_stats_advance(&port->stats, &port->changed_ns, now_ns);
	port->stats.pending--;
	return true;
}

/* @flow's register serves it no longer. */
static void rpm_ended(struct rpm_switch *on, const struct tcp_flow *flow, u64 now_ns)
{
	u32 signature, cleared;
	struct rpm_register *reg = rpm_register_of(on, flow, &signature);

	cleared = rpm_on_end(reg, signature);
	if (cleared)
		rpm_cleared(reg->port, cleared, now_ns);
}

/* By an acknowledgement of @flow. */
static void rpm_carried(struct rpm_switch *on, const struct tcp_flow *flow, struct sk_buff *skb,
			struct tcp_segment *segment, u64 now_ns)
{
	enum rpm_ack ack = segment->th->syn ? RPM_ACK_OPENS : RPM_ACK;
	struct rpm_register *reg;
	struct rpm_port *port;
	u32 signature;

	list_for_each_entry(port, &on->ports, list) {
		if (!port->params.per_port || port->dev != skb->dev)
			continue;
		if (rpm_acknowledged(&port->params, &port->shared, RPM_ANY_FLOW, skb, segment,
				     ack, now_ns))
			ack = RPM_ACK_TAKEN;
	}
	if (on->registers) {
		reg = rpm_register_of(on, flow, &signature);
		rpm_acknowledged(&on->params, reg, signature, skb, segment, ack, now_ns);
	}
}

static void rpm_arrived(struct rpm_switch *on, struct sk_buff *skb, struct tcp_segment *segment)
{
	const struct tcp_flow flow = tcp_flow_reversed(&segment->flow);
	const struct tcphdr th = *segment->th;
	u64 now_ns = ktime_get_ns();
	struct rpm_register *reg;
	u32 signature;

	spin_lock(&on->lock);
	if (on->registers && (th.syn || th.rst))
		rpm_ended(on, &segment->flow, now_ns);
	if (on->registers && th.rst)
		rpm_ended(on, &flow, now_ns);
	if (th.ack && !th.rst)
		rpm_carried(on, &flow, skb, segment, now_ns);
	/* Last: this very acknowledgement shall not take what the flow leaves. */
	if (on->registers && th.fin) {
		reg = rpm_register_of(on, &segment->flow, &signature);
		rpm_on_fin(reg, signature);
	}
	spin_unlock(&on->lock);
}

static unsigned int rpm_input(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct tcp_segment segment;

	if (tcp_segment_parse(skb, &segment))
		rpm_arrived(net_generic(state->net, rpm_net_id), skb, &segment);
	return NF_ACCEPT;
}

/* Before addresses are translated: the 5-tuple is the one on the wire, as at the output. */
static const struct nf_hook_ops rpm_hook = {
	.hook = rpm_input,
	.pf = NFPROTO_INET,
	.hooknum = NF_INET_PRE_ROUTING,
	.priority = NF_IP_PRI_RAW,
};

/* The port's qdisc has been emptied or goes away: nothing waits for it any more. */
static void rpm_port_clear(struct rpm_port *port)
{
	struct rpm_switch *on = port->on;
	u32 cleared = 0, i;

	if (list_empty(&port->list))
		return;
	spin_lock_bh(&on->lock);
	if (port->params.per_port) {
		cleared = rpm_clear(&port->shared);
	} else if (port->stats.pending) {
		for (i = 0; i < on->register_count; i++) {
			if (on->registers[i].port == port)
				cleared += rpm_clear(&on->registers[i]);
		}
	}
	rpm_cleared(port, cleared, ktime_get_ns());
	spin_unlock_bh(&on->lock);
}

static int rpm_registers_get(struct rpm_switch *on, u32 count, struct netlink_ext_ack *extack)
{
	struct rpm_register *registers;

	if (on->register_users) {
		if (count != on->register_count) {
			NL_SET_ERR_MSG(extack,
				       "rpm qdiscs of a namespace share their registers: give all the same number");
			return -EINVAL;
		}
	} else {
		registers = kvcalloc(count, sizeof(*registers), GFP_KERNEL);
		if (!registers)
			return -ENOMEM;
		spin_lock_bh(&on->lock);
		on->registers = registers;
		on->register_count = count;
		spin_unlock_bh(&on->lock);
	}
	on->register_users++;
	return 0;
}

static void rpm_registers_put(struct rpm_switch *on)
{
	struct rpm_register *registers = on->registers;

	if (--on->register_users)
		return;
	spin_lock_bh(&on->lock);
	on->registers = NULL;
	on->register_count = 0;
	spin_unlock_bh(&on->lock);
	kvfree(registers);
}

/* Under RTNL, as leaving. @port->dev and @port->params are set. */
static int rpm_port_join(struct rpm_port *port, struct netlink_ext_ack *extack)
{
	struct rpm_switch *on;
	int err;

	port->net = dev_net(port->dev);
	on = net_generic(port->net, rpm_net_id);
	port->on = on;
	if (!port->params.per_port) {
		err = rpm_registers_get(on, port->params.registers, extack);
		if (err)
			return err;
	}
	if (list_empty(&on->ports)) {
		err = nf_register_net_hook(port->net, &rpm_hook);
		if (err) {
			if (!port->params.per_port)
				rpm_registers_put(on);
			return err;
		}
	}
	spin_lock_bh(&on->lock);
	port->changed_ns = ktime_get_ns();
	list_add_tail(&port->list, &on->ports);
	spin_unlock_bh(&on->lock);
	return 0;
}

static void rpm_port_leave(struct rpm_port *port)
{
	struct rpm_switch *on = port->on;

	if (list_empty(&port->list))
		return;
	rpm_port_clear(port);
	spin_lock_bh(&on->lock);
	list_del_init(&port->list);
	spin_unlock_bh(&on->lock);
	if (list_empty(&on->ports))
		nf_unregister_net_hook(port->net, &rpm_hook);
	if (!port->params.per_port)
		rpm_registers_put(on);
}

static int __net_init rpm_net_init(struct net *net)
{
	struct rpm_switch *on = net_generic(net, rpm_net_id);

	spin_lock_init(&on->lock);
	INIT_LIST_HEAD(&on->ports);
	return 0;
}

static struct pernet_operations rpm_net_ops = {
	.init = rpm_net_init,
	.id = &rpm_net_id,
	.size = sizeof(struct rpm_switch),
};

#endif /* _SCH_RPM_REGISTERS_H */
