/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Division of 128 bits, which compilers take from a library that the kernel
 * does not have. Digit by digit: P4 programs that divide at all do it seldom.
 */
#ifndef _QP4_DIVIDE_H
#define _QP4_DIVIDE_H

#include <qbed/types.h>

static inline u32 qp4_width(__uint128_t value)
{
	u64 high = value >> 64, low = value;

	return high ? 128 - __builtin_clzll(high) : low ? 64 - __builtin_clzll(low) : 0;
}

/* @divisor is not 0: the engine looks, and its panic is another one. */
static inline __uint128_t qp4_divide(__uint128_t value, __uint128_t divisor, __uint128_t *rest)
{
	__uint128_t quotient = 0;
	u32 shift;

	if (value >> 64 == 0 && divisor >> 64 == 0) {
		*rest = (u64)value % (u64)divisor;
		return (u64)value / (u64)divisor;
	}
	if (value >= divisor) {
		for (shift = qp4_width(value) - qp4_width(divisor) + 1; shift-- > 0;) {
			if (value >> shift >= divisor) {
				value -= divisor << shift;
				quotient |= (__uint128_t)1 << shift;
			}
		}
	}
	*rest = value;
	return quotient;
}

/* Towards zero; the rest has the value's sign. */
static inline __int128_t qp4_divide_signed(__int128_t value, __int128_t divisor, __int128_t *rest)
{
	__uint128_t left = value < 0 ? -(__uint128_t)value : (__uint128_t)value;
	__uint128_t right = divisor < 0 ? -(__uint128_t)divisor : (__uint128_t)divisor;
	__uint128_t quotient, remainder;

	quotient = qp4_divide(left, right, &remainder);
	*rest = (__int128_t)(value < 0 ? -remainder : remainder);
	return (__int128_t)((value < 0) != (divisor < 0) ? -quotient : quotient);
}

#endif /* _QP4_DIVIDE_H */
