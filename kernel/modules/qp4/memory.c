// SPDX-License-Identifier: GPL-2.0-only
/* What the engine needs of a kernel: memory, division, chance, an end. */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/panic.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "qp4.h"
#include "qp4_divide.h"

/*
 * A request changes tables with bottom halves off, where no large memory can be
 * had. A table that grows asks for about twice what it has: so much is put by
 * beforehand.
 */
#define QP4_SPARES 4
#define QP4_SPARE_FROM (256u << 10)

struct qp4_spare {
	void *memory;
	size_t size;
};

static unsigned int fail_after;
module_param(fail_after, uint, 0600);
MODULE_PARM_DESC(fail_after, "for tests: the engine gets no memory when it asks for this time from now on; 0: it does");

static struct qp4_spare qp4_spares[QP4_SPARES];
static size_t qp4_largest;		/* that was ever asked for */

/* In process context: so that what follows with bottom halves off has its memory. */
void qp4_reserve(void)
{
	size_t wanted = 2 * qp4_largest;
	u32 i;

	if (wanted < QP4_SPARE_FROM)
		return;
	for (i = 0; i < QP4_SPARES; i++) {
		struct qp4_spare *spare = &qp4_spares[i];
		struct qp4_spare larger = { .size = wanted };
		bool small = !spare->memory || spare->size < wanted;

		if (!small)
			continue;
		larger.memory = kvmalloc(wanted, GFP_KERNEL | __GFP_NOWARN);
		if (!larger.memory)
			return;
		local_bh_disable();
		swap(*spare, larger);
		local_bh_enable();
		kvfree(larger.memory);
	}
}

static void *qp4_take_spare(size_t size)
{
	u32 i;

	for (i = 0; i < QP4_SPARES; i++) {
		struct qp4_spare spare = qp4_spares[i];

		if (spare.memory && spare.size >= size) {
			qp4_spares[i].memory = NULL;
			return spare.memory;
		}
	}
	return NULL;
}

void *qp4_allocate(size_t size, size_t align)
{
	void *memory;

	if (unlikely(fail_after) && !--fail_after)
		return NULL;
	/* Slabs of a power of two are aligned to it, and what is larger to pages. */
	if (align > ARCH_KMALLOC_MINALIGN && size < PAGE_SIZE)
		size = roundup_pow_of_two(max(size, align));
	qp4_largest = max(qp4_largest, size);
	if (!in_interrupt()) {
		/* A program that wants most of the guest's memory is refused, before the guest kills others for it. */
		if (size >> PAGE_SHIFT > si_mem_available() / 2)
			return NULL;
		return kvmalloc(size, GFP_KERNEL | __GFP_NOWARN);
	}
	memory = size <= KMALLOC_MAX_SIZE ? kmalloc(size, GFP_ATOMIC | __GFP_NOWARN) : NULL;
	return memory ?: qp4_take_spare(size);
}

void qp4_deallocate(void *memory)
{
	kvfree(memory);
}

void qp4_memory_exit(void)
{
	u32 i;

	for (i = 0; i < QP4_SPARES; i++)
		kvfree(qp4_spares[i].memory);
}

/* A fault of the engine's: what the lab would measure from here on would be worth nothing. */
void qp4_panicked(const char *message, size_t length)
{
	panic("P4: %.*s", (int)min_t(size_t, length, 900), message);
}

void _Unwind_Resume(void)
{
	panic("P4: a panic that unwinds");
}

u32 qp4_random_u32(void)
{
	return get_random_u32();
}

__int128_t __divti3(__int128_t value, __int128_t divisor)
{
	__int128_t rest;

	return qp4_divide_signed(value, divisor, &rest);
}

__int128_t __modti3(__int128_t value, __int128_t divisor)
{
	__int128_t rest;

	qp4_divide_signed(value, divisor, &rest);
	return rest;
}

__uint128_t __udivti3(__uint128_t value, __uint128_t divisor)
{
	__uint128_t rest;

	return qp4_divide(value, divisor, &rest);
}

__uint128_t __umodti3(__uint128_t value, __uint128_t divisor)
{
	__uint128_t rest;

	qp4_divide(value, divisor, &rest);
	return rest;
}
