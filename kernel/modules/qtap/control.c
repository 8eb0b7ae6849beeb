// SPDX-License-Identifier: GPL-2.0-only
/* Generic netlink requests, and the start and end of the module. */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <net/genetlink.h>
#include <net/net_namespace.h>

#include "qtap.h"

#define QTAP_DEFAULT_BIN_BYTES 1514

static const struct nla_policy qtap_policy[QTAP_ATTR_MAX + 1] = {
	[QTAP_ATTR_IFINDEX] = NLA_POLICY_MIN(NLA_U32, 1),
	[QTAP_ATTR_ID] = { .type = NLA_U32 },
	[QTAP_ATTR_FLAGS] = NLA_POLICY_MASK(NLA_U32, QTAP_FLAG_EVENTS | QTAP_FLAG_SOJOURN),
	[QTAP_ATTR_INTERVAL] = { .type = NLA_U64 },
	[QTAP_ATTR_START] = { .type = NLA_U64 },
	[QTAP_ATTR_BIN_BYTES] = NLA_POLICY_MIN(NLA_U32, 1),
	[QTAP_ATTR_END] = { .type = NLA_U64 },
	[QTAP_ATTR_BOUNDS] = { .type = NLA_BINARY, .len = QTAP_MAX_BOUNDS * sizeof(u64) },
};

static void qtap_clock_set(void)
{
#if IS_ENABLED(CONFIG_UML_TIME_TRAVEL_SUPPORT)
	/* with bottom halves disabled, reading the clock does not advance it */
	local_bh_disable();
	qtap_clock_offset_ns = ktime_get_ns() - time_travel_now();
	local_bh_enable();
#endif
}

static u64 qtap_get_u64(const struct genl_info *info, int attribute, u64 fallback)
{
	return info->attrs[attribute] ? nla_get_u64(info->attrs[attribute]) : fallback;
}

static u32 qtap_get_u32(const struct genl_info *info, int attribute, u32 fallback)
{
	return info->attrs[attribute] ? nla_get_u32(info->attrs[attribute]) : fallback;
}

/* Parses the bounds. Those in the past are skipped. */
static int qtap_init_bounds(struct qtap_occupancy_params *params, const struct genl_info *info)
{
	const struct nlattr *attr = info->attrs[QTAP_ATTR_BOUNDS];
	u32 i, bounds = attr ? nla_len(attr) / sizeof(u64) : 0;
	u64 *bounds_ns;

	if (!bounds)
		return 0;
	bounds_ns = nla_memdup(attr, GFP_KERNEL);
	if (!bounds_ns)
		return -ENOMEM;
	for (i = 1; i < bounds; i++) {
		if (bounds_ns[i] <= bounds_ns[i - 1]) {
			kfree(bounds_ns);
			NL_SET_ERR_MSG_ATTR(info->extack, attr, "the bounds are not ascending");
			return -EINVAL;
		}
	}
	for (i = 0; i < bounds && bounds_ns[i] < params->begin_ns; i++)
		;
	memmove(bounds_ns, bounds_ns + i, (bounds - i) * sizeof(u64));
	params->bounds = bounds - i;
	params->bounds_ns = bounds_ns;
	return 0;
}

static int qtap_init(struct qtap *tap, const struct genl_info *info)
{
	u64 now_ns = qtap_now();
	u64 end_ns = qtap_get_u64(info, QTAP_ATTR_END, 0);
	struct qtap_occupancy_params params = {
		.end_ns = end_ns ? end_ns : U64_MAX,
		.interval_ns = qtap_get_u64(info, QTAP_ATTR_INTERVAL, 0),
		.bin_bytes = qtap_get_u32(info, QTAP_ATTR_BIN_BYTES, QTAP_DEFAULT_BIN_BYTES),
	};
	int err;

	tap->params = (struct qtap_params) {
		.id = nla_get_u32(info->attrs[QTAP_ATTR_ID]),
		.flags = qtap_get_u32(info, QTAP_ATTR_FLAGS, 0),
		.start_ns = qtap_get_u64(info, QTAP_ATTR_START, now_ns),
	};
	/* A start in the past shifts the origin of time; recording begins now. */
	params.begin_ns = max(tap->params.start_ns, now_ns);
	params.grid_ns = tap->params.start_ns;
	err = qtap_init_bounds(&params, info);
	if (err)
		return err;
	qtap_occupancy_init(&tap->occupancy, params, 0, 0);
	spin_lock_init(&tap->lock);
	tap->owner = -1;
	qtap_observe(&tap->observer);
	INIT_LIST_HEAD(&tap->packets.queued);
	INIT_LIST_HEAD(&tap->packets.freed);
	if (tap->params.flags & QTAP_FLAG_SOJOURN) {
		tap->sojourn = kzalloc(sizeof(*tap->sojourn), GFP_KERNEL);
		if (!tap->sojourn)
			return -ENOMEM;
		tap->sojourn->sampled = params.interval_ns;
	}
	return 0;
}

static void qtap_sojourn_free(struct qtap_sojourn *sojourn)
{
	u32 i;

	for (i = 0; sojourn && i < sojourn->classes; i++) {
		kfree(sojourn->class[i].histogram.packets);
		kfree(sojourn->class[i].open_histogram.packets);
	}
	kfree(sojourn);
}

static void qtap_free(struct qtap *tap)
{
	qtap_sojourn_free(tap->sojourn);
	kfree(tap->occupancy.params.bounds_ns);
	kfree(tap->occupancy.histogram);
	kfree(tap);
}

static int qtap_attach(struct sk_buff *skb, struct genl_info *info)
{
	struct net_device *dev;
	struct qtap *tap;
	int err;

	if (GENL_REQ_ATTR_CHECK(info, QTAP_ATTR_IFINDEX) ||
	    GENL_REQ_ATTR_CHECK(info, QTAP_ATTR_ID))
		return -EINVAL;
	tap = kzalloc(sizeof(*tap), GFP_KERNEL);
	if (!tap)
		return -ENOMEM;

	rtnl_lock();
	qtap_clock_set();
	err = qtap_init(tap, info);
	if (err)
		goto fail;
	dev = __dev_get_by_index(genl_info_net(info),
				 nla_get_u32(info->attrs[QTAP_ATTR_IFINDEX]));
	if (!dev) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[QTAP_ATTR_IFINDEX],
				    "no such device");
		err = -ENODEV;
		goto fail;
	}
	tap->dev = dev;
	err = qtap_hook(tap);
	if (err == -EOPNOTSUPP)
		NL_SET_ERR_MSG(info->extack, "the device has no single root queue");
	else if (err == -EBUSY)
		NL_SET_ERR_MSG(info->extack, "the root qdisc is tapped already");
	if (err && err != -ENODEV)
		goto fail;
	netdev_hold(dev, &tap->dev_tracker, GFP_KERNEL);
	list_add_tail(&tap->list, &qtap_list);
	rtnl_unlock();
	return 0;

fail:
	rtnl_unlock();
	qtap_free(tap);
	return err;
}

static int qtap_flush(struct sk_buff *skb, struct genl_info *info)
{
	struct qtap *tap;

	rtnl_lock();
	list_for_each_entry(tap, &qtap_list, list) {
		spin_lock_bh(&tap->lock);
		qtap_close_interval(tap);
		qtap_summary_emit(tap, QTAP_RECORD_SUMMARY, &tap->occupancy.total);
		qtap_histogram_emit(tap, QTAP_RECORD_HISTOGRAM);
		qtap_sojourn_emit(tap, QTAP_RECORD_SOJOURN);
		spin_unlock_bh(&tap->lock);
	}
	rtnl_unlock();
	qtap_stream_flush();
	return 0;
}

/* Emits completed intervals for readers that follow the stream. Open intervals stay open. */
static int qtap_push(struct sk_buff *skb, struct genl_info *info)
{
	struct qtap *tap;

	rtnl_lock();
	list_for_each_entry(tap, &qtap_list, list) {
		spin_lock_bh(&tap->lock);
		qtap_advance(tap);
		spin_unlock_bh(&tap->lock);
	}
	rtnl_unlock();
	qtap_stream_flush();
	return 0;
}

static void qtap_detach_all(void)
{
	struct qtap *tap, *next;
	LIST_HEAD(detached);

	rtnl_lock();
	list_for_each_entry(tap, &qtap_list, list) {
		qtap_unhook(tap);
		if (tap->dev)
			netdev_put(tap->dev, &tap->dev_tracker);
	}
	list_splice_init(&qtap_list, &detached);
	rtnl_unlock();

	synchronize_net();	/* wait for concurrent calls of the hooks */
	list_for_each_entry_safe(tap, next, &detached, list)
		qtap_free(tap);
}

static int qtap_detach(struct sk_buff *skb, struct genl_info *info)
{
	qtap_detach_all();
	return 0;
}

static const struct genl_ops qtap_operations[] = {
	{ .cmd = QTAP_CMD_ATTACH, .flags = GENL_ADMIN_PERM, .doit = qtap_attach },
	{ .cmd = QTAP_CMD_FLUSH, .flags = GENL_ADMIN_PERM, .doit = qtap_flush },
	{ .cmd = QTAP_CMD_DETACH, .flags = GENL_ADMIN_PERM, .doit = qtap_detach },
	{ .cmd = QTAP_CMD_PUSH, .flags = GENL_ADMIN_PERM, .doit = qtap_push },
};

static struct genl_family qtap_family = {
	.name = QTAP_FAMILY,
	.version = QTAP_VERSION,
	.maxattr = QTAP_ATTR_MAX,
	.policy = qtap_policy,
	.netnsok = true,
	.module = THIS_MODULE,
	.ops = qtap_operations,
	.n_ops = ARRAY_SIZE(qtap_operations),
	.resv_start_op = QTAP_CMD_MAX + 1,
};

static int __init qtap_module_init(void)
{
	int err;

	err = qtap_packet_cache_init();
	if (err)
		goto packets;
	err = qtap_stream_init();
	if (err)
		goto packets;
	err = qtap_hooks_init();
	if (err)
		goto stream;
	err = genl_register_family(&qtap_family);
	if (err)
		goto hooks;
	return 0;

hooks:
	qtap_hooks_exit();
stream:
	qtap_stream_exit();
packets:
	qtap_packet_cache_exit();
	return err;
}

static void __exit qtap_module_exit(void)
{
	genl_unregister_family(&qtap_family);
	qtap_detach_all();
	qtap_hooks_exit();
	qtap_stream_exit();
	qtap_packet_cache_exit();
}

module_init(qtap_module_init);
module_exit(qtap_module_exit);

MODULE_DESCRIPTION("Exact occupancy of qdiscs, in virtual or wall-clock time");
MODULE_LICENSE("GPL");
