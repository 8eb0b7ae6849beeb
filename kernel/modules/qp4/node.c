// SPDX-License-Identifier: GPL-2.0-only
/*
 * A packet's headers and metadata on their way through a queue: a node, which
 * is the packet's route (skb_dst) there. So whoever drops the packet lets the
 * node go, a queue that duplicates packets shares it, and nothing in a queue
 * looks at it.
 */
#include <linux/if_ether.h>
#include <linux/slab.h>

#include "qp4.h"

static struct kmem_cache *qp4_nodes;

static struct qp4_context *qp4_context_get(struct qp4_pipeline *pipeline)
{
	return pipeline->contexts ? pipeline->context[--pipeline->contexts] :
				    qp4_context_new(pipeline->engine);
}

static void qp4_context_put(struct qp4_pipeline *pipeline, struct qp4_context *context)
{
	if (pipeline->contexts < QP4_POOL)
		pipeline->context[pipeline->contexts++] = context;
	else
		qp4_context_free(context);
}

/* Whoever dropped the packet was its node's last: a grace period later. */
static void qp4_node_destroy(struct dst_entry *dst)
{
	struct qp4_node *node = container_of(dst, struct qp4_node, dst);

	kfree(node->behind);
	qp4_context_put(node->pipeline, node->context);
	qp4_pipeline_put(node->pipeline);
}

static unsigned int qp4_node_mtu(const struct dst_entry *dst)
{
	return ETH_MAX_MTU;
}

static struct dst_ops qp4_node_ops = {
	.family = AF_UNSPEC,
	.destroy = qp4_node_destroy,
	.mtu = qp4_node_mtu,
};

static struct qp4_node *qp4_node_make(struct qp4_pipeline *pipeline)
{
	struct qp4_node *node = dst_alloc(&qp4_node_ops, NULL, DST_OBSOLETE_NONE, DST_NOCOUNT);

	if (node) {
		node->pipeline = pipeline;
		node->context = qp4_context_get(pipeline);
		node->behind = NULL;
	}
	return node;
}

/* NULL: no memory */
struct qp4_node *qp4_node_new(struct qp4_pipeline *pipeline, u16 ingress_port)
{
	struct qp4_node *node = pipeline->nodes ? pipeline->node[--pipeline->nodes] :
						  qp4_node_make(pipeline);

	if (unlikely(!node))
		return NULL;
	refcount_inc(&pipeline->references);
	node->truncate_bytes = U32_MAX;
	node->ingress_port = ingress_port;
	return node;
}

/* Of a node that nobody else has seen, or that all others let go: it is the next packet's. */
void qp4_node_free(struct qp4_node *node)
{
	struct qp4_pipeline *pipeline = node->pipeline;

	kfree(node->behind);
	node->behind = NULL;
	if (likely(pipeline->nodes < QP4_POOL)) {
		pipeline->node[pipeline->nodes++] = node;
	} else {
		qp4_context_put(pipeline, node->context);
		kmem_cache_free(qp4_nodes, node);
	}
	qp4_pipeline_put(pipeline);
}

/* Those that wait for a packet. */
void qp4_nodes_free(struct qp4_pipeline *pipeline)
{
	struct qp4_node *node;

	while (pipeline->nodes) {
		node = pipeline->node[--pipeline->nodes];
		qp4_context_free(node->context);
		kmem_cache_free(qp4_nodes, node);
	}
	while (pipeline->contexts)
		qp4_context_free(pipeline->context[--pipeline->contexts]);
}

/* For a copy of the packet, with what was cut off it. NULL: no memory */
static struct qp4_node *qp4_node_like(const struct qp4_node *from)
{
	struct qp4_node *node = qp4_node_new(from->pipeline, from->ingress_port);

	if (!node || likely(!from->behind))
		return node;
	node->behind = kmemdup(from->behind, from->behind_bytes, GFP_ATOMIC);
	if (node->behind) {
		node->behind_bytes = from->behind_bytes;
		return node;
	}
	qp4_node_free(node);
	return NULL;
}

/* As @from, for a copy of its packet. */
struct qp4_node *qp4_node_copy(const struct qp4_node *from, u8 instance, u16 rid)
{
	struct qp4_node *node = qp4_node_like(from);

	if (node)
		qp4_context_copy(from->pipeline->engine, from->context, node->context, instance,
				 rid);
	return node;
}

/*
 * The node that came with a packet, for its egress alone; NULL: none did.
 * A qdisc that duplicates packets, and whoever captures, has the same node.
 */
struct qp4_node *qp4_node_take(struct sk_buff *skb)
{
	struct dst_entry *dst = skb_dst(skb);
	struct qp4_node *shared, *node;

	if (!dst || dst->ops != &qp4_node_ops)
		return NULL;
	shared = container_of(dst, struct qp4_node, dst);
	if (likely(rcuref_read(&dst->__rcuref) == 1)) {
		skb->_skb_refdst = 0;
		return shared;
	}
	node = qp4_node_like(shared);
	if (node) {
		qp4_context_duplicate(shared->context, node->context);
		node->enqueued_us = shared->enqueued_us;
		node->enqueued_depth = shared->enqueued_depth;
		node->truncate_bytes = shared->truncate_bytes;
	}
	skb_dst_drop(skb);
	return node;
}

int qp4_node_init(void)
{
	qp4_nodes = KMEM_CACHE(qp4_node, SLAB_HWCACHE_ALIGN);
	qp4_node_ops.kmem_cachep = qp4_nodes;
	return qp4_nodes ? 0 : -ENOMEM;
}

void qp4_node_exit(void)
{
	rcu_barrier();		/* nodes of packets that were dropped */
	kmem_cache_destroy(qp4_nodes);
}
