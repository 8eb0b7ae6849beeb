// SPDX-License-Identifier: GPL-2.0-only
/* 128-bit division gives the same results as the compiler's library. */
#include "unit.h"

#include "qp4_divide.h"

/* Random integer of random_u128 width; powers of two and their predecessors as often. */
static __uint128_t random_u128(void)
{
	__uint128_t value = (__uint128_t)random_u64() << 64 | random_u64();
	u32 width = random_u64() % 128;

	switch (random_u64() % 4) {
	case 0:
		return (__uint128_t)1 << width;
	case 1:
		return ((__uint128_t)1 << width) - 1;
	default:
		return value >> width;
	}
}

static void test_unsigned(void)
{
	int i;

	for (i = 0; i < 200000; i++) {
		__uint128_t value = random_u128(), divisor = random_u128(), rest;

		if (!divisor)
			continue;
		EXPECT(qp4_divide(value, divisor, &rest) == value / divisor);
		EXPECT(rest == value % divisor);
	}
}

static void test_signed(void)
{
	const __int128_t min = (__int128_t)((__uint128_t)1 << 127);
	__int128_t rest;
	int i;

	for (i = 0; i < 200000; i++) {
		__int128_t value = random_u128(), divisor = random_u128();

		if (random_u64() & 1)
			value = -(__uint128_t)value;
		if (!divisor || (value == min && divisor == -1))
			continue;
		EXPECT(qp4_divide_signed(value, divisor, &rest) == value / divisor);
		EXPECT(rest == value % divisor);
	}
	EXPECT(qp4_divide_signed(min, 1, &rest) == min && rest == 0);
}

int main(void)
{
	test_unsigned();
	test_signed();
	return PASS();
}
