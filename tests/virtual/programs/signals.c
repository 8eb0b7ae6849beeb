// SPDX-License-Identifier: Apache-2.0
/* Signals interrupt waiting and finished system calls and code without system calls; all registers are preserved. */
#include "registers.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t handled;
static void *handler_stack;
static sigjmp_buf out_of_fault;
static int pipe_in;

static void handler(int number)
{
    unsigned long none[6] = {6, 5, 4, 3, 2, 1};
    (void)number;
    handler_stack = __builtin_frame_address(0);
    checked_call(99, SYS_getpid, none); /* overwrites all registers of the interrupted code */
    if (++handled == 3)
        CHECK(write(pipe_in, "x", 1) == 1);
}

static void fault(int number)
{
    siglongjmp(out_of_fault, number);
}

static void on(int number, void (*function)(int), int flags)
{
    struct sigaction action = {.sa_handler = function, .sa_flags = flags};
    CHECK(!sigaction(number, &action, NULL));
}

static void alarms(long first_us, long next_us)
{
    struct itimerval timer = {{0, next_us}, {0, first_us}};
    CHECK(!setitimer(ITIMER_REAL, &timer, NULL));
}

static long now_us(void)
{
    struct timespec now;
    CHECK(!clock_gettime(CLOCK_MONOTONIC, &now));
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int main(void)
{
    int ends[2];
    char byte;
    CHECK(!pipe(ends));
    pipe_in = ends[1];
    unsigned long read_arguments[6] = {(unsigned long)ends[0], (unsigned long)&byte, 1, 4, 5, 6};
    unsigned long none[6] = {1, 2, 3, 4, 5, 6};

    /* a waiting read returns EINTR, or is restarted with SA_RESTART until the third handler writes to the pipe */
    on(SIGALRM, handler, 0);
    alarms(1000, 0);
    CHECK(checked_call(1, SYS_read, read_arguments) == -EINTR && handled == 1);
    on(SIGALRM, handler, SA_RESTART);
    alarms(1000, 1000);
    CHECK(checked_call(2, SYS_read, read_arguments) == 1 && handled >= 3 && byte == 'x');
    alarms(0, 0);

    /* a signal that the call sends to its process */
    handled = 10;
    unsigned long kill_arguments[6] = {(unsigned long)getpid(), SIGALRM, 3, 4, 5, 6};
    for (int i = 0; i < 100; i++)
        CHECK(checked_call(3 + (unsigned)i, SYS_kill, kill_arguments) == 0 && handled == 11 + i);

    /* an interrupted nanosleep returns the remaining time; a stopped and continued one sleeps on */
    struct timespec nap = {0, 50000000}, left = {0, 0};
    unsigned long sleep_arguments[6] = {(unsigned long)&nap, (unsigned long)&left, 3, 4, 5, 6};
    alarms(20000, 0);
    CHECK(checked_call(4, SYS_nanosleep, sleep_arguments) == -EINTR);
    CHECK(left.tv_nsec > 25000000 && left.tv_nsec <= 31000000);
    pid_t sleeper = fork();
    CHECK(sleeper >= 0);
    if (sleeper == 0) {
        long start = now_us();
        CHECK(checked_call(5, SYS_nanosleep, sleep_arguments) == 0);
        long took = now_us() - start;
        CHECK(took >= 50000 && took < 55000);
        _exit(7);
    }
    int status;
    usleep(10000);
    kill(sleeper, SIGSTOP);
    CHECK(waitpid(sleeper, &status, WUNTRACED) == sleeper && WIFSTOPPED(status));
    usleep(10000);
    kill(sleeper, SIGCONT);
    CHECK(waitpid(sleeper, &status, 0) == sleeper && WIFEXITED(status) && WEXITSTATUS(status) == 7);

    /* on an alternate stack */
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    CHECK(!sigaltstack(&stack, NULL));
    on(SIGUSR1, handler, SA_ONSTACK);
    kill_arguments[1] = SIGUSR1;
    CHECK(checked_call(6, SYS_kill, kill_arguments) == 0);
    CHECK((char *)handler_stack > (char *)stack.ss_sp && (char *)handler_stack < (char *)stack.ss_sp + stack.ss_size);

    /* sigsuspend and pause wait for a signal */
    sigset_t empty, blocked;
    sigemptyset(&empty);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM);
    CHECK(!sigprocmask(SIG_BLOCK, &blocked, NULL));
    alarms(1000, 0);
    unsigned long suspend[6] = {(unsigned long)&empty, 8, 3, 4, 5, 6};
    int before = handled;
    CHECK(checked_call(7, SYS_rt_sigsuspend, suspend) == -EINTR && handled == before + 1);
    CHECK(!sigprocmask(SIG_UNBLOCK, &blocked, NULL));
    alarms(1000, 0);
    CHECK(checked_call(8, SYS_pause, none) == -EINTR && handled == before + 2);

    /* a long loop without system calls receives its signal */
    alarms(1000, 0);
    checked_call(9, -2000000000L, none);
    CHECK(handled == before + 3);

    /* faults, and invalid addresses of system calls */
    on(SIGSEGV, fault, 0);
    on(SIGFPE, fault, 0);
    char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (volatile int i = 0; i < 10; i++) {
        if (sigsetjmp(out_of_fault, 1) == 0) {
            *(volatile char *)page = 1;
            CHECK(!"unreachable");
        }
        volatile int zero = 0;
        if (sigsetjmp(out_of_fault, 1) == 0) {
            zero = 1000 / zero;
            CHECK(!"unreachable");
        }
        read_arguments[1] = (unsigned long)page;
        CHECK(write(ends[1], "y", 1) == 1);
        CHECK(checked_call(10, SYS_read, read_arguments) == -EFAULT);
    }

    /* a buffer far below the used part of the stack */
    volatile char deep[1 << 20];
    unsigned long zero_arguments[6] = {(unsigned long)ends[0], (unsigned long)deep, 1, 4, 5, 6};
    CHECK(write(ends[1], "z", 1) == 1);
    CHECK(checked_call(11, SYS_read, zero_arguments) == 1);
    return 0;
}
