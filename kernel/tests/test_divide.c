// SPDX-License-Identifier: GPL-2.0-only
/* Division of 128 bits gives what the compiler's own library gives. */
#include "unit.h"

#include "qp4_divide.h"

/* Of any width, and as often at the edges. */
static __uint128_t any(void)
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
		__uint128_t value = any(), divisor = any(), rest;

		if (!divisor)
			continue;
		EXPECT(qp4_divide(value, divisor, &rest) == value / divisor);
		EXPECT(rest == value % divisor);
	}
}

static void test_signed(void)
{
	const __int128_t least = (__int128_t)((__uint128_t)1 << 127);
	__int128_t rest;
	int i;

	for (i = 0; i < 200000; i++) {
		__int128_t value = any(), divisor = any();

		if (random_u64() & 1)
			value = -(__uint128_t)value;
		if (!divisor || (value == least && divisor == -1))
			continue;
		EXPECT(qp4_divide_signed(value, divisor, &rest) == value / divisor);
		EXPECT(rest == value % divisor);
	}
	EXPECT(qp4_divide_signed(least, 1, &rest) == least && rest == 0);
}

int main(void)
{
	test_unsigned();
	test_signed();
	return PASS();
}
