/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The few kernel names that the kernel-free headers use, so that the same
 * arithmetic is compiled into the modules and into the unit tests.
 */
#ifndef _QBED_TYPES_H
#define _QBED_TYPES_H

#ifdef __KERNEL__

#include <linux/compiler.h>
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/types.h>

#include <asm/byteorder.h>

#else /* user space: unit tests */

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

#define U32_MAX UINT32_MAX
#define U64_MAX UINT64_MAX
#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)
#define be16_to_cpu(value) be16toh(value)
#define be32_to_cpu(value) be32toh(value)
#define be64_to_cpu(value) be64toh(value)
#define cpu_to_be16(value) htobe16(value)
#define cpu_to_be32(value) htobe32(value)
#define cpu_to_be64(value) htobe64(value)

#endif

#endif /* _QBED_TYPES_H */
