// SPDX-License-Identifier: GPL-2.0-only
/*
 * A hostile module in a guest's kernel, which is a process of the user. It
 * calls the host's kernel to reach files and processes outside the guest, and
 * writes a line for each attempt to out/report: its name and its result.
 *
 * target.h defines the paths and the process.
 */
#include <linux/fcntl.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/socket.h>
#include <linux/stat.h>
#include <linux/string.h>
#include "target.h"

/* the host's system call numbers, x86-64 */
enum {
	NR_WRITE = 1, NR_CLOSE = 3, NR_SOCKET = 41, NR_EXECVE = 59, NR_KILL = 62,
	NR_TRUNCATE = 76, NR_CHMOD = 90, NR_PTRACE = 101, NR_OPENAT = 257,
	NR_MKDIRAT = 258, NR_MKNODAT = 259, NR_UNLINKAT = 263, NR_RENAMEAT = 264,
	NR_LINKAT = 265, NR_SYMLINKAT = 266, NR_PROCESS_VM_READV = 310,
	NR_IO_URING_SETUP = 425,
};

#define CWD -100L		/* AT_FDCWD */
#define ATTACH 16		/* PTRACE_ATTACH */

static long host_call(long number, long a, long b, long c, long d)
{
	register long r10 asm("r10") = d;
	register long r8 asm("r8") = 0;
	long result;

	asm volatile("syscall" : "=a"(result)
		     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
		     : "rcx", "r11", "memory");
	return result;
}

#define PATH(text) ((long)(text))

static int report;

static void record(const char *attempt, long result)
{
	char line[80];
	int length = snprintf(line, sizeof(line), "%s %ld\n", attempt, result);

	host_call(NR_WRITE, report, PATH(line), length, 0);
}

static void attack_files(void)
{
	record("read", host_call(NR_OPENAT, CWD, PATH(SECRET), O_RDONLY, 0));
	record("write", host_call(NR_OPENAT, CWD, PATH(SECRET), O_WRONLY, 0));
	record("environment", host_call(NR_OPENAT, CWD, PATH(ENVIRONMENT), O_RDONLY, 0));
	record("create", host_call(NR_OPENAT, CWD, PATH(OUTSIDE "/new"), O_CREAT | O_RDWR, 0600));
	record("folder", host_call(NR_MKDIRAT, CWD, PATH(OUTSIDE "/folder"), 0700, 0));
	record("list", host_call(NR_OPENAT, CWD, PATH(OUTSIDE), O_RDONLY | O_DIRECTORY, 0));
	record("link", host_call(NR_LINKAT, CWD, PATH(SECRET), CWD, PATH("out/secret")));
	record("move", host_call(NR_RENAMEAT, CWD, PATH(SECRET), CWD, PATH("out/secret")));
	record("remove", host_call(NR_UNLINKAT, CWD, PATH(SECRET), 0, 0));
	record("lure", host_call(NR_SYMLINKAT, PATH(SECRET), CWD, PATH("out/lure"), 0));
	record("fifo", host_call(NR_MKNODAT, CWD, PATH("out/fifo"), S_IFIFO | 0600, 0));
	record("plan", host_call(NR_OPENAT, CWD, PATH("plan.json"), O_RDWR, 0));
	record("program", host_call(NR_OPENAT, CWD, PATH("/usr/bin/env"), O_RDONLY, 0));
}

static void attack_processes(void)
{
	static const char *const argv[] = { "/bin/true", NULL };

	record("signal", host_call(NR_KILL, PROCESS, 0, 0, 0));
	record("trace", host_call(NR_PTRACE, ATTACH, PROCESS, 0, 0));
	record("socket", host_call(NR_SOCKET, AF_UNIX, SOCK_STREAM, 0, 0));
	record("chmod", host_call(NR_CHMOD, PATH(SECRET), 0777, 0, 0));
	record("truncate", host_call(NR_TRUNCATE, PATH(SECRET), 0, 0, 0));
	record("memory", host_call(NR_PROCESS_VM_READV, PROCESS, 0, 0, 0));
	record("uring", host_call(NR_IO_URING_SETUP, 1, 0, 0, 0));
	record("exec", host_call(NR_EXECVE, PATH(argv[0]), PATH(argv), 0, 0));
}

static int __init hostile_init(void)
{
	report = host_call(NR_OPENAT, CWD, PATH("out/report"), O_CREAT | O_WRONLY, 0600);
	if (report < 0)
		return report;
	attack_files();
	attack_processes();
	host_call(NR_CLOSE, report, 0, 0, 0);
	return 0;
}
module_init(hostile_init);

static void __exit hostile_exit(void)
{
}
module_exit(hostile_exit);

MODULE_DESCRIPTION("Attempts that a guest must not succeed with");
MODULE_LICENSE("GPL");
