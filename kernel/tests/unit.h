/* SPDX-License-Identifier: GPL-2.0-only */
/* Assertions that print the actual value, and reproducible random numbers. */
#ifndef _UNIT_H
#define _UNIT_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPECT_EQUAL(actual, expected) do {					\
	unsigned long long _actual = (actual), _expected = (expected);		\
	if (_actual != _expected) {						\
		fprintf(stderr, "%s:%d: %s is %llu, not %llu\n", __FILE__,	\
			__LINE__, #actual, _actual, _expected);			\
		exit(1);							\
	}									\
} while (0)

#define EXPECT(condition) EXPECT_EQUAL(!!(condition), 1)

/* xorshift64*: S. Vigna, An experimental exploration of Marsaglia's xorshift generators */
static uint64_t random_state = 88172645463325252ull;

static inline uint64_t random_u64(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 2685821657736338717ull;
}

static inline uint64_t random_below(uint64_t bound)
{
	return random_u64() % bound;
}

#define PASS() (printf("%s: pass\n", __FILE__), 0)

#endif /* _UNIT_H */
