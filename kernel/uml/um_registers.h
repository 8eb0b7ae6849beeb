/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The general registers of the host's process that runs a guest's user code.
 * Most system calls change only the register of their result, and the host
 * then writes one register instead of 27.
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

/* True for ERESTARTSYS to ERESTART_RESTARTBLOCK, which also is what F_GETOWN of a process group may return. */
static inline bool um_restarts(unsigned long result)
{
	return -result >= 512 && -result <= 516;
}

/* Returns 0, or -1 and sets errno. */
static inline int um_registers_put(int pid, unsigned long *gp)
{
	bool known = um_registers.pid == pid;

	um_registers_forget();
	um_registers.gp[UM_RESULT] = gp[UM_RESULT];
	/* The host needs the number of a call, -1 for none, only if the result restarts it. */
	if (gp[UM_CALL] == -1ul && !um_restarts(gp[UM_RESULT]))
		um_registers.gp[UM_CALL] = -1ul;
	if (known && !memcmp(um_registers.gp, gp, sizeof(um_registers.gp)))
		return ptrace(PTRACE_POKEUSER, pid, UM_RESULT * sizeof(*gp), gp[UM_RESULT]);
	return ptrace(PTRACE_SETREGS, pid, 0, gp);
}

#endif
