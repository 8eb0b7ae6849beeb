// SPDX-License-Identifier: Apache-2.0
/*
 * Threads, signal handlers and child processes fill all vector registers of the CPU, and check their values after
 * other tasks have run (test_vector_registers.py): `registers xmm|ymm|zmm|widest [ITERATIONS]`
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, TURNS = 300, BYTES = 32 * 64, PAGE = 4096 };

static volatile sig_atomic_t handled;
static long iterations;

#define FIRST(m) m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7) m(8) m(9) m(10) m(11) m(12) m(13) m(14) m(15)
#define REST(m) m(16) m(17) m(18) m(19) m(20) m(21) m(22) m(23) m(24) m(25) m(26) m(27) m(28) m(29) m(30) m(31)

#define LOAD_XMM(i) "movdqu " #i "*64(%[in]), %%xmm" #i "\n"
#define STORE_XMM(i) "movdqu %%xmm" #i ", " #i "*64(%[out])\n"
#define LOAD_YMM(i) "vmovdqu " #i "*64(%[in]), %%ymm" #i "\n"
#define STORE_YMM(i) "vmovdqu %%ymm" #i ", " #i "*64(%[out])\n"
#define LOAD_ZMM(i) "vmovdqu64 " #i "*64(%[in]), %%zmm" #i "\n"
#define STORE_ZMM(i) "vmovdqu64 %%zmm" #i ", " #i "*64(%[out])\n"

/* Between filling and checking the registers: a system call, a first write to a page, or neither. */
#define BETWEEN \
	"cmpq $-1, %%rax\n" \
	"je 1f\n" \
	"syscall\n" \
	"1: movb $1, (%[page])\n" \
	"movq %[spin], %%rcx\n" \
	"2: subq $1, %%rcx\n" \
	"jns 2b\n"

#define HOLD(name, load, store) \
static long hold_##name(const void *in, void *out, long number, long argument, void *page, long spin) \
{ \
	register long rax asm("rax") = number; \
	register long rdi asm("rdi") = argument; \
	asm volatile(load BETWEEN store \
		     : "+r"(rax), "+r"(rdi) \
		     : [in] "r"(in), [out] "r"(out), [page] "r"(page), [spin] "r"(spin), "S"(number == SYS_kill ? (long)SIGSTOP : 0L), "d"(0L) \
		     : "rcx", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", \
		       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"); \
	return rax; \
}

HOLD(xmm, FIRST(LOAD_XMM), FIRST(STORE_XMM))
HOLD(ymm, FIRST(LOAD_YMM), FIRST(STORE_YMM))
HOLD(zmm, FIRST(LOAD_ZMM) REST(LOAD_ZMM), FIRST(STORE_ZMM) REST(STORE_ZMM))

static const struct width {
	const char *name;
	int bytes, registers;
	long (*hold)(const void *, void *, long, long, void *, long);
} widths[] = {
	{ "xmm", 16, 16, hold_xmm },
	{ "ymm", 32, 16, hold_ymm },
	{ "zmm", 64, 32, hold_zmm },
};
static const struct width *width;

static void fail(const char *step)
{
	printf("%s: the registers changed\n", step);
	exit(1);
}

static void fill(unsigned char *bytes, unsigned seed)
{
	for (int i = 0; i < BYTES; i++)
		bytes[i] = (seed = seed * 1103515245u + 12345u) >> 16;
}

static long check_held(const char *step, unsigned seed, long number, long argument, void *page, long spin)
{
	unsigned char in[BYTES], out[BYTES];
	char dummy;
	long result;

	fill(in, seed);
	memset(out, 0, sizeof(out));
	result = width->hold(in, out, number, argument, page ? page : &dummy, spin);
	for (int i = 0; i < width->registers; i++)
		if (memcmp(in + 64 * i, out + 64 * i, width->bytes))
			fail(step);
	return result;
}

static void *thread(void *number)
{
	unsigned seed = (uintptr_t)number * 7919;
	char *fresh = mmap(NULL, TURNS * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int turn = 0; turn < TURNS; turn++) {
		check_held("thread, sched_yield", seed++, SYS_sched_yield, 0, NULL, 0);
		check_held("thread, page fault", seed++, -1, 0, fresh + turn * PAGE, 0);
		check_held("thread, both", seed++, SYS_getppid, 0, NULL, 100);
	}
	/* long enough to be preempted by the other threads */
	check_held("thread, spinning", seed, -1, 0, NULL, iterations);
	return NULL;
}

static void on_signal(int number)
{
	(void)number;
	check_held("handler", 4711, SYS_getppid, 0, NULL, 0);
	handled++;
}

static void signals(void)
{
	struct itimerval timer = { { 0, 100 }, { 0, 100 } };
	struct timespec pause = { 0, 300000 };

	signal(SIGALRM, on_signal);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (int turn = 0; turn < TURNS; turn++)
		check_held("signal in nanosleep", turn, SYS_nanosleep, (long)&pause, NULL, 0);
	memset(&timer, 0, sizeof(timer));
	setitimer(ITIMER_REAL, &timer, NULL);
	if (handled < TURNS)
		fail("too few signals");
	signal(SIGUSR1, on_signal);
	for (int turn = 0; turn < TURNS; turn++)
		if (check_held("signal to itself", turn, SYS_getppid, 0, NULL, 0), raise(SIGUSR1))
			fail("raise");
}

/* Until execl(), parent and child share an address space, and the parent waits. */
static pid_t other_program(void)
{
	pid_t child = vfork();

	if (!child) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	return child;
}

static void children(void)
{
	int status;

	for (int turn = 0; turn < 20; turn++) {
		/* parent and child return with the registers of the parent */
		pid_t child = check_held("fork", turn, SYS_fork, 0, NULL, 0);

		if (!child) {
			check_held("child", turn + 1000, SYS_sched_yield, 0, NULL, 0);
			_exit(0);
		}
		check_held("parent", turn + 2000, SYS_sched_yield, 0, NULL, 0);
		if (waitpid(child, &status, 0) != child || status)
			exit(1);
		child = other_program();
		check_held("after vfork", turn + 3000, SYS_getppid, 0, NULL, 0);
		if (waitpid(child, &status, 0) != child || status)
			exit(1);
	}
}

/* A tracer reads and changes the registers of a stopped process. */
static void traced(void)
{
	struct user_fpregs_struct seen;
	unsigned char in[BYTES], out[BYTES];
	char dummy;
	pid_t child = fork();
	int status;

	if (!child) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		fill(in, 99);
		hold_xmm(in, out, SYS_kill, getpid(), &dummy, 0);
		for (int i = 0; i < 16; i++)
			for (int byte = 0; byte < 16; byte++)
				if (out[64 * i + byte] != 0x5a)
					_exit(1);
		_exit(0);
	}
	waitpid(child, &status, 0);
	if (!WIFSTOPPED(status) || ptrace(PTRACE_GETFPREGS, child, NULL, &seen))
		exit(1);
	memset(seen.xmm_space, 0x5a, sizeof(seen.xmm_space));
	if (ptrace(PTRACE_SETFPREGS, child, NULL, &seen))
		exit(1);
	memset(&seen, 0, sizeof(seen));
	if (ptrace(PTRACE_GETFPREGS, child, NULL, &seen) || ((unsigned char *)seen.xmm_space)[77] != 0x5a)
		fail("ptrace");
	ptrace(PTRACE_CONT, child, NULL, NULL);
	waitpid(child, &status, 0);
	if (status)
		fail("ptrace, in the child");
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	const char *wanted = argc > 1 ? argv[1] : "widest";

	iterations = argc > 2 ? atol(argv[2]) : 0;
	for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++) {
		if ((i == 1 && !__builtin_cpu_supports("avx2")) || (i == 2 && !__builtin_cpu_supports("avx512f")))
			break;
		if (!strcmp(wanted, widths[i].name) || !strcmp(wanted, "widest"))
			width = &widths[i];
	}
	if (!width) {
		printf("this CPU has no %s\n", wanted);
		return 0;
	}
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, thread, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	signals();
	children();
	traced();
	printf("%s: kept\n", width->name);
	return 0;
}
