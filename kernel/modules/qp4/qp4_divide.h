/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * 128-bit division, which libgcc provides in user space. Bitwise long division,
 * since P4 programs rarely divide.
 */
#ifndef _QP4_DIVIDE_H
#define _QP4_DIVIDE_H

#include <qbed/types.h>

static inline u32 qp4_width(__uint128_t value)
{
	u64 high = value >> 64, low = value;

	return high ? 128 - __builtin_clzll(high) : low ? 64 - __builtin_clzll(low) : 0;
}

/* @divisor must not be 0: the engine checks it. */
static inline __uint128_t qp4_divide(__uint128_t value, __uint128_t divisor, __uint128_t *remainder)
{
	__uint128_t quotient = 0;
	u32 shift;

	if (value >> 64 == 0 && divisor >> 64 == 0) {
		*remainder = (u64)value % (u64)divisor;
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
	*remainder = value;
	return quotient;
}

/* Truncates towards zero; the remainder has the sign of @value. */
static inline __int128_t qp4_divide_signed(__int128_t value, __int128_t divisor, __int128_t *remainder)
{
	__uint128_t dividend = value < 0 ? -(__uint128_t)value : (__uint128_t)value;
	__uint128_t magnitude = divisor < 0 ? -(__uint128_t)divisor : (__uint128_t)divisor;
	__uint128_t quotient, rest;

	quotient = qp4_divide(dividend, magnitude, &rest);
	*remainder = (__int128_t)(value < 0 ? -rest : rest);
	return (__int128_t)((value < 0) != (divisor < 0) ? -quotient : quotient);
}

#endif /* _QP4_DIVIDE_H */
