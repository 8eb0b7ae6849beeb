// SPDX-License-Identifier: Apache-2.0
/* Creates, replaces and ends tasks while other tasks of their address space run or wait. */
#include "registers.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *program;
static int ends[2];

static void expect(pid_t child, int code)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == code);
}

static void *create_tasks(void *argument)
{
    unsigned long none[6] = {1, 2, 3, 4, 5, 6};
    for (unsigned i = 0; i < 25; i++) {
        unsigned seed = (unsigned)(long)argument * 100 + i;
        pid_t child = (pid_t)checked_call(seed, SYS_fork, none);
        if (child == 0) {
            checked_call(seed + 1, SYS_sched_yield, none);
            _exit((int)(seed & 63));
        }
        expect(child, (int)(seed & 63));
        child = vfork();
        if (child == 0) {
            execl(program, program, "70", (char *)NULL);
            _exit(1);
        }
        expect(child, 70);
        child = vfork();
        if (child == 0) {
            execl("/missing", "missing", (char *)NULL);
            _exit(71);
        }
        expect(child, 71);
    }
    return NULL;
}

static void *wait_forever(void *argument)
{
    char byte;
    (void)argument;
    CHECK(read(ends[0], &byte, 1) == 1);
    return NULL;
}

static void *replace(void *argument)
{
    (void)argument;
    execl(program, program, "72", (char *)NULL);
    return NULL;
}

static void *end_all(void *argument)
{
    (void)argument;
    _exit(73);
}

static void among_waiting_threads(void *(*function)(void *), int code)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            CHECK(!pthread_create(&threads[i], NULL, i < 3 ? wait_forever : function, NULL));
        wait_forever(NULL);
        _exit(1);
    }
    if (function == wait_forever) {
        int status;
        struct timespec nap = {0, 1000000};
        nanosleep(&nap, NULL);
        kill(child, SIGKILL);
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        return;
    }
    expect(child, code);
}

int main(int count, char **arguments)
{
    if (count > 1)
        return atoi(arguments[1]);
    program = "/proc/self/exe";
    CHECK(!pipe(ends));
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        CHECK(!pthread_create(&threads[i], NULL, create_tasks, (void *)i));
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_join(threads[i], NULL));
    for (int i = 0; i < 5; i++) {
        among_waiting_threads(replace, 72);
        among_waiting_threads(end_all, 73);
        among_waiting_threads(wait_forever, 0);
    }
    return 0;
}
