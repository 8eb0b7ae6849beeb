// SPDX-License-Identifier: Apache-2.0
/*
 * Prefetches random cache lines of 256 MB at once, waits until all can have
 * arrived, and measures which did. Prints the share that did not for each level
 * and number of lines, as JSON.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <x86intrin.h>

#define BYTES (256ul << 20)
#define LINE 64
#define ROUNDS 2000
#define MOST 256
#define WAIT_NS 4000
#define SLOW_NS 50	/* between the second-level cache and memory; reading the counter included */

static uint64_t state = 88172645463325252ull;

static uint64_t random_number(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Ticks of the time stamp counter in a nanosecond. */
static double ticks_per_ns(void)
{
	uint64_t begun_ns = now_ns(), begun = __rdtsc();

	while (now_ns() < begun_ns + 50000000)
		;
	return (double)(__rdtsc() - begun) / (now_ns() - begun_ns);
}

static uint64_t ticks_to_load(const char *address)
{
	unsigned int cpu;
	uint64_t begun = __rdtscp(&cpu);

	_mm_lfence();
	(void)*(const volatile char *)address;
	begun = __rdtscp(&cpu) - begun;
	_mm_lfence();
	return begun;
}

static double lost(const char *memory, int level, int lines, double slow_ticks)
{
	const char *chosen[MOST];
	uint64_t begun_ns;
	long slow = 0;
	int round, i;

	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < lines; i++)
			chosen[i] = memory + random_number() % (BYTES / LINE) * LINE;
		_mm_mfence();
		for (i = 0; i < lines; i++) {
			if (level == 1)
				_mm_prefetch(chosen[i], _MM_HINT_T0);
			else
				_mm_prefetch(chosen[i], _MM_HINT_T1);
		}
		for (begun_ns = now_ns(); now_ns() < begun_ns + WAIT_NS;)
			;
		for (i = 0; i < lines; i++)
			slow += ticks_to_load(chosen[i]) > slow_ticks;
	}
	return (double)slow / ROUNDS / lines;
}

int main(void)
{
	static const int numbers[] = { 16, 32, 64, 128, 256 };
	double slow_ticks = SLOW_NS * ticks_per_ns();
	char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t i;

	if (memory == MAP_FAILED)
		return 1;
	madvise(memory, BYTES, MADV_HUGEPAGE);
	for (i = 0; i < BYTES; i += LINE)
		memory[i] = 1;
	for (i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		printf("{\"lines\": %d, \"first\": %.4f, \"second\": %.4f}\n", numbers[i],
		       lost(memory, 1, numbers[i], slow_ticks), lost(memory, 2, numbers[i], slow_ticks));
	return 0;
}
