/* SPDX-License-Identifier: GPL-2.0-only */
/* Integer square root of a 128-bit integer, rounded down. */
#ifndef _QRATE_SQRT_H
#define _QRATE_SQRT_H

#include <qbed/types.h>

static inline u64 qrate_sqrt(u64 high, u64 low)
{
	__uint128_t rest = (__uint128_t)high << 64 | low, bit, root = 0;
	u32 width = high ? 128 - __builtin_clzll(high) : low ? 64 - __builtin_clzll(low) : 0;

	if (!width)
		return 0;
	for (bit = (__uint128_t)1 << ((width - 1) & ~1u); bit; bit >>= 2) {
		if (rest >= root + bit) {
			rest -= root + bit;
			root = (root >> 1) + bit;
		} else {
			root >>= 1;
		}
	}
	return root;
}

#endif /* _QRATE_SQRT_H */
