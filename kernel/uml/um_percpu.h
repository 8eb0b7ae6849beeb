/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A signal cannot split an instruction, so a counter of the only processor is
 * changed without blocking signals before and after.
 */
#ifndef __UM_PERCPU_H
#define __UM_PERCPU_H

#if !defined(CONFIG_SMP) && defined(__x86_64__)

#define um_this_cpu_add(instruction, constraint, pcp, val) ({		\
	asm volatile(instruction					\
		     : "+m" (*raw_cpu_ptr(&(pcp)))			\
		     : constraint ((typeof(pcp))(val))			\
		     : "cc");						\
})

#define this_cpu_add_1(pcp, val) um_this_cpu_add("addb %b1, %0", "qi", pcp, val)
#define this_cpu_add_2(pcp, val) um_this_cpu_add("addw %w1, %0", "ri", pcp, val)
#define this_cpu_add_4(pcp, val) um_this_cpu_add("addl %k1, %0", "ri", pcp, val)
#define this_cpu_add_8(pcp, val) um_this_cpu_add("addq %q1, %0", "re", pcp, val)

#endif

#endif
