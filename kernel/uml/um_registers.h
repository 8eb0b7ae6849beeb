/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The general registers of the host's process that runs a guest's user code.
 * Most system calls change only the register of their result, which takes the
 * host a third of the time that all take.
 */
#ifndef _UM_REGISTERS_H
#define _UM_REGISTERS_H

#include <sys/user.h>

#define UM_REGISTERS	(sizeof(struct user_regs_struct) / sizeof(unsigned long))
#define UM_RESULT	(offsetof(struct user_regs_struct, rax) / sizeof(unsigned long))
#define UM_CALL		(offsetof(struct user_regs_struct, orig_rax) / sizeof(unsigned long))

static struct {
	int pid;			/* the process that has them; 0: unknown */
	unsigned long gp[UM_REGISTERS];
} um_registers;

/* The process ended, or its registers were changed elsewhere. */
static inline void um_registers_forget(void)
{
	um_registers.pid = 0;
}

/* Returns 0, or -1 and sets errno. */
static inline int um_registers_get(int pid, unsigned long *gp)
{
	um_registers_forget();
	if (ptrace(PTRACE_GETREGS, pid, 0, gp))
		return -1;
	memcpy(um_registers.gp, gp, sizeof(um_registers.gp));
	um_registers.pid = pid;
	return 0;
}

/* Returns 0, or -1 and sets errno. */
static inline int um_registers_put(int pid, unsigned long *gp)
{
	bool known = um_registers.pid == pid;

	um_registers_forget();
	um_registers.gp[UM_RESULT] = gp[UM_RESULT];
	/* The host needs the number of a call only for results that restart it; a guest has none. */
	if (gp[UM_CALL] == -1ul)
		um_registers.gp[UM_CALL] = -1ul;
	if (known && !memcmp(um_registers.gp, gp, sizeof(um_registers.gp)))
		return ptrace(PTRACE_POKEUSER, pid, UM_RESULT * sizeof(*gp), gp[UM_RESULT]);
	return ptrace(PTRACE_SETREGS, pid, 0, gp);
}

#endif
