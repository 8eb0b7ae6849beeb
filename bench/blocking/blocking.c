// SPDX-License-Identifier: Apache-2.0
/*
 * The peer of bench/agent.py: the plainest way to send bytes by TCP. A thread for each sender and each receiver, which
 * blocks; the receiver discards, with a low-water mark of 64 KB. Sender i is in the network namespace h(i modulo HOSTS + 1), all
 * receivers are in h(HOSTS + 1).
 *
 *     blocking FLOWS HOSTS BYTES ADDRESS
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 7000, BLOCK = 1 << 20, LOW_WATER = 1 << 16, STACK = 1 << 16 };

static long flows, hosts, bytes;
static struct in_addr receiver;
static int listener;
static char block[BLOCK];
static pthread_barrier_t start;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void enter(long host)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/h%ld", host + 1);
	fd = open(path, O_RDONLY);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		fail(path);
	close(fd);
}

static void low_water(int fd, long left)
{
	int low = left < LOW_WATER ? left : LOW_WATER;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)))
		fail("SO_RCVLOWAT");
}

static void *receive(void *unused)
{
	int fd = accept(listener, NULL, NULL);
	long got = 0;

	if (fd < 0)
		fail("accept");
	low_water(fd, bytes);
	while (got < bytes) {
		long n = recv(fd, NULL, 1 << 30, MSG_TRUNC);

		if (n <= 0)
			fail("recv");
		got += n;
		if (bytes - got < LOW_WATER && got < bytes)
			low_water(fd, bytes - got);
	}
	close(fd);
	return unused;
}

static void *transmit(void *number)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr = receiver};
	long left = bytes;
	char last;
	int fd;

	enter((long)number % hosts);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	pthread_barrier_wait(&start);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		fail("connect");
	while (left) {
		long n = write(fd, block, left < BLOCK ? left : BLOCK);

		if (n <= 0)
			fail("write");
		left -= n;
	}
	if (read(fd, &last, 1))
		fail("read");
	close(fd);
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	pthread_attr_t small;
	pthread_t *threads;

	if (argc != 5 || !inet_aton(argv[4], &receiver))
		return 2;
	flows = atol(argv[1]);
	hosts = atol(argv[2]);
	bytes = atol(argv[3]);
	threads = calloc(2 * flows, sizeof(*threads));
	enter(hosts);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 4096))
		fail("listen");
	pthread_barrier_init(&start, NULL, flows);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK);
	for (long i = 0; i < 2 * flows; i++)
		if (pthread_create(&threads[i], &small, i < flows ? receive : transmit, (void *)(i - flows)))
			fail("pthread_create");
	for (long i = 0; i < 2 * flows; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
