// SPDX-License-Identifier: GPL-2.0-only
/* System calls of a confined kernel, each tested in its own process. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "../uml/um_confine.h"

/* Runs one system call under the filter: 0 or its errno */
#define CONFINED(...) ({								\
	pid_t child = fork();							\
	int ended;								\
	if (!child) {								\
		if (um_confine_calls())						\
			_exit(255);						\
		syscall(__NR_exit_group, syscall(__VA_ARGS__) < 0 ? errno : 0);	\
	}									\
	EXPECT_EQUAL(waitpid(child, &ended, 0), child);				\
	EXPECT(WIFEXITED(ended));						\
	WEXITSTATUS(ended);							\
})

static void refuses_access_to_other_processes(const char *file)
{
	static char *const argv[] = { "/bin/true", NULL };
	struct rlimit limit = { 1, 1 };
	int pair[2];

	EXPECT_EQUAL(CONFINED(__NR_socket, AF_UNIX, SOCK_STREAM, 0), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_socket, AF_INET, SOCK_DGRAM, 0), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_socketpair, AF_UNIX, SOCK_DGRAM, 0, pair), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_connect, 0, NULL, 0), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_execve, argv[0], argv, NULL), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_execveat, AT_FDCWD, argv[0], argv, NULL, 0), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_mount, "none", "/tmp", "tmpfs", 0, NULL), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_unshare, 0), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_io_uring_setup, 1, NULL), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_keyctl, 0, 0, 0), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_bpf, 0, NULL, 0), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_chmod, file, 0777), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_chown, file, 1, 1), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_truncate, file, 0), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_symlink, file, "/tmp/x"), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_setxattr, file, "user.x", "", 0, 0), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_utimensat, AT_FDCWD, file, NULL, 0), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_utimensat, AT_FDCWD, 1ul << 32, NULL, 0), EPERM);
	EXPECT_EQUAL(CONFINED(__NR_prlimit64, getppid(), RLIMIT_NOFILE, &limit, NULL), EPERM);
	/* numbers of the x32 ABI */
	EXPECT_EQUAL(CONFINED(__NR_getpid | 0x40000000), EPERM);
	um_confine_make();
	EXPECT_EQUAL(um_confine.count, UM_FILTER_MAX);
}

static void allows_what_the_kernel_needs(const char *file)
{
	struct rlimit limit;
	struct stat status;
	int pair[2], fd = open(file, O_RDWR | O_CREAT, 0600);

	EXPECT(fd >= 0);
	EXPECT_EQUAL(CONFINED(__NR_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	EXPECT_EQUAL(CONFINED(__NR_openat, AT_FDCWD, file, O_RDWR), 0);
	EXPECT_EQUAL(CONFINED(__NR_newfstatat, AT_FDCWD, file, &status, 0), 0);
	EXPECT_EQUAL(CONFINED(__NR_fchmod, fd, 0644), 0);
	EXPECT_EQUAL(CONFINED(__NR_ftruncate, fd, 10), 0);
	EXPECT_EQUAL(CONFINED(__NR_utimensat, fd, NULL, NULL, 0), 0);
	EXPECT_EQUAL(CONFINED(__NR_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit), 0);
	EXPECT_EQUAL(CONFINED(__NR_mmap, NULL, 4096, PROT_READ, MAP_SHARED, fd, 0), 0);
	EXPECT_EQUAL(CONFINED(__NR_ptrace, PTRACE_TRACEME, 0, 0, 0), 0);
	EXPECT_EQUAL(CONFINED(__NR_clone, SIGCHLD, 0, 0, 0, 0), 0);
	EXPECT_EQUAL(CONFINED(__NR_kill, 0, 0), 0);
	close(fd);
}

int main(void)
{
	char file[] = "/tmp/qbed-confine-XXXXXX";

	close(mkstemp(file));
	refuses_access_to_other_processes(file);
	allows_what_the_kernel_needs(file);
	unlink(file);
	return PASS();
}
