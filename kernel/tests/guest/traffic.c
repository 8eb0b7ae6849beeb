// SPDX-License-Identifier: GPL-2.0-only
/*
 * Traffic generators of the guest tests, in C because Python is too slow.
 * Called through ctypes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH 1024

uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

void sleep_until_ns(uint64_t ns)
{
	struct timespec time = { ns / 1000000000, ns % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
		;
}

/* Sends @count packets of @bytes on a connected socket; returns the number sent. */
long blast(int fd, long count, size_t bytes)
{
	struct mmsghdr messages[BATCH] = {};
	struct iovec part = { calloc(1, bytes), bytes };
	long sent = 0;
	int i;

	for (i = 0; i < BATCH; i++) {
		messages[i].msg_hdr.msg_iov = &part;
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	while (sent < count) {
		i = sendmmsg(fd, messages, count - sent < BATCH ? count - sent : BATCH, 0);
		if (i < 0)
			break;
		sent += i;
	}
	free(part.iov_base);
	return sent;
}

/*
 * Sends @rounds bursts of @burst packets on every socket, one burst per
 * @pause_ns; returns the number sent.
 */
long scatter(const int *fds, int sockets, int rounds, int burst, size_t bytes, uint64_t pause_ns)
{
	struct mmsghdr messages[BATCH] = {};
	struct iovec part = { calloc(1, bytes), bytes };
	long sent = 0;
	int i, round;

	for (i = 0; i < burst; i++) {
		messages[i].msg_hdr.msg_iov = &part;
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	for (round = 0; round < rounds; round++) {
		uint64_t begin = now_ns();

		for (i = 0; i < sockets; i++) {
			int part_sent = sendmmsg(fds[i], messages, burst, MSG_DONTWAIT);

			sent += part_sent > 0 ? part_sent : 0;
		}
		sleep_until_ns(begin + pause_ns);
	}
	free(part.iov_base);
	return sent;
}

/* Sends @total bytes on a stream socket, @chunk at a time; returns the number sent. */
long pour(int fd, long total, size_t chunk)
{
	char *buffer = calloc(1, chunk);
	long sent = 0;

	while (sent < total) {
		size_t rest = total - sent;
		ssize_t part = send(fd, buffer, rest < chunk ? rest : chunk, 0);

		if (part < 0)
			break;
		sent += part;
	}
	free(buffer);
	return sent;
}

/*
 * Receives @total bytes, or until the end of the stream. SO_RCVLOWAT limits
 * wakeups to large chunks, which saves switches between guest and kernel.
 */
long drain(int fd, long total, size_t chunk)
{
	char *buffer = malloc(chunk);
	long received = 0;

	while (received < total) {
		size_t rest = total - received;
		int low = rest < chunk / 4 ? rest : chunk / 4;
		ssize_t part;

		/* fewer bytes than the mark would never wake the reader */
		setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low));
		part = recv(fd, buffer, rest < chunk ? rest : chunk, 0);

		if (part <= 0)
			break;
		received += part;
	}
	free(buffer);
	return received;
}

/*
 * Sends @count requests, each after the reply to the previous one; returns the
 * sum of the round-trip times, or 0 on error.
 */
uint64_t ping(int fd, long count, size_t bytes)
{
	char *buffer = calloc(1, bytes);
	uint64_t begin = now_ns();
	long i;

	for (i = 0; i < count; i++) {
		if (send(fd, buffer, bytes, 0) < 0 || recv(fd, buffer, bytes, 0) < 0)
			break;
	}
	free(buffer);
	return i == count ? now_ns() - begin : 0;
}

void echo(int fd, long count, size_t bytes)
{
	char *buffer = malloc(bytes);
	struct sockaddr_in from;
	socklen_t length;
	long i;

	for (i = 0; i < count; i++) {
		length = sizeof(from);
		if (recvfrom(fd, buffer, bytes, 0, (struct sockaddr *)&from, &length) < 0)
			break;
		sendto(fd, buffer, bytes, 0, (struct sockaddr *)&from, length);
	}
	free(buffer);
}
