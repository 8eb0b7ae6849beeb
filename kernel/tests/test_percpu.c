// SPDX-License-Identifier: GPL-2.0-only
/* Counters of a processor of all sizes, added to and subtracted from by one instruction each. */
#include "../uml/um_percpu.h"
#include "unit.h"

#define raw_cpu_ptr(pointer) (pointer)

/* Neighbours show a write of the wrong size. */
#define CHECK(bits)								\
static void counters_of_##bits##_bits(void)					\
{										\
	uint##bits##_t counter[3] = { 1, 0, 2 }, expected = 0;			\
	int i;									\
										\
	for (i = 0; i < 10000; i++) {						\
		uint##bits##_t value = random_u64() >> random_below(64);	\
										\
		ADD_##bits(counter[1], value);					\
		ADD_##bits(counter[1], 1);					\
		ADD_##bits(counter[1], -7);					\
		expected += value - 6;						\
		EXPECT_EQUAL(counter[1], expected);				\
	}									\
	EXPECT_EQUAL(counter[0], 1);						\
	EXPECT_EQUAL(counter[2], 2);						\
}

#define ADD_8 this_cpu_add_1
#define ADD_16 this_cpu_add_2
#define ADD_32 this_cpu_add_4
#define ADD_64 this_cpu_add_8

CHECK(8)
CHECK(16)
CHECK(32)
CHECK(64)

int main(void)
{
	counters_of_8_bits();
	counters_of_16_bits();
	counters_of_32_bits();
	counters_of_64_bits();
	return PASS();
}
