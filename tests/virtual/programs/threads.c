// SPDX-License-Identifier: Apache-2.0
/* Threads of an address space, which share a process of the host, keep separate registers in any schedule. */
#include "registers.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 400, HANDOVERS = 4000 };

static int ring, turn, started;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

/* System calls that wait (another thread runs then), that do not wait, and that map memory. */
static void *caller(void *argument)
{
    unsigned self = (unsigned)(long)argument;
    struct timespec nap = {0, 20000};
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned seed = self * 1000003u + i;
        unsigned long none[6] = {1, 2, 3, 4, 5, 6};
        unsigned long sleep[6] = {(unsigned long)&nap, 0, 11, 12, 13, 14};
        unsigned long wait[6] = {(unsigned long)&ring, FUTEX_WAIT_PRIVATE, (unsigned long)(ring + 1), 0, 0, 0};
        CHECK(checked_call(seed, SYS_getpid, none) == getpid());
        CHECK(checked_call(seed + 1, SYS_sched_yield, none) == 0);
        CHECK(checked_call(seed + 2, 4000, none) == -ENOSYS);
        CHECK(checked_call(seed + 3, SYS_futex, wait) == -EAGAIN);
        if (i % 8 == 0)
            CHECK(checked_call(seed + 4, SYS_nanosleep, sleep) == 0);
        if (i % 16 == 0) {
            unsigned long map[6] = {0, 8192, 3, 0x22, (unsigned long)-1, 0};
            char *memory = (char *)checked_call(seed + 5, SYS_mmap, map);
            CHECK(memory[4096] == 0);
            unsigned long unmap[6] = {(unsigned long)memory, 8192, 0, 0, 0, 0};
            CHECK(checked_call(seed + 6, SYS_munmap, unmap) == 0);
        }
    }
    return NULL;
}

/* A token circulates by a condition variable, so a different thread waits each time. */
static void *runner(void *argument)
{
    int self = (int)(long)argument;
    pthread_mutex_lock(&lock);
    while (turn < HANDOVERS) {
        if (turn % THREADS != self) {
            pthread_cond_wait(&moved, &lock);
            continue;
        }
        turn++;
        pthread_cond_broadcast(&moved);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *short_lived(void *argument)
{
    __atomic_add_fetch(&started, 1, __ATOMIC_RELAXED);
    return argument;
}

/* Computing code is preempted at any instruction. */
static void *computer(void *argument)
{
    unsigned long none[6] = {1, 2, 3, 4, 5, 6};
    checked_call((unsigned)(long)argument, -1500000000L, none);
    return NULL;
}

static void run(void *(*function)(void *), int count)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < count; i++)
        CHECK(!pthread_create(&threads[i], NULL, function, (void *)i));
    for (int i = 0; i < count; i++)
        CHECK(!pthread_join(threads[i], NULL));
}

int main(int count, char **arguments)
{
    (void)arguments;
    run(caller, 2);
    run(caller, THREADS);
    run(runner, THREADS);
    CHECK(turn == HANDOVERS);
    for (int i = 0; i < 50; i++)
        run(short_lived, THREADS);
    CHECK(started == 50 * THREADS);
    if (count == 1) /* with an argument, the part that depends on the host's clock is skipped */
        run(computer, 2);
    return 0;
}
