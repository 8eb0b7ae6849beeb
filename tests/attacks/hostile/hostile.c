// SPDX-License-Identifier: GPL-2.0-only
/*
 * The worst that can run in a guest: code in its kernel, which is a process of
 * the user's. It asks the host for what is not the guest's, and writes what it
 * got into the guest's own folder, a line each: what it tried, the result.
 *
 * target.h has the paths and the process that it is to reach.
 */
#include <linux/fcntl.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/socket.h>
#include <linux/stat.h>
#include <linux/string.h>
#include "target.h"

/* numbers of the host, x86-64 */
enum {
	NR_WRITE = 1, NR_CLOSE = 3, NR_SOCKET = 41, NR_EXECVE = 59, NR_KILL = 62,
	NR_TRUNCATE = 76, NR_CHMOD = 90, NR_PTRACE = 101, NR_OPENAT = 257,
	NR_MKDIRAT = 258, NR_MKNODAT = 259, NR_UNLINKAT = 263, NR_RENAMEAT = 264,
	NR_LINKAT = 265, NR_SYMLINKAT = 266, NR_PROCESS_VM_READV = 310,
	NR_IO_URING_SETUP = 425,
};

#define HERE -100L		/* AT_FDCWD */
#define ATTACH 16		/* PTRACE_ATTACH */

static long host(long number, long a, long b, long c, long d)
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

static void say(const char *what, long result)
{
	char line[80];
	int length = snprintf(line, sizeof(line), "%s %ld\n", what, result);

	host(NR_WRITE, report, PATH(line), length, 0);
}

static void reach_files(void)
{
	say("read", host(NR_OPENAT, HERE, PATH(SECRET), O_RDONLY, 0));
	say("write", host(NR_OPENAT, HERE, PATH(SECRET), O_WRONLY, 0));
	say("environment", host(NR_OPENAT, HERE, PATH(ENVIRONMENT), O_RDONLY, 0));
	say("create", host(NR_OPENAT, HERE, PATH(OUTSIDE "/new"), O_CREAT | O_RDWR, 0600));
	say("folder", host(NR_MKDIRAT, HERE, PATH(OUTSIDE "/folder"), 0700, 0));
	say("list", host(NR_OPENAT, HERE, PATH(OUTSIDE), O_RDONLY | O_DIRECTORY, 0));
	say("link", host(NR_LINKAT, HERE, PATH(SECRET), HERE, PATH("out/secret")));
	say("move", host(NR_RENAMEAT, HERE, PATH(SECRET), HERE, PATH("out/secret")));
	say("remove", host(NR_UNLINKAT, HERE, PATH(SECRET), 0, 0));
	say("lure", host(NR_SYMLINKAT, PATH(SECRET), HERE, PATH("out/lure"), 0));
	say("fifo", host(NR_MKNODAT, HERE, PATH("out/fifo"), S_IFIFO | 0600, 0));
	say("own", host(NR_OPENAT, HERE, PATH("plan.json"), O_RDWR, 0));
	say("program", host(NR_OPENAT, HERE, PATH("/usr/bin/env"), O_RDONLY, 0));
}

static void reach_processes(void)
{
	static const char *const argv[] = { "/bin/true", NULL };

	say("signal", host(NR_KILL, PROCESS, 0, 0, 0));
	say("trace", host(NR_PTRACE, ATTACH, PROCESS, 0, 0));
	say("socket", host(NR_SOCKET, AF_UNIX, SOCK_STREAM, 0, 0));
	say("chmod", host(NR_CHMOD, PATH(SECRET), 0777, 0, 0));
	say("truncate", host(NR_TRUNCATE, PATH(SECRET), 0, 0, 0));
	say("memory", host(NR_PROCESS_VM_READV, PROCESS, 0, 0, 0));
	say("uring", host(NR_IO_URING_SETUP, 1, 0, 0, 0));
	say("exec", host(NR_EXECVE, PATH(argv[0]), PATH(argv), 0, 0));
}

static int __init hostile_init(void)
{
	report = host(NR_OPENAT, HERE, PATH("out/report"), O_CREAT | O_WRONLY, 0600);
	if (report < 0)
		return report;
	reach_files();
	reach_processes();
	host(NR_CLOSE, report, 0, 0, 0);
	return 0;
}
module_init(hostile_init);

static void __exit hostile_exit(void)
{
}
module_exit(hostile_exit);

MODULE_DESCRIPTION("Tries what a guest must not do");
MODULE_LICENSE("GPL");
