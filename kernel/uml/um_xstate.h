/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A guest process's floating point and vector registers, by ptrace: the part of
 * arch/x86/um/os-Linux/registers.c that depends on the machine's CPU, apart so
 * that it can be tested for CPUs that are not there (kernel/tests/test_xstate.c).
 *
 * The host gives away as many bytes of its XSTATE as are asked for, but takes
 * back all of them or none (EFAULT). How many there are depends on the CPU:
 *
 *	  832  AVX
 *	2,440	with Intel's hole for MPX left out: AMD's AVX-512 and PKRU
 *	2,688  AVX-512
 *	2,696  AVX-512, PKRU
 *	11,008  AMX
 *
 * Beyond UM_XSTATE_KEPT lie only AMX's tiles. No guest process asks for the
 * permission that they need (arch_prctl(ARCH_REQ_XCOMP_PERM), which User-Mode
 * Linux does not know), so they are always in their initial state, which zeros
 * stand for: their bits in XSTATE_BV, which is kept, are clear.
 */
#ifndef _UM_XSTATE_H
#define _UM_XSTATE_H

#define UM_XSTATE_KEPT	2696		/* what a task keeps of it */
#define UM_XSTATE_MOST	(64 * 1024)	/* the largest that is looked for */

static struct {
	size_t size;		/* of the host's XSTATE; 0: the CPU has none */
	/* what is given back where the host wants more than a task keeps */
	unsigned long whole[UM_XSTATE_MOST / sizeof(unsigned long)];
} um_xstate;

/* Returns 0, -errno, or -E2BIG for a CPU whose registers are more than there is room for. */
static int um_xstate_find(int pid)
{
	struct iovec iov = {
		.iov_base = um_xstate.whole,
		.iov_len = sizeof(um_xstate.whole),
	};

	um_xstate.size = 0;
	if (ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &iov) < 0)
		return errno == ENODEV || errno == EINVAL || errno == EIO ? 0 : -errno;
	memset(um_xstate.whole, 0, sizeof(um_xstate.whole));
	if (iov.iov_len == sizeof(um_xstate.whole))
		return -E2BIG;
	um_xstate.size = iov.iov_len;
	return 0;
}

/* Saves the first UM_XSTATE_KEPT bytes; what the CPU does not have stays as it is in @regs. */
static int um_xstate_save(int pid, unsigned long *regs)
{
	struct iovec iov = {
		.iov_base = regs,
		.iov_len = UM_XSTATE_KEPT,
	};

	if (!um_xstate.size)
		return ptrace(PTRACE_GETFPREGS, pid, 0, regs) < 0 ? -errno : 0;
	return ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &iov) < 0 ? -errno : 0;
}

static int um_xstate_restore(int pid, unsigned long *regs)
{
	struct iovec iov = {
		.iov_base = regs,
		.iov_len = um_xstate.size,
	};

	if (!um_xstate.size)
		return ptrace(PTRACE_SETFPREGS, pid, 0, regs) < 0 ? -errno : 0;
	if (um_xstate.size > UM_XSTATE_KEPT) {
		memcpy(um_xstate.whole, regs, UM_XSTATE_KEPT);
		iov.iov_base = um_xstate.whole;
	}
	return ptrace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &iov) < 0 ? -errno : 0;
}

#endif /* _UM_XSTATE_H */
