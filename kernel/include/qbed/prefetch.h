/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Prefetching of a cache line into the second-level cache. AMD's processors drop
 * prefetches into the first level when many are under way (bench/README.md,
 * prefetch_losses).
 *
 * It is no __builtin_prefetch(), because GCC removes calls of functions that do
 * nothing else.
 */
#ifndef _QBED_PREFETCH_H
#define _QBED_PREFETCH_H

#include <linux/cache.h>
#include <linux/compiler.h>
#include <linux/types.h>

static __always_inline void qbed_prefetch(const void *address)
{
#if defined(CONFIG_X86) || defined(CONFIG_UML)
	asm volatile("prefetcht1 %0" : : "m" (*(const char *)address));
#else
	__builtin_prefetch(address, 0, 2);
#endif
}

#endif /* _QBED_PREFETCH_H */
