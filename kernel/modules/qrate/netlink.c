// SPDX-License-Identifier: GPL-2.0-only
/* Generic netlink: include/uapi/qbed/qrate.h. Requests are serialized by genl_lock. */
#include <linux/in.h>
#include <linux/limits.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <net/genetlink.h>
#include <net/ipv6.h>
#include <net/sock.h>

#include "qrate.h"
#include "qrate_controllers.h"

/*
 * NLA_POLICY_MAX stores its bound in a signed 16-bit integer. Not const:
 * policies of Linux 6.1 point to non-const ranges.
 */
static struct netlink_range_validation qrate_port_range = { .min = 1, .max = U16_MAX };
static struct netlink_range_validation qrate_payload_range = {
	.min = 1,
	.max = QRATE_MAX_PAYLOAD,
};
static struct netlink_range_validation qrate_size_range = { .min = 1, .max = 1ull << 62 };
static struct netlink_range_validation qrate_time_range = { .max = S64_MAX };

static const struct nla_policy qrate_listen_policy[] = {
	[QRATE_A_SOURCE_PORT] = NLA_POLICY_FULL_RANGE(NLA_U16, &qrate_port_range),
	[QRATE_A_REFLECT] = { .type = NLA_U32 },
};

static const struct nla_policy qrate_new_policy[] = {
	[QRATE_A_FLOW] = { .type = NLA_U32 },
	[QRATE_A_SOURCE] = { .type = NLA_BINARY, .len = sizeof(struct in6_addr) },
	[QRATE_A_DESTINATION] = { .type = NLA_BINARY, .len = sizeof(struct in6_addr) },
	[QRATE_A_SOURCE_PORT] = NLA_POLICY_FULL_RANGE(NLA_U16, &qrate_port_range),
	[QRATE_A_DESTINATION_PORT] = NLA_POLICY_FULL_RANGE(NLA_U16, &qrate_port_range),
	[QRATE_A_SIZE] = NLA_POLICY_FULL_RANGE(NLA_U64, &qrate_size_range),
	[QRATE_A_STOP_TIME] = NLA_POLICY_FULL_RANGE(NLA_U64, &qrate_time_range),
	[QRATE_A_PAYLOAD] = NLA_POLICY_FULL_RANGE(NLA_U32, &qrate_payload_range),
	[QRATE_A_CONTROLLER] = { .type = NLA_NUL_STRING, .len = 63 },
	[QRATE_A_PARAMETERS] = { .type = NLA_NESTED },
	[QRATE_A_SIGNAL] = NLA_POLICY_MAX(NLA_U8, QSIGNAL_VECTOR),
	[QRATE_A_UNIT] = NLA_POLICY_MAX(NLA_U8, QSIGNAL_NS),
	[QRATE_A_BITS] = NLA_POLICY_RANGE(NLA_U8, 1, 32),
	[QRATE_A_FORWARD] = { .type = NLA_FLAG },
	[QRATE_A_COMPACT] = { .type = NLA_U32 },
};

static const struct nla_policy qrate_get_policy[] = {
	[QRATE_A_FLOW] = { .type = NLA_U32 },
	[QRATE_A_RUNNING] = { .type = NLA_FLAG },
};

static const struct nla_policy qrate_stop_policy[] = {
	[QRATE_A_FLOW] = { .type = NLA_U32 },
};

static int qrate_require(struct genl_info *info, const u8 *attributes, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++) {
		if (GENL_REQ_ATTR_CHECK(info, attributes[i])) {
			NL_SET_ERR_MSG(info->extack, "an attribute is missing");
			return -EINVAL;
		}
	}
	return 0;
}

static int qrate_do_listen(struct sk_buff *skb, struct genl_info *info)
{
	static const u8 needed[] = { QRATE_A_SOURCE_PORT };
	const struct nlattr *reflect = info->attrs[QRATE_A_REFLECT];
	u32 probability = reflect ? nla_get_u32(reflect) : 0;
	int err;

	err = qrate_require(info, needed, ARRAY_SIZE(needed));
	if (err)
		return err;
	return qrate_listen(qrate_net(genl_info_net(info)),
			    htons(nla_get_u16(info->attrs[QRATE_A_SOURCE_PORT])),
			    reflect ? &probability : NULL, info->extack);
}

/* Starting a flow */

static const struct qrate_controller *qrate_controller_find(const struct nlattr *name)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(qrate_controllers); i++) {
		if (!nla_strcmp(name, qrate_controllers[i].controller->name))
			return &qrate_controllers[i];
	}
	return NULL;
}

static bool qrate_is_unicast(sa_family_t family, const union qrate_address *address)
{
	if (family == AF_INET6)
		return ipv6_addr_type(&address->v6) & IPV6_ADDR_UNICAST;
	return !ipv4_is_zeronet(address->v4) && !ipv4_is_multicast(address->v4) &&
	       !ipv4_is_lbcast(address->v4);
}

static int qrate_get_address(const struct nlattr *attribute, sa_family_t family,
			     union qrate_address *address, struct netlink_ext_ack *extack)
{
	u32 length = family == AF_INET ? sizeof(address->v4) : sizeof(address->v6);

	if (nla_len(attribute) != length) {
		NL_SET_ERR_MSG_ATTR(extack, attribute,
				    "expected two addresses of 4 or of 16 bytes");
		return -EINVAL;
	}
	memcpy(address, nla_data(attribute), length);
	if (!qrate_is_unicast(family, address)) {
		NL_SET_ERR_MSG_ATTR(extack, attribute, "expected a unicast address");
		return -EADDRNOTAVAIL;
	}
	return 0;
}

static int qrate_get_path(struct qrate_path *path, const struct genl_info *info)
{
	struct nlattr **attrs = info->attrs;
	int err;

	path->family = nla_len(attrs[QRATE_A_SOURCE]) == sizeof(__be32) ? AF_INET : AF_INET6;
	path->source_port = htons(nla_get_u16(attrs[QRATE_A_SOURCE_PORT]));
	path->destination_port = htons(nla_get_u16(attrs[QRATE_A_DESTINATION_PORT]));
	err = qrate_get_address(attrs[QRATE_A_SOURCE], path->family, &path->source, info->extack);
	if (err)
		return err;
	return qrate_get_address(attrs[QRATE_A_DESTINATION], path->family, &path->destination,
				 info->extack);
}

static u8 qrate_get_u8(const struct genl_info *info, int attribute, u8 fallback)
{
	return info->attrs[attribute] ? nla_get_u8(info->attrs[attribute]) : fallback;
}

static u64 qrate_get_u64(const struct genl_info *info, int attribute, u64 fallback)
{
	return info->attrs[attribute] ? nla_get_u64(info->attrs[attribute]) : fallback;
}

static struct qrate_sender_params qrate_get_params(const struct genl_info *info)
{
	const struct nlattr *payload = info->attrs[QRATE_A_PAYLOAD];
	const struct nlattr *compact = info->attrs[QRATE_A_COMPACT];

	return (struct qrate_sender_params) {
		.size = qrate_get_u64(info, QRATE_A_SIZE, U64_MAX),
		.stop_ns = qrate_get_u64(info, QRATE_A_STOP_TIME, U64_MAX),
		.payload = payload ? nla_get_u32(payload) : 0,
		.kind = qrate_get_u8(info, QRATE_A_SIGNAL, QSIGNAL_NONE),
		.unit = qrate_get_u8(info, QRATE_A_UNIT, QSIGNAL_PACKETS),
		.bits = qrate_get_u8(info, QRATE_A_BITS, 32),
		.forward = nla_get_flag(info->attrs[QRATE_A_FORWARD]),
		.compact = compact,
		.full = compact ? nla_get_u32(compact) : 0,
	};
}

/* Refuses what a compact header cannot carry. */
static int qrate_check_compact(const struct qrate_sender_params *params,
			       struct netlink_ext_ack *extack)
{
	if (!params->compact)
		return 0;
	if (!qsignal_compact_has(params->kind)) {
		NL_SET_ERR_MSG(extack, "a compact header has no signal of this kind");
		return -EINVAL;
	}
	if (params->size != U64_MAX && params->size > QSIGNAL_MAX_OFFSET) {
		NL_SET_ERR_MSG(extack, "the flow is too long for compact headers");
		return -EINVAL;
	}
	return 0;
}

static void qrate_notify_ended(struct net *net, u32 flow)
{
	struct sk_buff *skb;
	void *message;

	if (!genl_has_listeners(&qrate_family, net, 0))
		return;
	skb = genlmsg_new(nla_total_size(sizeof(u32)), GFP_ATOMIC);
	if (!skb)
		return;
	message = genlmsg_put(skb, 0, 0, &qrate_family, 0, QRATE_CMD_FLOW_ENDED);
	if (!message || nla_put_u32(skb, QRATE_A_FLOW, flow)) {
		nlmsg_free(skb);
		return;
	}
	genlmsg_end(skb, message);
	genlmsg_multicast_netns(&qrate_family, net, skb, 0, 0, GFP_ATOMIC);
}

static int qrate_do_new(struct sk_buff *skb, struct genl_info *info)
{
	static const u8 needed[] = {
		QRATE_A_FLOW, QRATE_A_SOURCE, QRATE_A_DESTINATION, QRATE_A_SOURCE_PORT,
		QRATE_A_DESTINATION_PORT, QRATE_A_CONTROLLER,
	};
	struct qrate_net *qnet = qrate_net(genl_info_net(info));
	const struct qrate_controller *controller;
	struct qrate_sender *sender;
	int err;

	err = qrate_require(info, needed, ARRAY_SIZE(needed));
	if (err)
		return err;
	controller = qrate_controller_find(info->attrs[QRATE_A_CONTROLLER]);
	if (!controller) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[QRATE_A_CONTROLLER],
				    "no such controller");
		return -ENOENT;
	}
	sender = qrate_sender_new(qnet, controller->controller, qrate_notify_ended);
	if (!sender)
		return -ENOMEM;
	sender->record.flow = nla_get_u32(info->attrs[QRATE_A_FLOW]);
	sender->params = qrate_get_params(info);
	err = qrate_check_compact(&sender->params, info->extack) ?:
	      qrate_get_path(&sender->path, info) ?:
	      controller->parse(sender->controller_params, info->attrs[QRATE_A_PARAMETERS],
				info->extack) ?:
	      qrate_sender_start(qnet, sender, info->extack);
	if (err)
		qrate_sender_free(sender);
	return err;
}

static int qrate_do_stop(struct sk_buff *skb, struct genl_info *info)
{
	static const u8 needed[] = { QRATE_A_FLOW };
	struct qrate_sender *sender;
	int err;

	err = qrate_require(info, needed, ARRAY_SIZE(needed));
	if (err)
		return err;
	sender = xa_load(&qrate_net(genl_info_net(info))->senders,
			 nla_get_u32(info->attrs[QRATE_A_FLOW]));
	if (!sender) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[QRATE_A_FLOW],
				    "no such sender in this namespace");
		return -ENOENT;
	}
	qrate_sender_stop(sender);
	return 0;
}

/* Replies */

static int qrate_put_record(struct sk_buff *skb, u32 portid, u32 seq, int flags,
			    struct qrate_record *record)
{
	void *message = genlmsg_put(skb, portid, seq, &qrate_family, flags, QRATE_CMD_FLOW_GET);

	if (!message)
		return -EMSGSIZE;
	if (qrate_put_flow(skb, record)) {
		genlmsg_cancel(skb, message);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, message);
	return 0;
}

/* Finds the sender of a flow, or else a receiver. */
static struct qrate_record *qrate_record_find(struct qrate_net *qnet, u32 flow)
{
	struct qrate_sender *sender = xa_load(&qnet->senders, flow);
	struct qrate_record *record;
	unsigned long id;

	if (sender)
		return &sender->record;
	xa_for_each(&qnet->records, id, record) {
		if (record->flow == flow)
			return record;
	}
	return NULL;
}

static int qrate_do_get(struct sk_buff *skb, struct genl_info *info)
{
	static const u8 needed[] = { QRATE_A_FLOW };
	struct qrate_record *record;
	struct sk_buff *reply;
	int err;

	err = qrate_require(info, needed, ARRAY_SIZE(needed));
	if (err)
		return err;
	record = qrate_record_find(qrate_net(genl_info_net(info)),
				 nla_get_u32(info->attrs[QRATE_A_FLOW]));
	if (!record) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[QRATE_A_FLOW], "no such flow");
		return -ENOENT;
	}
	reply = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!reply)
		return -ENOMEM;
	err = qrate_put_record(reply, info->snd_portid, info->snd_seq, 0, record);
	if (err) {
		nlmsg_free(reply);
		return err;
	}
	return genlmsg_reply(reply, info);
}

static struct nlattr **qrate_dump_attributes(struct netlink_callback *cb)
{
#ifdef QRATE_HAVE_GENL_INFO_DUMP
	return genl_info_dump(cb)->attrs;
#else
	return genl_dumpit_info(cb)->attrs;
#endif
}

/* args[0]: id of the next record */
static int qrate_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct qrate_net *qnet = qrate_net(sock_net(skb->sk));
	bool running = qrate_dump_attributes(cb)[QRATE_A_RUNNING];
	xa_mark_t which = running ? QRATE_RUNNING : XA_PRESENT;
	struct qrate_record *record;
	unsigned long id = cb->args[0];

	for (record = xa_find(&qnet->records, &id, ULONG_MAX, which); record;
	     record = xa_find_after(&qnet->records, &id, ULONG_MAX, which)) {
		if (qrate_put_record(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				     NLM_F_MULTI, record))
			break;
		cb->args[0] = id + 1;
	}
	return skb->len;
}

#define QRATE_POLICY(policies) .policy = (policies), .maxattr = ARRAY_SIZE(policies) - 1

static const struct genl_ops qrate_operations[] = {
	{
		.cmd = QRATE_CMD_LISTEN,
		.flags = GENL_ADMIN_PERM,
		.doit = qrate_do_listen,
		QRATE_POLICY(qrate_listen_policy),
	},
	{
		.cmd = QRATE_CMD_FLOW_NEW,
		.flags = GENL_ADMIN_PERM,
		.doit = qrate_do_new,
		QRATE_POLICY(qrate_new_policy),
	},
	{
		.cmd = QRATE_CMD_FLOW_GET,
		.doit = qrate_do_get,
		.dumpit = qrate_dump,
		QRATE_POLICY(qrate_get_policy),
	},
	{
		.cmd = QRATE_CMD_FLOW_STOP,
		.flags = GENL_ADMIN_PERM,
		.doit = qrate_do_stop,
		QRATE_POLICY(qrate_stop_policy),
	},
};

static const struct genl_multicast_group qrate_groups[] = {
	{ .name = QRATE_GROUP_ENDED },
};

struct genl_family qrate_family = {
	.name = QRATE_FAMILY,
	.version = QRATE_FAMILY_VERSION,
	.netnsok = true,
	.module = THIS_MODULE,
	.ops = qrate_operations,
	.n_ops = ARRAY_SIZE(qrate_operations),
	.mcgrps = qrate_groups,
	.n_mcgrps = ARRAY_SIZE(qrate_groups),
	.resv_start_op = QRATE_CMD_UNSPEC + 1,
};
