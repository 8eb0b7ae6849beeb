/* SPDX-License-Identifier: GPL-2.0-only */
/* A constant rate, independent of signals and losses. */
#ifndef _FIXED_H
#define _FIXED_H

#include "fixed_controller.h"

static inline u64 fixed_rate(const void *state, const void *params)
{
	return ((const struct fixed_params *)params)->rate_bps;
}

static const struct rate_controller fixed_controller = {
	.name = "fixed",
	.params_bytes = sizeof(struct fixed_params),
	.rate = fixed_rate,
};

#endif /* _FIXED_H */
