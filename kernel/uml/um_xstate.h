/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Floating point and vector registers of a guest process, through ptrace: the
 * part of arch/x86/um/os-Linux/registers.c that depends on the CPU, separate so
 * that it can be tested for CPUs that are not available
 * (kernel/tests/test_xstate.c).
 *
 * The host returns as many bytes of its XSTATE as requested, but accepts only
 * all of them (otherwise EFAULT). The size depends on the CPU:
 *
 *	  832  AVX
 *	2,440	without the gap for MPX: AMD's AVX-512 and PKRU
 *	2,688  AVX-512
 *	2,696  AVX-512, PKRU
 *	11,008  AMX
 *
 * Beyond UM_XSTATE_KEPT are only AMX tiles. No guest process requests the
 * permission that they need (arch_prctl(ARCH_REQ_XCOMP_PERM), which User-Mode
 * Linux does not support), so they are always in their initial state, which is
 * represented by zeros: their bits in XSTATE_BV, which is kept, are clear.
 */
#ifndef _UM_XSTATE_H
#define _UM_XSTATE_H

#define UM_XSTATE_KEPT	2696		/* bytes that a task keeps */
#define UM_XSTATE_MAX	(64 * 1024)	/* maximum supported size */

static struct {
	size_t size;		/* size of the host's XSTATE; 0: none */
	/* buffer for writing if the host expects more than a task keeps */
	unsigned long full[UM_XSTATE_MAX / sizeof(unsigned long)];
} um_xstate;

/* Returns 0, -errno, or -E2BIG if the register state exceeds UM_XSTATE_MAX. */
static int um_xstate_find(int pid)
{
	struct iovec iov = {
		.iov_base = um_xstate.full,
		.iov_len = sizeof(um_xstate.full),
	};

	um_xstate.size = 0;
	if (ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &iov) < 0)
		return errno == ENODEV || errno == EINVAL || errno == EIO ? 0 : -errno;
	memset(um_xstate.full, 0, sizeof(um_xstate.full));
	if (iov.iov_len == sizeof(um_xstate.full))
		return -E2BIG;
	um_xstate.size = iov.iov_len;
	return 0;
}

/*
 * Saves the first UM_XSTATE_KEPT bytes; bytes that the CPU does not have are
 * unchanged in @regs.
 */
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
		memcpy(um_xstate.full, regs, UM_XSTATE_KEPT);
		iov.iov_base = um_xstate.full;
	}
	return ptrace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &iov) < 0 ? -errno : 0;
}

#endif /* _UM_XSTATE_H */
