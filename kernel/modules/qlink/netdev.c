// SPDX-License-Identifier: GPL-2.0-only
/* The network device of a link end, its rtnetlink options, and the start and end of the module. */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/time-internal.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <net/rtnetlink.h>

#include <qbed/qlink.h>

#include "qlink_end.h"

#define QLINK_MAX_OVERHEAD_BYTES 65535
#define QLINK_MAX_DELAY_NS (3600ull * NSEC_PER_SEC)

static struct rtnl_link_ops qlink_link_ops;

static int qlink_init(struct net_device *dev)
{
	struct qlink_end *end = netdev_priv(dev);

	BUILD_BUG_ON(offsetof(struct qlink_end, link));
	end->dev = dev;
	return qlink_add_end(end);
}

static void qlink_uninit(struct net_device *dev)
{
	qlink_border_close(netdev_priv(dev));
	qlink_remove_end(netdev_priv(dev));
}

static int qlink_open(struct net_device *dev)
{
	struct qlink_end *end = netdev_priv(dev);

	/* A frame whose transmission began before the device was closed still occupies the wire. */
	if (!end->serializing)
		netif_start_queue(dev);
	return 0;
}

static int qlink_stop(struct net_device *dev)
{
	qlink_clear_caches(netdev_priv(dev));
	return 0;
}

static void qlink_get_stats64(struct net_device *dev, struct rtnl_link_stats64 *stats)
{
	const struct qlink_end *end = netdev_priv(dev);
	const struct qlink_end *peer = end->peer;

	stats->tx_packets = end->stats.sent;
	stats->tx_bytes = end->stats.sent_bytes;
	if (peer) {
		stats->rx_packets = peer->stats.delivered;
		stats->rx_bytes = peer->stats.delivered_bytes;
	}
}

static int qlink_get_iflink(const struct net_device *dev)
{
	const struct qlink_end *end = netdev_priv(dev);

	return end->peer ? READ_ONCE(end->peer->dev->ifindex) : 0;
}

static const struct net_device_ops qlink_netdev_ops = {
	.ndo_init = qlink_init,
	.ndo_uninit = qlink_uninit,
	.ndo_open = qlink_open,
	.ndo_stop = qlink_stop,
	.ndo_start_xmit = qlink_xmit,
	.ndo_features_check = qlink_features_check,
	.ndo_get_stats64 = qlink_get_stats64,
	.ndo_get_iflink = qlink_get_iflink,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_set_mac_address = eth_mac_addr,
};

static int qlink_get_link_ksettings(struct net_device *dev,
				    struct ethtool_link_ksettings *settings)
{
	const struct qlink_end *end = netdev_priv(dev);

	settings->base.speed = min_t(u64, div_u64(end->wire.params.rate_bps, 1000000),
				     INT_MAX);
	settings->base.duplex = DUPLEX_FULL;
	settings->base.port = PORT_OTHER;
	settings->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static const struct ethtool_ops qlink_ethtool_ops = {
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = qlink_get_link_ksettings,
	.get_ts_info = ethtool_op_get_ts_info,
};

static void qlink_setup(struct net_device *dev)
{
	ether_setup(dev);
	dev->netdev_ops = &qlink_netdev_ops;
	dev->ethtool_ops = &qlink_ethtool_ops;
	dev->needs_free_netdev = true;
	dev->priv_flags &= ~IFF_TX_SKB_SHARING;	/* skb->cb and ->next are used */
	dev->priv_flags |= IFF_LIVE_ADDR_CHANGE;
	dev->lltx = true;			/* one CPU, and the queue is stopped */
	dev->min_mtu = ETH_MIN_MTU;
	dev->max_mtu = ETH_MAX_MTU;
	/*
	 * Scatter/gather and checksum offload are free on this link (checksums of upper devices
	 * are left to software, for captures there). gso_max_segs is 1, so sockets do not build
	 * GSO packets unless IFLA_GSO_MAX_SEGS is set: then the core segments each as it leaves
	 * the qdisc, and all of its segments belong to the frame in transmission (gso_skb)
	 * until the last one is sent.
	 */
	dev->vlan_features = NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HIGHDMA;
	dev->hw_features |= NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HW_CSUM;
	dev->features |= dev->vlan_features | NETIF_F_HW_CSUM;
	dev->gso_max_segs = 1;
	/* The carrier is always on; linkwatch would not set this. */
	dev->operstate = IF_OPER_UP;
}

/* rtnetlink */

/* NLA_POLICY_MAX stores its bound in a signed 16-bit integer. */
static const struct netlink_range_validation qlink_overhead_range = {
	.max = QLINK_MAX_OVERHEAD_BYTES,
};

static const struct nla_policy qlink_policy[IFLA_QLINK_MAX + 1] = {
	[IFLA_QLINK_PEER] = { .type = NLA_BINARY },	/* ifinfomsg + attributes */
	[IFLA_QLINK_RATE] = NLA_POLICY_MIN(NLA_U64, 1),
	[IFLA_QLINK_DELAY] = { .type = NLA_U64 },
	[IFLA_QLINK_OVERHEAD] = NLA_POLICY_FULL_RANGE(NLA_U32, &qlink_overhead_range),
	[IFLA_QLINK_LOSS] = { .type = NLA_U32 },
	[IFLA_QLINK_PEER_RATE] = NLA_POLICY_MIN(NLA_U64, 1),
	[IFLA_QLINK_PEER_DELAY] = { .type = NLA_U64 },
	[IFLA_QLINK_PEER_OVERHEAD] = NLA_POLICY_FULL_RANGE(NLA_U32, &qlink_overhead_range),
	[IFLA_QLINK_PEER_LOSS] = { .type = NLA_U32 },
	[IFLA_QLINK_SENT] = { .type = NLA_REJECT },
	[IFLA_QLINK_DELIVERED] = { .type = NLA_REJECT },
	[IFLA_QLINK_LOST] = { .type = NLA_REJECT },
	[IFLA_QLINK_JITTER] = { .type = NLA_U64 },
	[IFLA_QLINK_REORDERING] = { .type = NLA_U32 },
	[IFLA_QLINK_PEER_JITTER] = { .type = NLA_U64 },
	[IFLA_QLINK_PEER_REORDERING] = { .type = NLA_U32 },
	[IFLA_QLINK_PART] = { .type = NLA_U32 },
	[IFLA_QLINK_NUMBER] = { .type = NLA_U32 },
	[IFLA_QLINK_BORDER] = { .type = NLA_U32 },
};

static int qlink_validate(struct nlattr *tb[], struct nlattr *data[],
			  struct netlink_ext_ack *extack)
{
	static const int delays[] = { IFLA_QLINK_DELAY, IFLA_QLINK_PEER_DELAY,
				      IFLA_QLINK_JITTER, IFLA_QLINK_PEER_JITTER };
	int i;

	if (tb[IFLA_ADDRESS]) {
		if (nla_len(tb[IFLA_ADDRESS]) != ETH_ALEN)
			return -EINVAL;
		if (!is_valid_ether_addr(nla_data(tb[IFLA_ADDRESS])))
			return -EADDRNOTAVAIL;
	}
	for (i = 0; data && i < ARRAY_SIZE(delays); i++) {
		if (data[delays[i]] && nla_get_u64(data[delays[i]]) > QLINK_MAX_DELAY_NS) {
			NL_SET_ERR_MSG_ATTR(extack, data[delays[i]], "delay above one hour");
			return -ERANGE;
		}
	}
	return 0;
}

/* Attributes of a transmitter are consecutive; @first is its rate. */
static void qlink_parse(struct nlattr *data[], int first, struct qlink_params *params)
{
	struct nlattr **tb = data + first - IFLA_QLINK_RATE;
	int more = first == IFLA_QLINK_RATE ? 0 : IFLA_QLINK_PEER_JITTER - IFLA_QLINK_JITTER;

	if (data[IFLA_QLINK_JITTER + more])
		params->jitter_ns = nla_get_u64(data[IFLA_QLINK_JITTER + more]);
	if (data[IFLA_QLINK_REORDERING + more])
		params->reordering = nla_get_u32(data[IFLA_QLINK_REORDERING + more]);
	if (tb[IFLA_QLINK_RATE])
		params->wire.rate_bps = nla_get_u64(tb[IFLA_QLINK_RATE]);
	if (tb[IFLA_QLINK_DELAY])
		params->delay_ns = nla_get_u64(tb[IFLA_QLINK_DELAY]);
	if (tb[IFLA_QLINK_OVERHEAD])
		params->wire.overhead_bytes = nla_get_u32(tb[IFLA_QLINK_OVERHEAD]);
	if (tb[IFLA_QLINK_LOSS])
		params->loss = nla_get_u32(tb[IFLA_QLINK_LOSS]);
}

static struct qlink_params qlink_get_params(const struct qlink_end *end)
{
	return (struct qlink_params) {
		.wire = end->wire.params,
		.delay_ns = end->delay_ns,
		.loss = end->loss,
		.jitter_ns = end->jitter_ns,
		.reordering = end->reordering,
	};
}

static void qlink_set_params(struct qlink_end *end, const struct qlink_params *params)
{
	local_bh_disable();
	if (end->wire.params.rate_bps != params->wire.rate_bps ||
	    end->wire.params.overhead_bytes != params->wire.overhead_bytes)
		qlink_set_wire(end, params->wire);
	end->delay_ns = params->delay_ns;
	end->loss = params->loss;
	end->jitter_ns = params->jitter_ns;
	end->reordering = params->reordering;
	local_bh_enable();
}

/*
 * Creates the peer device that @nested describes. It holds a reference to its
 * namespace, which the caller releases after registering it. @src_net:
 * namespace of the device unless its attributes name another
 */
static struct net_device *qlink_new_peer(struct net *src_net, struct nlattr *nested,
					 struct netlink_ext_ack *extack)
{
	struct nlattr *tb[IFLA_MAX + 1];
	unsigned char name_type = NET_NAME_ENUM;
	char name[IFNAMSIZ] = QLINK_KIND "%d";
	struct net_device *peer;
	struct net *net;
	int err;

	if (nla_len(nested) < sizeof(struct ifinfomsg)) {
		NL_SET_ERR_MSG_ATTR(extack, nested, "IFLA_QLINK_PEER must begin with an ifinfomsg");
		return ERR_PTR(-EINVAL);
	}
	err = rtnl_nla_parse_ifinfomsg(tb, nested, extack);
	if (!err)
		err = qlink_validate(tb, NULL, extack);
	if (err)
		return ERR_PTR(err);
	if (tb[IFLA_IFNAME]) {
		nla_strscpy(name, tb[IFLA_IFNAME], IFNAMSIZ);
		name_type = NET_NAME_USER;
	}

	net = rtnl_link_get_net(src_net, tb);
	if (IS_ERR(net))
		return ERR_CAST(net);
	peer = rtnl_create_link(net, name, name_type, &qlink_link_ops, tb, extack);
	if (IS_ERR(peer)) {
		put_net(net);
		return peer;
	}
	if (!tb[IFLA_ADDRESS])
		eth_hw_addr_random(peer);
	return peer;
}

/* Makes the peer of @end a stub if the attributes name another part. */
static int qlink_cut(struct qlink_end *end, struct nlattr *data[], struct netlink_ext_ack *extack)
{
	int err;

	if (!data[IFLA_QLINK_PART] || !data[IFLA_QLINK_NUMBER])
		return 0;
	err = qlink_cut_end(end, nla_get_u32(data[IFLA_QLINK_PART]),
			    nla_get_u32(data[IFLA_QLINK_NUMBER]));
	if (err)
		NL_SET_ERR_MSG(extack, "no such part, or the first window has ended");
	return err;
}

static int qlink_create(struct net *src_net, struct net_device *dev,
			struct nlattr *tb[], struct nlattr *data[],
			struct netlink_ext_ack *extack)
{
	struct qlink_end *end = netdev_priv(dev), *peer_end;
	struct qlink_params params = {}, peer_params;
	struct ifinfomsg *ifinfo;
	struct net_device *peer;
	struct net *net;
	int err;

	if (!data || !data[IFLA_QLINK_PEER] || !data[IFLA_QLINK_RATE]) {
		NL_SET_ERR_MSG(extack, "a qlink needs IFLA_QLINK_PEER and IFLA_QLINK_RATE");
		return -EINVAL;
	}
	qlink_parse(data, IFLA_QLINK_RATE, &params);
	peer_params = params;
	qlink_parse(data, IFLA_QLINK_PEER_RATE, &peer_params);

	peer = qlink_new_peer(src_net, data[IFLA_QLINK_PEER], extack);
	if (IS_ERR(peer))
		return PTR_ERR(peer);
	net = dev_net(peer);
	ifinfo = nla_data(data[IFLA_QLINK_PEER]);
	peer->ifindex = ifinfo->ifi_index;
	peer_end = netdev_priv(peer);
	qlink_set_params(peer_end, &peer_params);
	qlink_set_params(end, &params);
	end->dev = dev;
	peer_end->dev = peer;
	end->peer = peer_end;
	peer_end->peer = end;

	err = register_netdevice(peer);
	put_net(net);
	if (err) {
		free_netdev(peer);
		goto unpair;
	}
	err = qlink_cut(end, data, extack);
	if (err)
		goto unregister_peer;
	err = rtnl_configure_link(peer, ifinfo, 0, NULL);
	if (err)
		goto unregister_peer;

	if (!tb[IFLA_ADDRESS])
		eth_hw_addr_random(dev);
	err = register_netdevice(dev);
	if (err)
		goto unregister_peer;
	return 0;

unregister_peer:
	peer_end->peer = NULL;
	unregister_netdevice(peer);
unpair:
	end->peer = NULL;
	return err;
}

#ifdef QLINK_HAVE_NEWLINK_PARAMS
static int qlink_newlink(struct net_device *dev, struct rtnl_newlink_params *params,
			 struct netlink_ext_ack *extack)
{
	return qlink_create(rtnl_newlink_peer_net(params), dev, params->tb, params->data,
			    extack);
}
#else
#define qlink_newlink qlink_create
#endif

static void qlink_dellink(struct net_device *dev, struct list_head *head)
{
	struct qlink_end *end = netdev_priv(dev);
	struct qlink_end *peer = end->peer;

	if (peer) {
		local_bh_disable();
		end->peer = NULL;
		peer->peer = NULL;
		local_bh_enable();
		unregister_netdevice_queue(peer->dev, head);
	}
	unregister_netdevice_queue(dev, head);
}

static int qlink_changelink(struct net_device *dev, struct nlattr *tb[],
			    struct nlattr *data[], struct netlink_ext_ack *extack)
{
	struct qlink_end *end = netdev_priv(dev);
	struct qlink_params params;

	if (!data)
		return 0;
	if (data[IFLA_QLINK_PEER]) {
		NL_SET_ERR_MSG_ATTR(extack, data[IFLA_QLINK_PEER],
				    "the other end is chosen at creation");
		return -EOPNOTSUPP;
	}
	if (data[IFLA_QLINK_BORDER]) {
		int err = qlink_border_open(end, nla_get_u32(data[IFLA_QLINK_BORDER]));

		if (err) {
			NL_SET_ERR_MSG_ATTR(extack, data[IFLA_QLINK_BORDER],
					    "no such device, or one of the two has a receiver already");
			return err;
		}
	}
	params = qlink_get_params(end);
	qlink_parse(data, IFLA_QLINK_RATE, &params);
	qlink_set_params(end, &params);
	if (end->peer) {
		params = qlink_get_params(end->peer);
		qlink_parse(data, IFLA_QLINK_PEER_RATE, &params);
		qlink_set_params(end->peer, &params);
	}
	return 0;
}

static size_t qlink_get_size(const struct net_device *dev)
{
	return 2 * (2 * nla_total_size_64bit(sizeof(u64)) + 2 * nla_total_size(sizeof(u32))) +
	       3 * nla_total_size_64bit(sizeof(u64));
}

static int qlink_fill_transmitter(struct sk_buff *skb, int first, const struct qlink_end *end)
{
	int shift = first - IFLA_QLINK_RATE;

	if (nla_put_u64_64bit(skb, IFLA_QLINK_RATE + shift, end->wire.params.rate_bps,
			      IFLA_QLINK_PAD) ||
	    nla_put_u64_64bit(skb, IFLA_QLINK_DELAY + shift, end->delay_ns, IFLA_QLINK_PAD) ||
	    nla_put_u32(skb, IFLA_QLINK_OVERHEAD + shift, end->wire.params.overhead_bytes) ||
	    nla_put_u32(skb, IFLA_QLINK_LOSS + shift, end->loss))
		return -EMSGSIZE;
	return 0;
}

static int qlink_fill_info(struct sk_buff *skb, const struct net_device *dev)
{
	const struct qlink_end *end = netdev_priv(dev);

	if (qlink_fill_transmitter(skb, IFLA_QLINK_RATE, end) ||
	    (end->peer && qlink_fill_transmitter(skb, IFLA_QLINK_PEER_RATE, end->peer)) ||
	    nla_put_u64_64bit(skb, IFLA_QLINK_SENT, end->stats.sent, IFLA_QLINK_PAD) ||
	    nla_put_u64_64bit(skb, IFLA_QLINK_DELIVERED, end->stats.delivered,
			      IFLA_QLINK_PAD) ||
	    nla_put_u64_64bit(skb, IFLA_QLINK_LOST, end->stats.lost, IFLA_QLINK_PAD))
		return -EMSGSIZE;
	return 0;
}

static struct net *qlink_get_link_net(const struct net_device *dev)
{
	const struct qlink_end *end = netdev_priv(dev);

	return dev_net(end->peer ? end->peer->dev : dev);
}

static struct rtnl_link_ops qlink_link_ops = {
	.kind = QLINK_KIND,
	.priv_size = sizeof(struct qlink_end),
	.setup = qlink_setup,
	.policy = qlink_policy,
	.maxtype = IFLA_QLINK_MAX,
	.validate = qlink_validate,
	.newlink = qlink_newlink,
#ifdef QLINK_HAVE_NEWLINK_PARAMS
	.peer_type = IFLA_QLINK_PEER,
#endif
	.changelink = qlink_changelink,
	.dellink = qlink_dellink,
	.get_size = qlink_get_size,
	.fill_info = qlink_fill_info,
	.get_link_net = qlink_get_link_net,
};

static int __init qlink_module_init(void)
{
	if (time_travel_mode != TT_MODE_INFCPU) {
		pr_err("qlink needs time-travel=inf-cpu\n");
		return -ENODEV;
	}
	qlink_clock_init();
	return rtnl_link_register(&qlink_link_ops);
}

static void __exit qlink_module_exit(void)
{
	rtnl_link_unregister(&qlink_link_ops);
	qlink_clock_exit();
}

module_init(qlink_module_init);
module_exit(qlink_module_exit);

MODULE_DESCRIPTION("Point-to-point link with exact rate and delay in virtual time");
MODULE_LICENSE("GPL");
MODULE_ALIAS_RTNL_LINK(QLINK_KIND);
