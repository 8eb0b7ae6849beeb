// SPDX-License-Identifier: GPL-2.0-only
/*
 * Registers of a guest process on CPUs with any XSTATE size, with a mock of the
 * host's ptrace.
 */
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include "unit.h"

/*
 * Mock of the host (arch/x86/kernel/fpu/regset.c). Reading returns as many
 * bytes as fit and their number; writing needs exactly all of them, else
 * EFAULT. A size beyond the host's is truncated.
 */
static struct {
	size_t size;	/* 512: no XSAVE */
	unsigned char registers[128 * 1024];
} host;

static long fail(int error)
{
	errno = error;
	return -1;
}

static long host_ptrace(int request, int pid, long kind, void *data)
{
	struct iovec *iov = data;

	(void)pid;
	switch (request) {
	case PTRACE_GETFPREGS:
		memcpy(data, host.registers, 512);
		return 0;
	case PTRACE_SETFPREGS:
		memcpy(host.registers, data, 512);
		return 0;
	case PTRACE_GETREGSET:
	case PTRACE_SETREGSET:
		EXPECT_EQUAL(kind, NT_X86_XSTATE);
		if (host.size == 512)
			return fail(ENODEV);
		if (iov->iov_len % 8)
			return fail(EINVAL);
		if (iov->iov_len > host.size)
			iov->iov_len = host.size;
		if (request == PTRACE_GETREGSET) {
			memcpy(iov->iov_base, host.registers, iov->iov_len);
			return 0;
		}
		if (iov->iov_len != host.size)
			return fail(EFAULT);
		memcpy(host.registers, iov->iov_base, iov->iov_len);
		return 0;
	}
	return fail(EIO);
}

#define ptrace(request, pid, address, data) host_ptrace(request, pid, (long)(address), data)
#include "../uml/um_xstate.h"

static void fill(unsigned char *bytes, size_t used, size_t all)
{
	memset(bytes, 0, all);
	for (size_t i = 0; i < used; i++)
		bytes[i] = random_u64();
}

/* Two tasks take turns on a CPU whose registers have `size` bytes; `used` of them may be other than 0. */
static void take_turns(size_t size, size_t used)
{
	static unsigned char registers[sizeof(host.registers)], others[sizeof(host.registers)];
	/* a guard behind what a task keeps */
	unsigned long saved[2][UM_XSTATE_KEPT / sizeof(long) + 1] = { 0 };

	host.size = size;
	fill(registers, used, sizeof(registers));
	fill(others, used, sizeof(others));
	EXPECT_EQUAL(um_xstate_find(1), 0);
	EXPECT_EQUAL(um_xstate.size, size == 512 ? 0 : size);
	for (int turn = 0; turn < 3; turn++) {
		memcpy(host.registers, registers, size);
		EXPECT_EQUAL(um_xstate_save(1, saved[0]), 0);
		memcpy(host.registers, others, size);
		EXPECT_EQUAL(um_xstate_save(1, saved[1]), 0);

		EXPECT_EQUAL(um_xstate_restore(1, saved[0]), 0);
		EXPECT(!memcmp(host.registers, registers, size));
		EXPECT_EQUAL(um_xstate_restore(1, saved[1]), 0);
		EXPECT(!memcmp(host.registers, others, size));
	}
	for (int task = 0; task < 2; task++)
		EXPECT_EQUAL(saved[task][UM_XSTATE_KEPT / sizeof(long)], 0);
}

static void errors_are_reported(void)
{
	unsigned long saved[UM_XSTATE_KEPT / sizeof(long)];

	/* a changed size (migration to another machine) is refused, not truncated */
	host.size = 2696;
	EXPECT_EQUAL(um_xstate_find(1), 0);
	host.size = 11008;
	EXPECT_EQUAL(um_xstate_restore(1, saved), -EFAULT);

	host.size = UM_XSTATE_MAX;
	EXPECT_EQUAL(-um_xstate_find(1), E2BIG);
	host.size = UM_XSTATE_MAX + 64;
	EXPECT_EQUAL(-um_xstate_find(1), E2BIG);
}

int main(void)
{
	static const size_t sizes[] = { 512, 832, 2440, 2688, 2696 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		take_turns(sizes[i], sizes[i]);
	/* AMX: the remaining state is in its initial configuration */
	take_turns(11008, UM_XSTATE_KEPT);
	take_turns(UM_XSTATE_MAX - 8, UM_XSTATE_KEPT);
	errors_are_reported();
	return PASS();
}
