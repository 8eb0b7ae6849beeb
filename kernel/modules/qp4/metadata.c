// SPDX-License-Identifier: GPL-2.0-only
/*
 * Headers and metadata of a packet while it is queued. The metadata is the
 * packet's dst (skb_dst), so it is released when the packet is dropped and
 * shared by a queue that duplicates packets, and no qdisc accesses it.
 */
#include <linux/if_ether.h>
#include <linux/slab.h>

#include "qp4.h"

static struct kmem_cache *qp4_metadata_cache;

static struct qp4_context *qp4_context_get(struct qp4_pipeline *pipeline)
{
	return pipeline->free_context_count ? pipeline->free_context[--pipeline->free_context_count] :
				    qp4_context_new(pipeline->engine);
}

static void qp4_context_put(struct qp4_pipeline *pipeline, struct qp4_context *context)
{
	if (pipeline->free_context_count < QP4_MAX_FREE)
		pipeline->free_context[pipeline->free_context_count++] = context;
	else
		qp4_context_free(context);
}

/*
 * The packet was dropped from a queue: called after a grace period. Packets
 * that a queue refuses are more under overload, when a grace period is long:
 * qp4_enqueue() frees their metadata.
 */
static void qp4_metadata_destroy(struct dst_entry *dst)
{
	struct qp4_metadata *meta = container_of(dst, struct qp4_metadata, dst);

	kfree(meta->tail);
	qp4_context_put(meta->pipeline, meta->context);
	qp4_pipeline_put(meta->pipeline);
}

static unsigned int qp4_metadata_mtu(const struct dst_entry *dst)
{
	return ETH_MAX_MTU;
}

static struct dst_ops qp4_metadata_ops = {
	.family = AF_UNSPEC,
	.destroy = qp4_metadata_destroy,
	.mtu = qp4_metadata_mtu,
};

static struct qp4_metadata *qp4_metadata_make(struct qp4_pipeline *pipeline)
{
	struct qp4_metadata *meta = dst_alloc(&qp4_metadata_ops, NULL, DST_OBSOLETE_NONE, DST_NOCOUNT);

	if (meta) {
		meta->pipeline = pipeline;
		meta->context = qp4_context_get(pipeline);
		meta->tail = NULL;
		meta->held = NULL;
	}
	return meta;
}

/* Returns NULL if there is no memory. */
struct qp4_metadata *qp4_metadata_new(struct qp4_pipeline *pipeline, u16 ingress_port)
{
	struct qp4_metadata *meta = pipeline->free_metadata_count ? pipeline->free_metadata[--pipeline->free_metadata_count] :
						  qp4_metadata_make(pipeline);

	if (unlikely(!meta))
		return NULL;
	refcount_inc(&pipeline->references);
	meta->truncate_bytes = U32_MAX;
	meta->ingress_port = ingress_port;
	return meta;
}

/* Frees metadata without other references; the next packet reuses it. */
void qp4_metadata_free(struct qp4_metadata *meta)
{
	struct qp4_pipeline *pipeline = meta->pipeline;

	if (unlikely(meta->tail)) {
		kfree(meta->tail);
		meta->tail = NULL;
	}
	if (likely(pipeline->free_metadata_count < QP4_MAX_FREE)) {
		pipeline->free_metadata[pipeline->free_metadata_count++] = meta;
	} else {
		qp4_context_put(pipeline, meta->context);
		kmem_cache_free(qp4_metadata_cache, meta);
	}
	qp4_pipeline_put(pipeline);
}

/* Frees the cached metadata and contexts. */
void qp4_metadata_free_cached(struct qp4_pipeline *pipeline)
{
	struct qp4_metadata *meta;

	while (pipeline->free_metadata_count) {
		meta = pipeline->free_metadata[--pipeline->free_metadata_count];
		qp4_context_free(meta->context);
		kmem_cache_free(qp4_metadata_cache, meta);
	}
	while (pipeline->free_context_count)
		qp4_context_free(pipeline->free_context[--pipeline->free_context_count]);
}

/*
 * Allocates metadata for a copy of the packet, including the truncated bytes.
 * Returns NULL if there is no memory.
 */
static struct qp4_metadata *qp4_metadata_like(const struct qp4_metadata *from)
{
	struct qp4_metadata *meta = qp4_metadata_new(from->pipeline, from->ingress_port);

	if (!meta || likely(!from->tail))
		return meta;
	meta->tail = kmemdup(from->tail, from->tail_bytes, GFP_ATOMIC);
	if (meta->tail) {
		meta->tail_bytes = from->tail_bytes;
		return meta;
	}
	qp4_metadata_free(meta);
	return NULL;
}

/* Copies @from for a copy of its packet. */
struct qp4_metadata *qp4_metadata_copy(const struct qp4_metadata *from, u8 instance, u16 rid)
{
	struct qp4_metadata *meta = qp4_metadata_like(from);

	if (meta)
		qp4_context_copy(from->pipeline->engine, from->context, meta->context, instance,
				 rid);
	return meta;
}

/*
 * Detaches the metadata of a packet for exclusive use by its egress. Returns
 * NULL if the packet has none. A qdisc that duplicates packets, and packet
 * captures, share the metadata: then it is copied.
 */
struct qp4_metadata *qp4_metadata_take(struct sk_buff *skb)
{
	struct dst_entry *dst = skb_dst(skb);
	struct qp4_metadata *shared, *meta;
	bool *held;

	if (!dst || dst->ops != &qp4_metadata_ops)
		return NULL;
	shared = container_of(dst, struct qp4_metadata, dst);
	held = shared->held;
	if (likely(rcuref_read(&dst->__rcuref) == 1 + !!held)) {
		if (held) {
			*held = false;
			shared->held = NULL;
			WARN_ON_ONCE(rcuref_put(&dst->__rcuref));
		}
		skb->_skb_refdst = 0;
		return shared;
	}
	meta = qp4_metadata_like(shared);
	if (meta) {
		qp4_context_duplicate(shared->context, meta->context);
		meta->enqueued_us = shared->enqueued_us;
		meta->enqueued_depth = shared->enqueued_depth;
		meta->truncate_bytes = shared->truncate_bytes;
	}
	skb_dst_drop(skb);
	return meta;
}

int qp4_metadata_init(void)
{
	qp4_metadata_cache = KMEM_CACHE(qp4_metadata, SLAB_HWCACHE_ALIGN);
	qp4_metadata_ops.kmem_cachep = qp4_metadata_cache;
	return qp4_metadata_cache ? 0 : -ENOMEM;
}

void qp4_metadata_exit(void)
{
	rcu_barrier();		/* wait for qp4_metadata_destroy() */
	kmem_cache_destroy(qp4_metadata_cache);
}
