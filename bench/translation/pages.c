// SPDX-License-Identifier: Apache-2.0
/*
 * Reads random lines, each at an address that follows from the line before: one
 * of each 4 KB of 64 MB, in small and in large pages, and as many lines of 1 MB
 * in a row. All fit into a cache of 2 MB, so the difference is address
 * translation. Prints nanoseconds an access, as JSON.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#define LINE 64ul
#define SMALL_PAGE 4096ul
#define LARGE_PAGE (2ul << 20)
#define LINES 16384ul
#define BYTES (LINES * SMALL_PAGE)
#define ACCESSES 10000000l

#ifndef MADV_COLLAPSE	/* glibc before 2.37 */
#define MADV_COLLAPSE 25
#endif

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

/* In a row, or each in another page, so that at most 8 lines share one of 2,048 cache sets. */
static uint64_t offset_of(uint64_t number, uint64_t stride)
{
	return stride == LINE ? number * LINE : number * stride + number / 32 * LINE % SMALL_PAGE;
}

static double access_ns(const char *memory, uint64_t stride)
{
	double begun_ns = now_ns();
	uint64_t state = 1;
	long i;

	for (i = 0; i < ACCESSES; i++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		state += *(const volatile char *)(memory + offset_of((state >> 40) % LINES, stride));
	}
	return (now_ns() - begun_ns) / ACCESSES;
}

/* Memory with all of its pages written, or NULL. */
static char *memory_in(int advice)
{
	char *memory = mmap(NULL, BYTES + LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t i;

	if (memory == MAP_FAILED)
		return NULL;
	memory += -(uintptr_t)memory % LARGE_PAGE;
	madvise(memory, BYTES, advice);
	for (i = 0; i < BYTES; i += LINE)
		memory[i] = 1;
	if (advice == MADV_HUGEPAGE && madvise(memory, BYTES, MADV_COLLAPSE)) {
		perror("large pages");
		return NULL;
	}
	return memory;
}

int main(void)
{
	const char *small = memory_in(MADV_NOHUGEPAGE), *large = memory_in(MADV_HUGEPAGE);

	if (!small || !large)
		return 1;
	access_ns(large, LINE);	/* a first run, not counted */
	printf("{\"small\": %.2f, \"large\": %.2f, \"row\": %.2f}\n", access_ns(small, SMALL_PAGE),
	       access_ns(large, SMALL_PAGE), access_ns(large, LINE));
	return 0;
}
