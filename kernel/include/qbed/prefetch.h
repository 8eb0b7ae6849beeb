/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Prefetching into the second-level cache. AMD's processors drop prefetches into
 * the first level when many are under way (bench/README.md, prefetch_losses).
 *
 * It is no __builtin_prefetch(), because GCC removes calls of functions that do
 * nothing else.
 */
#ifndef _QBED_PREFETCH_H
#define _QBED_PREFETCH_H

#include <qbed/types.h>

#define QBED_LINE 64ul		/* bytes of a cache line */

static inline void qbed_prefetch(const void *address)
{
#ifdef __x86_64__
	asm volatile("prefetcht1 %0" : : "m" (*(const char *)address));
#else
	__builtin_prefetch(address, 0, 2);
#endif
}

/* Prefetches all lines of @length bytes from @begin on. */
static inline void qbed_prefetch_range(const void *begin, size_t length)
{
	const char *end = (const char *)begin + length;
	const char *line = (const char *)begin - (unsigned long)begin % QBED_LINE;

	for (; line < end; line += QBED_LINE)
		qbed_prefetch(line);
}

#endif /* _QBED_PREFETCH_H */
