/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Cut links: links to another part of the lab (uml/um_parts.h). When the
 * transmission of a frame ends, it is copied to the batch for the other part,
 * with its time of arrival. There it is put on the wire of the stub that
 * represents the other end. Besides its bytes, the state of its checksum and its
 * layout in memory are kept: the layout determines how much receive buffer it
 * takes, and so TCP's window.
 */
#ifndef _QLINK_CUT_H
#define _QLINK_CUT_H

#include <linux/skbuff.h>
#include <linux/time-internal.h>
#include <linux/xarray.h>

#include <qbed/constant_page.h>

#include "qlink_end.h"
#include "qlink_lines.h"

/* A frame in a batch. The lengths of its fragments and its bytes follow. The batch is aligned to 8 bytes. */
struct qlink_cut_frame {
	u64 arrival_ns;			/* CLOCK_MONOTONIC */
	u32 link;			/* number of the link */
	u32 length;
	u32 truesize;
	u32 end_offset;			/* size of the linear buffer */
	u32 linear;			/* bytes in it */
	u16 headroom;
	u16 csum_start;			/* from the first byte */
	u16 csum_offset;
	u8 ip_summed;
	u8 csum_level;
	u32 fragments;
	u32 fragment_bytes[];		/* with QLINK_CUT_CONSTANT: not copied */
};

/* The fragment is in a page of constant payload. */
#define QLINK_CUT_CONSTANT 0x80000000u

/* Larger frames are linear, whatever they were at their sender. */
#define QLINK_CUT_FRAGMENTED_MAX 16384u

/* Stubs of other parts' ends, by link. */
static DEFINE_XARRAY(qlink_stubs);

/* Number of fragments with which @skb is received. */
static u32 qlink_cut_fragments(const struct sk_buff *skb)
{
	if (skb_has_frag_list(skb) || skb->len > QLINK_CUT_FRAGMENTED_MAX)
		return 0;
	return skb_shinfo(skb)->nr_frags;
}

/* Space in a batch for a frame with so many copied bytes. */
static u32 qlink_cut_size(u32 fragments, u32 copied)
{
	return ALIGN(sizeof(struct qlink_cut_frame) + fragments * sizeof(u32) + copied, 8);
}

static u32 qlink_cut_bytes(const struct sk_buff *skb)
{
	u32 fragments = qlink_cut_fragments(skb), copied = skb->len, i;

	for (i = 0; i < fragments; i++) {
		const skb_frag_t *fragment = &skb_shinfo(skb)->frags[i];

		if (qbed_is_constant_page(skb_frag_page(fragment)))
			copied -= skb_frag_size(fragment);
	}
	return qlink_cut_size(fragments, copied);
}

/*
 * Whether the frame in @end's transmitter fits into the window's batch, even if
 * all its bytes are copied. If not, the window ends.
 */
static bool qlink_cut_has_room(const struct qlink_end *end)
{
	return time_travel_reserve(end->part, qlink_cut_size(MAX_SKB_FRAGS, end->serializing->len));
}

/* Writes the length of a fragment, and its content unless it is constant. Returns the number of copied bytes. */
static u32 qlink_cut_copy(u32 *length, const skb_frag_t *fragment, char *bytes)
{
	*length = skb_frag_size(fragment);
	if (qbed_is_constant_page(skb_frag_page(fragment))) {
		*length |= QLINK_CUT_CONSTANT;
		return 0;
	}
	memcpy(bytes, skb_frag_address(fragment), *length);
	return *length;
}

/* Sends @skb, which arrives at @arrival_ns, to the other part. */
static void qlink_cut_send(struct qlink_end *end, struct sk_buff *skb, u64 arrival_ns)
{
	bool partial = skb->ip_summed == CHECKSUM_PARTIAL;
	u32 fragments = qlink_cut_fragments(skb), i;
	struct qlink_cut_frame *frame;
	char *bytes;

	arrival_ns = max(time_travel_common(arrival_ns), time_travel_parts_start());
	frame = time_travel_append(end->part, qlink_cut_bytes(skb), arrival_ns);
	*frame = (struct qlink_cut_frame) {
		.arrival_ns = arrival_ns,
		.link = end->link_number,
		.length = skb->len,
		.truesize = skb->truesize,
		.end_offset = max(skb_end_offset(skb), skb_headroom(skb) + (fragments ? 0 : skb->len)),
		.linear = fragments ? skb_headlen(skb) : skb->len,
		.headroom = skb_headroom(skb),
		.csum_start = partial ? skb_checksum_start_offset(skb) : 0,
		.csum_offset = partial ? skb->csum_offset : 0,
		/* the sum of a complete one is of bytes that its sender has received */
		.ip_summed = skb->ip_summed == CHECKSUM_COMPLETE ? CHECKSUM_NONE : skb->ip_summed,
		.csum_level = skb->csum_level,
		.fragments = fragments,
	};
	bytes = (char *)(frame->fragment_bytes + fragments);
	skb_copy_bits(skb, 0, bytes, frame->linear);
	bytes += frame->linear;
	for (i = 0; i < fragments; i++)
		bytes += qlink_cut_copy(&frame->fragment_bytes[i], &skb_shinfo(skb)->frags[i], bytes);
	consume_skb(skb);
}

/* Memory of received fragments, and the page of those with constant payload. */
static struct page_frag_cache qlink_cut_pages;
static struct page *qlink_cut_constant_page;

static u32 qlink_cut_copied(const struct qlink_cut_frame *frame)
{
	u32 copied = frame->length, i;

	for (i = 0; i < frame->fragments; i++) {
		if (frame->fragment_bytes[i] & QLINK_CUT_CONSTANT)
			copied -= frame->fragment_bytes[i] & ~QLINK_CUT_CONSTANT;
	}
	return copied;
}

/* Adds fragment @i, of @length bytes at @offset of @page. */
static void qlink_cut_add(struct sk_buff *skb, u32 i, struct page *page, size_t offset, u32 length)
{
	get_page(page);
	skb_add_rx_frag(skb, i, page, offset, length, length);
}

/* Adds the fragments of a frame. @bytes: those that are copied. Returns false if there is no memory. */
static bool qlink_cut_add_fragments(struct sk_buff *skb, const struct qlink_cut_frame *frame,
				    const void *bytes, u32 copied)
{
	char *memory = copied ? page_frag_alloc(&qlink_cut_pages, copied, GFP_ATOMIC) : NULL;
	struct page *page = memory ? virt_to_head_page(memory) : NULL;
	u32 i;

	if (copied && !memory)
		return false;
	if (memory)
		memcpy(memory, bytes, copied);
	for (i = 0; i < frame->fragments; i++) {
		u32 length = frame->fragment_bytes[i] & ~QLINK_CUT_CONSTANT;

		if (frame->fragment_bytes[i] & QLINK_CUT_CONSTANT) {
			qlink_cut_add(skb, i, qlink_cut_constant_page, 0, length);
			continue;
		}
		qlink_cut_add(skb, i, page, memory - (char *)page_address(page), length);
		memory += length;
	}
	if (page)
		put_page(page);
	return true;
}

/* Returns NULL if there is no memory. */
static struct sk_buff *qlink_cut_skb(const struct qlink_cut_frame *frame, u32 copied)
{
	const char *bytes = (const char *)(frame->fragment_bytes + frame->fragments);
	struct sk_buff *skb = alloc_skb(frame->end_offset, GFP_ATOMIC);

	if (!skb)
		return NULL;
	skb_reserve(skb, frame->headroom);
	skb_put_data(skb, bytes, frame->linear);
	if (frame->fragments && !qlink_cut_add_fragments(skb, frame, bytes + frame->linear,
							 copied - frame->linear)) {
		kfree_skb(skb);
		return NULL;
	}
	skb->truesize = frame->truesize;
	skb->ip_summed = frame->ip_summed;
	if (frame->ip_summed == CHECKSUM_PARTIAL) {
		skb->csum_start = skb_headroom(skb) + frame->csum_start;
		skb->csum_offset = frame->csum_offset;
	}
	skb->csum_level = frame->csum_level;
	return skb;
}

/* Number of frames for which cache lines are prefetched together. */
#define QLINK_CUT_TOGETHER 16u

struct qlink_cut_arrival {
	const struct qlink_cut_frame *frame;
	struct qlink_end *stub;
	u32 copied;
};

/* Lists the frames from @frames on, and prefetches their stubs. Returns their bytes. */
static u32 qlink_cut_list(const char *frames, u32 used, struct qlink_cut_arrival *arrivals, u32 *count)
{
	u32 at = 0;

	for (*count = 0; *count < QLINK_CUT_TOGETHER && at < used; ++*count) {
		struct qlink_cut_arrival *arrival = &arrivals[*count];

		arrival->frame = (const void *)(frames + at);
		arrival->copied = qlink_cut_copied(arrival->frame);
		arrival->stub = xa_load(&qlink_stubs, arrival->frame->link);
		if (arrival->stub)
			qbed_prefetch(&arrival->stub->flight_head);
		at += qlink_cut_size(arrival->frame->fragments, arrival->copied);
	}
	return at;
}

static void qlink_cut_arrive(const struct qlink_cut_arrival *arrival, u32 part,
			     void (*arrive)(struct qlink_end *stub, struct sk_buff *skb,
					    u64 arrival_ns))
{
	u64 arrival_ns = time_travel_from_common(arrival->frame->arrival_ns);
	u32 link = arrival->frame->link;
	struct sk_buff *skb;

	skb = arrival->stub ? qlink_cut_skb(arrival->frame, arrival->copied) : NULL;
	if (!skb)
		panic("qlink: a frame of part %u for link %u: no %s", part, link,
		      arrival->stub ? "memory" : "such link");
	if (arrival_ns < time_travel_now())
		panic("qlink: a frame of part %u for link %u is late", part, link);
	arrive(arrival->stub, skb, arrival_ns);
}

/* Calls @arrive for each frame that is due, in the order of parts and of sending. */
static void qlink_cut_receive(void (*arrive)(struct qlink_end *stub, struct sk_buff *skb,
					     u64 arrival_ns))
{
	struct qlink_cut_arrival arrivals[QLINK_CUT_TOGETHER];
	unsigned int part, used, at, count, i;

	for (part = 0; part < time_travel_parts(); part++) {
		const char *frames = time_travel_received(part, &used);

		for (at = 0; at < used;) {
			at += qlink_cut_list(frames + at, used - at, arrivals, &count);
			for (i = 0; i < count; i++) {
				if (arrivals[i].stub)
					qlink_prefetch_tail(arrivals[i].stub);
			}
			for (i = 0; i < count; i++)
				qlink_cut_arrive(&arrivals[i], part, arrive);
		}
	}
}

#endif /* _QLINK_CUT_H */
