// SPDX-License-Identifier: GPL-2.0-only
/* Functions that the engine imports: memory, division, random numbers, panic. */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/panic.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "qp4.h"
#include "qp4_divide.h"

/*
 * A control request changes tables with bottom halves disabled, where large
 * allocations fail. A growing table allocates about twice its size, so spare
 * blocks of this size are allocated in advance.
 */
#define QP4_SPARES 4
#define QP4_SPARE_MIN (256u << 10)

struct qp4_spare {
	void *memory;
	size_t size;
};

static unsigned int fail_after;
module_param(fail_after, uint, 0600);
MODULE_PARM_DESC(fail_after, "for tests: fail the engine's Nth memory allocation from now on; 0: none");

static struct qp4_spare qp4_spares[QP4_SPARES];
static size_t qp4_largest;		/* largest allocation so far */

/* Allocates the spare blocks. Called in process context, before bottom halves are disabled. */
void qp4_reserve(void)
{
	size_t size = 2 * qp4_largest;
	u32 i;

	if (size < QP4_SPARE_MIN)
		return;
	for (i = 0; i < QP4_SPARES; i++) {
		struct qp4_spare *spare = &qp4_spares[i];
		struct qp4_spare larger = { .size = size };
		bool small = !spare->memory || spare->size < size;

		if (!small)
			continue;
		larger.memory = kvmalloc(size, GFP_KERNEL | __GFP_NOWARN);
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
	/* Power-of-two slabs are aligned to their size, larger ones to pages. */
	if (align > ARCH_KMALLOC_MINALIGN && size < PAGE_SIZE)
		size = roundup_pow_of_two(max(size, align));
	qp4_largest = max(qp4_largest, size);
	if (!in_interrupt()) {
		/*
		 * Refuse a program that needs most of the guest's memory, instead of invoking
		 * the OOM killer.
		 */
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

/*
 * Memory for machine code. A User-Mode Linux kernel maps all its memory executable. Other kernels
 * export no executable memory to modules: there the engine interprets programs.
 */
void *qp4_allocate_code(size_t size)
{
	return IS_ENABLED(CONFIG_UML) ? vmalloc(size) : NULL;
}

void qp4_free_code(void *memory)
{
	vfree(memory);
}

void qp4_memory_exit(void)
{
	u32 i;

	for (i = 0; i < QP4_SPARES; i++)
		kvfree(qp4_spares[i].memory);
}

/* A bug in the engine: panic, since later measurements would be invalid. */
void qp4_panicked(const char *message, size_t length)
{
	panic("P4: %.*s", (int)min_t(size_t, length, 900), message);
}

void _Unwind_Resume(void)
{
	panic("P4: unwinding is not supported");
}

u32 qp4_random_u32(void)
{
	return get_random_u32();
}

__int128_t __divti3(__int128_t value, __int128_t divisor)
{
	__int128_t remainder;

	return qp4_divide_signed(value, divisor, &remainder);
}

__int128_t __modti3(__int128_t value, __int128_t divisor)
{
	__int128_t remainder;

	qp4_divide_signed(value, divisor, &remainder);
	return remainder;
}

__uint128_t __udivti3(__uint128_t value, __uint128_t divisor)
{
	__uint128_t remainder;

	return qp4_divide(value, divisor, &remainder);
}

__uint128_t __umodti3(__uint128_t value, __uint128_t divisor)
{
	__uint128_t remainder;

	qp4_divide(value, divisor, &remainder);
	return remainder;
}
