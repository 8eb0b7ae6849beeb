/* SPDX-License-Identifier: GPL-2.0-only */
/* A page of constant payload (modules/qbulk), which a link to another part of the lab does not have to copy. */
#ifndef _QBED_CONSTANT_PAGE_H
#define _QBED_CONSTANT_PAGE_H

#include <linux/mm.h>

#include <uapi/qbed/qbulk.h>

#define QBED_CONSTANT_PAGE 0x7162756c6b706167ul

/* Allocates such a page; NULL if there is no memory. */
static inline struct page *qbed_constant_page_alloc(gfp_t flags)
{
	struct page *page = alloc_page(flags);

	if (!page)
		return NULL;
	memset(page_address(page), QBULK_BYTE, PAGE_SIZE);
	set_page_private(page, QBED_CONSTANT_PAGE);
	return page;
}

static inline bool qbed_is_constant_page(const struct page *page)
{
	return page_private(page) == QBED_CONSTANT_PAGE;
}

#endif /* _QBED_CONSTANT_PAGE_H */
