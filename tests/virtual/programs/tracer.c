// SPDX-License-Identifier: Apache-2.0
/* A tracer reads and changes all registers of a task within, before and after system calls, and by single steps. */
#include "registers.h"

#include <signal.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct user_regs_struct registers_of(pid_t child)
{
    struct user_regs_struct found;
    CHECK(!ptrace(PTRACE_GETREGS, child, 0, &found));
    return found;
}

static struct user_fpregs_struct vectors_of(pid_t child)
{
    struct user_fpregs_struct found;
    CHECK(!ptrace(PTRACE_GETFPREGS, child, 0, &found));
    return found;
}

static int stopped(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, __WALL) == child && WIFSTOPPED(status));
    return WSTOPSIG(status);
}

static void check_all(pid_t child, const struct registers *wanted)
{
    struct user_regs_struct general = registers_of(child);
    struct user_fpregs_struct vectors = vectors_of(child);
    CHECK(general.rbx == wanted->general[0] && general.rbp == wanted->general[1]);
    CHECK(general.r12 == wanted->general[2] && general.r15 == wanted->general[5]);
    CHECK(general.rdi == wanted->general[6] && general.r9 == wanted->general[11]);
    CHECK(labs((long)general.rsp - (long)__builtin_frame_address(0)) < 16384); /* fork() copies the stack */
    for (int i = 0; i < 16; i++)
        CHECK(!memcmp(&vectors.xmm_space[4 * i], wanted->vector[i], 16));
}

static void traced(int ends[2])
{
    unsigned long none[6] = {1, 2, 3, 4, 5, 6};
    char byte;
    unsigned long read_arguments[6] = {(unsigned long)ends[0], (unsigned long)&byte, 1, 4, 5, 6};
    checked_call(1, SYS_getpid, none); /* not traced yet */
    CHECK(!ptrace(PTRACE_TRACEME, 0, 0, 0));
    raise(SIGSTOP);
    CHECK(checked_call(21, SYS_getppid, none) == 12345); /* the tracer's result */
    for (int i = 0; i < 10; i++)
        CHECK(checked_call(22, SYS_getpid, none) == getpid());
    CHECK(checked_call(23, SYS_read, read_arguments) == 1); /* the tracer attaches during this call */
    CHECK(checked_call(24, SYS_getpid, none) == getpid());
    _exit(5);
}

int main(void)
{
    int ends[2], status;
    CHECK(!pipe(ends));
    pid_t child = fork();
    if (child == 0)
        traced(ends);
    CHECK(stopped(child) == SIGSTOP);
    CHECK(!ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD));

    struct registers wanted;
    unsigned long none[6] = {1, 2, 3, 4, 5, 6};
    do { /* up to the first getppid */
        CHECK(!ptrace(PTRACE_SYSCALL, child, 0, 0));
        CHECK(stopped(child) == (SIGTRAP | 0x80));
    } while (registers_of(child).orig_rax != SYS_getppid);
    fill_registers(&wanted, 21);
    memcpy(&wanted.general[6], none, sizeof(none));
    check_all(child, &wanted);
    CHECK(!ptrace(PTRACE_SYSCALL, child, 0, 0));
    CHECK(stopped(child) == (SIGTRAP | 0x80));
    check_all(child, &wanted);
    CHECK(registers_of(child).rax == (unsigned long)getpid());
    CHECK(!ptrace(PTRACE_POKEUSER, child, offsetof(struct user_regs_struct, rax), 12345));

    for (int i = 0; i < 2000; i++) {
        CHECK(!ptrace(PTRACE_SINGLESTEP, child, 0, 0));
        CHECK(stopped(child) == SIGTRAP);
    }
    CHECK(!ptrace(PTRACE_DETACH, child, 0, 0));

    struct timespec nap = {0, 10000000};
    nanosleep(&nap, NULL); /* the child waits in read, without a tracer */
    CHECK(!ptrace(PTRACE_ATTACH, child, 0, 0));
    CHECK(stopped(child) == SIGSTOP);
    struct user_regs_struct attached = registers_of(child);
    fill_registers(&wanted, 23);
    CHECK(attached.rbx == wanted.general[0] && attached.r15 == wanted.general[5] && attached.rdx == 1);
    CHECK(!ptrace(PTRACE_DETACH, child, 0, 0));
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    return 0;
}
