// SPDX-License-Identifier: GPL-2.0-only
/* General registers of a stopped process, written whole or only with the result of a system call. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

static int last_request;

static long recorded_ptrace(int request, int pid, unsigned long address, void *data)
{
	last_request = request;
	return ptrace(request, pid, address, data);
}

#define ptrace(request, pid, address, data) recorded_ptrace(request, pid, address, (void *)(data))
#include "../uml/um_registers.h"
#undef ptrace

static pid_t stopped_process(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(0);
	}
	EXPECT_EQUAL(waitpid(pid, &status, 0), pid);
	EXPECT(WIFSTOPPED(status));
	ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_EXITKILL);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Writes @gp and checks that the process has it, by a request of this kind; the number of a call aside. */
static void put(pid_t pid, unsigned long *gp, int request)
{
	unsigned long found[UM_REGISTERS];

	EXPECT_EQUAL(um_registers_put(pid, gp), 0);
	EXPECT_EQUAL(last_request, request);
	EXPECT_EQUAL(ptrace(PTRACE_GETREGS, pid, 0, found), 0);
	if (request == PTRACE_POKEUSER)
		found[UM_CALL] = gp[UM_CALL];
	EXPECT_EQUAL(memcmp(found, gp, sizeof(found)), 0);
}

static void results_alone(void)
{
	unsigned long gp[UM_REGISTERS];
	pid_t pid = stopped_process();
	int i;

	for (i = 0; i < 100; i++) {
		EXPECT_EQUAL(um_registers_get(pid, gp), 0);
		if (i % 2)
			gp[UM_CALL] = -1;
		gp[UM_RESULT] = random_u64();
		put(pid, gp, PTRACE_POKEUSER);
	}
	end(pid);
}

static void all_registers(void)
{
	static const size_t others[6] = {
		offsetof(struct user_regs_struct, rdi), offsetof(struct user_regs_struct, rcx),
		offsetof(struct user_regs_struct, r11), offsetof(struct user_regs_struct, rip),
		offsetof(struct user_regs_struct, rsp), offsetof(struct user_regs_struct, fs_base),
	};
	unsigned long gp[UM_REGISTERS];
	pid_t pid = stopped_process();
	size_t i;

	for (i = 0; i < 6; i++) {
		EXPECT_EQUAL(um_registers_get(pid, gp), 0);
		gp[others[i] / sizeof(*gp)] += 64;
		gp[UM_RESULT] = random_u64();
		put(pid, gp, PTRACE_SETREGS);
	}
	end(pid);
}

/* A result that restarts a call is written with the call's number. */
static void restarts(void)
{
	unsigned long gp[UM_REGISTERS];
	pid_t pid = stopped_process();
	unsigned long error;

	for (error = 511; error <= 517; error++) {
		EXPECT_EQUAL(um_registers_get(pid, gp), 0);
		gp[UM_CALL] = 0;
		EXPECT_EQUAL(um_registers_put(pid, gp), 0);
		EXPECT_EQUAL(um_registers_get(pid, gp), 0);
		gp[UM_CALL] = -1;
		gp[UM_RESULT] = -error;
		put(pid, gp, error == 511 || error == 517 ? PTRACE_POKEUSER : PTRACE_SETREGS);
	}
	end(pid);
}

/* Registers that were changed elsewhere, written twice, or of another process are written whole. */
static void unknown_registers(void)
{
	unsigned long gp[UM_REGISTERS];
	pid_t pid = stopped_process(), other = stopped_process();

	EXPECT_EQUAL(um_registers_get(pid, gp), 0);
	um_registers_forget();
	put(pid, gp, PTRACE_SETREGS);
	EXPECT_EQUAL(um_registers_get(pid, gp), 0);
	put(other, gp, PTRACE_SETREGS);
	EXPECT_EQUAL(um_registers_get(pid, gp), 0);
	put(pid, gp, PTRACE_POKEUSER);
	put(pid, gp, PTRACE_SETREGS);
	end(pid);
	EXPECT_EQUAL(um_registers_get(pid, gp), -1);
	EXPECT_EQUAL(errno, ESRCH);
	EXPECT_EQUAL(um_registers_put(other, gp), 0);
	EXPECT_EQUAL(last_request, PTRACE_SETREGS);
	end(other);
}

int main(void)
{
	results_alone();
	all_registers();
	restarts();
	unknown_registers();
	return PASS();
}
