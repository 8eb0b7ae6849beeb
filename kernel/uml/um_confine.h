/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Access of a guest's kernel to its host after boot, whatever is loaded into
 * it. Separate so that it can be tested without a kernel
 * (kernel/tests/test_confine.c).
 *
 * Files: a Landlock ruleset, prepared by the process that starts the guest and
 * passed as a descriptor (orchestrator/qbed/substrates/virtual/confinement.py).
 *
 * System calls: those used by User-Mode Linux and its C library. Excluded are
 * calls that reach other programs of the user without a file: sockets, exec,
 * mounts, namespaces, keys, memory and limits of other processes, and calls
 * that change a file by its path, which Landlock does not cover. They fail with
 * EPERM.
 *
 * A guest's system calls are not passed to the host. From 6.16 on, however, a
 * seccomp filter may intercept them in a guest's process, and an error returned
 * by this filter would take precedence over its notification: such a series
 * uses Landlock only.
 */
#ifndef _UM_CONFINE_H
#define _UM_CONFINE_H

static const unsigned short um_calls[] = {
	/* processes of the guest */
	__NR_ptrace, __NR_wait4, __NR_clone, __NR_clone3, __NR_exit, __NR_exit_group, __NR_kill,
	__NR_tgkill, __NR_tkill, __NR_getpid, __NR_gettid, __NR_getppid, __NR_prctl,
	__NR_arch_prctl, __NR_set_robust_list, __NR_set_tid_address, __NR_rseq, __NR_futex,
	__NR_sched_yield, __NR_sched_getaffinity,

	/* signals */
	__NR_rt_sigreturn, __NR_rt_sigprocmask, __NR_rt_sigaction, __NR_rt_sigsuspend,
	__NR_rt_sigtimedwait, __NR_rt_sigpending, __NR_sigaltstack, __NR_pause,
	__NR_restart_syscall,

	/* time */
	__NR_clock_gettime, __NR_clock_getres, __NR_gettimeofday, __NR_clock_nanosleep,
	__NR_nanosleep, __NR_timer_create, __NR_timer_settime, __NR_timer_gettime,
	__NR_timer_delete, __NR_timer_getoverrun, __NR_setitimer, __NR_times, __NR_getrusage,

	/* memory */
	__NR_mmap, __NR_munmap, __NR_mprotect, __NR_mremap, __NR_madvise, __NR_brk, __NR_msync,
	__NR_fallocate,

	/* descriptors */
	__NR_read, __NR_write, __NR_pread64, __NR_pwrite64, __NR_readv, __NR_writev, __NR_lseek,
	__NR_close, __NR_close_range, __NR_dup, __NR_dup2, __NR_dup3, __NR_fcntl, __NR_ioctl,
	__NR_pipe, __NR_pipe2, __NR_poll, __NR_ppoll, __NR_epoll_create1, __NR_epoll_ctl,
	__NR_epoll_wait, __NR_epoll_pwait, __NR_eventfd2, __NR_sendmsg, __NR_recvmsg, __NR_recvfrom,
	__NR_shutdown,

	/* files: which ones is limited by Landlock; attributes only by descriptor */
	__NR_open, __NR_openat, __NR_openat2, __NR_stat, __NR_lstat, __NR_fstat, __NR_newfstatat,
	__NR_statx, __NR_access, __NR_faccessat, __NR_faccessat2, __NR_readlink, __NR_readlinkat,
	__NR_statfs, __NR_fstatfs, __NR_getdents64, __NR_ftruncate, __NR_fsync, __NR_fdatasync,
	__NR_fchmod, __NR_fchown, __NR_unlinkat, __NR_mkdirat, __NR_mknodat, __NR_linkat,
	__NR_renameat, __NR_renameat2, __NR_unlink, __NR_rmdir,

	/* the C library's */
	__NR_getrandom, __NR_uname, __NR_getuid, __NR_geteuid, __NR_getgid, __NR_getegid,
	__NR_sysinfo, __NR_getrlimit, __NR_setrlimit,
};

/* Allowed where (argument & mask) == value */
static const struct um_rule {
	unsigned short call, argument;
	unsigned long long mask, value;
} um_rules[] = {
	/* stream pairs only: datagram sockets could send to an address */
	{ __NR_socketpair, 1, 0xf, SOCK_STREAM },
	/* of a descriptor only */
	{ __NR_utimensat, 1, ~0ull, 0 },
	/* of the calling process only */
	{ __NR_prlimit64, 0, ~0u, 0 },
};

#define UM_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define UM_FILTER_MAX (6 + 2 * UM_COUNT(um_calls) + 9 * UM_COUNT(um_rules))

static struct um_confine {
	struct sock_filter steps[UM_FILTER_MAX];
	unsigned short count;
} um_confine;

static inline void um_step(unsigned short code, unsigned int value, int jump_false)
{
	um_confine.steps[um_confine.count++] = (struct sock_filter) {
		.code = code, .k = value, .jf = jump_false,
	};
}

static inline void um_load(size_t offset)
{
	um_step(BPF_LD | BPF_W | BPF_ABS, offset, 0);
}

/* Continues if the loaded word is @value, else skips @steps. */
static inline void um_unless(unsigned int value, int steps)
{
	um_step(BPF_JMP | BPF_JEQ | BPF_K, value, steps);
}

static inline void um_end(unsigned int action)
{
	um_step(BPF_RET | BPF_K, action, 0);
}

/* Compares half an argument with the rule; skips @steps on a mismatch. */
static inline void um_half(const struct um_rule *rule, int half, int steps)
{
	um_load(offsetof(struct seccomp_data, args[rule->argument]) + 4 * half);
	um_step(BPF_ALU | BPF_AND | BPF_K, rule->mask >> 32 * half, 0);
	um_unless(rule->value >> 32 * half, steps);
}

static inline void um_confine_make(void)
{
	const unsigned int refuse = SECCOMP_RET_ERRNO | EPERM;
	size_t i;

	um_confine.count = 0;
	um_load(offsetof(struct seccomp_data, arch));
	um_unless(AUDIT_ARCH_X86_64, 1);
	um_step(BPF_JMP | BPF_JA, 1, 0);
	um_end(refuse);
	um_load(offsetof(struct seccomp_data, nr));
	for (i = 0; i < UM_COUNT(um_calls); i++) {
		um_unless(um_calls[i], 1);
		um_end(SECCOMP_RET_ALLOW);
	}
	for (i = 0; i < UM_COUNT(um_rules); i++) {
		um_unless(um_rules[i].call, 8);
		um_half(&um_rules[i], 0, 4);
		um_half(&um_rules[i], 1, 1);
		um_end(SECCOMP_RET_ALLOW);
		um_end(refuse);
	}
	um_end(refuse);
}

/* Returns 0 or -errno. */
static inline int um_confine_files(int ruleset)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    syscall(__NR_landlock_restrict_self, ruleset, 0) < 0)
		return -errno;
	return 0;
}

/* Returns 0 or -errno. */
static inline int um_confine_calls(void)
{
	struct sock_fprog program = { .filter = um_confine.steps };

	um_confine_make();
	program.len = um_confine.count;
	/* SPEC_ALLOW: older hosts would disable speculation otherwise. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) < 0)
		return -errno;
	return 0;
}

#endif
