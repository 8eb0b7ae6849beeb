/* SPDX-License-Identifier: Apache-2.0 */
/* A system call with known values in all registers that it must preserve, including AVX registers if available. */
#pragma once

#include <string.h>

#include "check.h"

struct registers {
    unsigned long general[12]; /* rbx rbp r12 r13 r14 r15, then the arguments that a call preserves: rdi rsi rdx r10 r8 r9 */
    unsigned char vector[16][32];
};

/* Loads all of `in`, makes system call `number` (or, if negative, counts down from its absolute value), stores all to `out`. */
long call_with_registers(long number, const struct registers *in, struct registers *out, int avx);

__asm__(
    ".text\n"
    "call_with_registers:\n"
    "  push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "  push %rdx; push %rcx; push %rdi\n"
    "  mov %rsi, %rax\n"
    "  test %ecx, %ecx; jz 1f\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    "  vmovdqu 96+32*\\n(%rax), %ymm\\n\n"
    ".endr\n"
    "  jmp 2f\n"
    "1:\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    "  movdqu 96+32*\\n(%rax), %xmm\\n\n"
    ".endr\n"
    "2:\n"
    "  mov 0(%rax), %rbx; mov 8(%rax), %rbp; mov 16(%rax), %r12\n"
    "  mov 24(%rax), %r13; mov 32(%rax), %r14; mov 40(%rax), %r15\n"
    "  mov 48(%rax), %rdi; mov 56(%rax), %rsi; mov 64(%rax), %rdx\n"
    "  mov 72(%rax), %r10; mov 80(%rax), %r8; mov 88(%rax), %r9\n"
    "  pop %rax\n"
    "  test %rax, %rax; js 3f\n"
    "  syscall\n"
    "  jmp 4f\n"
    "3: inc %rax; jnz 3b\n"
    "4: mov (%rsp), %ecx; mov 8(%rsp), %r11\n"
    "  mov %rbx, 0(%r11); mov %rbp, 8(%r11); mov %r12, 16(%r11)\n"
    "  mov %r13, 24(%r11); mov %r14, 32(%r11); mov %r15, 40(%r11)\n"
    "  mov %rdi, 48(%r11); mov %rsi, 56(%r11); mov %rdx, 64(%r11)\n"
    "  mov %r10, 72(%r11); mov %r8, 80(%r11); mov %r9, 88(%r11)\n"
    "  test %ecx, %ecx; jz 5f\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    "  vmovdqu %ymm\\n, 96+32*\\n(%r11)\n"
    ".endr\n"
    "  vzeroupper\n"
    "  jmp 6f\n"
    "5:\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    "  movdqu %xmm\\n, 96+32*\\n(%r11)\n"
    ".endr\n"
    "6: pop %rcx; pop %rdx\n"
    "  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
    "  ret\n");

static inline void fill_registers(struct registers *registers, unsigned seed)
{
    unsigned char *bytes = (unsigned char *)registers;
    for (size_t i = 0; i < sizeof(*registers); i++)
        bytes[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
}

/* Makes a system call, checks that it preserves registers filled from `seed`, and returns its result. */
static inline long checked_call(unsigned seed, long number, const unsigned long arguments[6])
{
    struct registers in, out;
    int avx = __builtin_cpu_supports("avx") ? 1 : 0;
    fill_registers(&in, seed);
    memcpy(&in.general[6], arguments, 6 * sizeof(unsigned long));
    memset(&out, 0, sizeof(out));
    long result = call_with_registers(number, &in, &out, avx);
    CHECK(!memcmp(in.general, out.general, sizeof(in.general)));
    for (int i = 0; i < 16; i++)
        CHECK(!memcmp(in.vector[i], out.vector[i], avx ? 32 : 16));
    return result;
}
