// SPDX-License-Identifier: Apache-2.0
/*
 * LD_PRELOAD: fails the n-th system call on files below some folders.
 *
 * FAULT_FILE is a file of struct fault that all processes map. FAULT_TRACE, if set, gets a line for each counted call.
 * Only processes of Python count.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct fault {
	long calls;		/* counted so far */
	long nth;		/* the call that fails, from 1; 0: none */
	int error;		/* errno of the failure */
	int lasting;		/* later calls that need space fail, too */
	char folders[2][256];	/* the files that count are below these */
};

static struct fault *fault;
static int trace = -1;

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void map_fault(void)
{
	const char *file = getenv("FAULT_FILE"), *log = getenv("FAULT_TRACE");
	int fd;

	if (!file || !strstr(program_invocation_short_name, "python"))
		return;
	fd = syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	fault = mmap(NULL, sizeof(*fault), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	syscall(SYS_close, fd);
	if (fault == MAP_FAILED)
		fault = NULL;
	if (log)
		trace = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static bool counts(const char *path)
{
	char whole[4096];

	if (path[0] != '/') {
		if (!getcwd(whole, sizeof(whole)) || strlen(whole) + strlen(path) + 2 > sizeof(whole))
			return false;
		strcat(strcat(whole, "/"), path);
		path = whole;
	}
	for (int i = 0; i < 2; i++) {
		size_t length = strlen(fault->folders[i]);

		if (length && !strncmp(path, fault->folders[i], length) && (!path[length] || path[length] == '/'))
			return true;
	}
	return false;
}

/* Whether this call fails, with errno set. */
static bool fails(const char *call, const char *path, bool space)
{
	char line[4400];
	int saved = errno;
	long number;

	if (!fault || !counts(path)) {
		errno = saved;
		return false;
	}
	number = __sync_add_and_fetch(&fault->calls, 1);
	if (trace >= 0) {
		int length = snprintf(line, sizeof(line), "%ld %s%s %s\n", number, call, space ? "+" : "", path);

		syscall(SYS_write, trace, line, length);
	}
	errno = saved;
	if (!fault->nth || number < fault->nth || (number > fault->nth && !(fault->lasting && space)))
		return false;
	errno = fault->error;
	return true;
}

static bool fd_fails(const char *call, int fd, bool space)
{
	char link[64], path[4096];
	ssize_t length;
	int saved = errno;

	if (!fault)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof(path) - 1);
	errno = saved;
	if (length <= 0 || path[0] != '/')
		return false;
	path[length] = 0;
	return fails(call, path, space);
}

#define OPEN(name)                                                                      \
	int name(const char *path, int flags, ...)                                      \
	{                                                                               \
		va_list list;                                                           \
		mode_t mode;                                                            \
		va_start(list, flags);                                                  \
		mode = va_arg(list, mode_t);                                            \
		va_end(list);                                                           \
		return fails("open", path, flags & O_CREAT) ? -1 : NEXT(name)(path, flags, mode); \
	}
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                    \
	int name(int at, const char *path, int flags, ...)                              \
	{                                                                               \
		va_list list;                                                           \
		mode_t mode;                                                            \
		va_start(list, flags);                                                  \
		mode = va_arg(list, mode_t);                                            \
		va_end(list);                                                           \
		return fails("open", path, flags & O_CREAT) ? -1 : NEXT(name)(at, path, flags, mode); \
	}
OPENAT(openat)
OPENAT(openat64)

#define ON_FD(name, space, type, declared, passed)                                      \
	type name declared                                                              \
	{                                                                               \
		return fd_fails(#name, fd, space) ? -1 : NEXT(name) passed;             \
	}
ON_FD(read, false, ssize_t, (int fd, void *to, size_t length), (fd, to, length))
ON_FD(pread, false, ssize_t, (int fd, void *to, size_t length, off_t at), (fd, to, length, at))
ON_FD(pread64, false, ssize_t, (int fd, void *to, size_t length, off64_t at), (fd, to, length, at))
ON_FD(write, true, ssize_t, (int fd, const void *from, size_t length), (fd, from, length))
ON_FD(pwrite, true, ssize_t, (int fd, const void *from, size_t length, off_t at), (fd, from, length, at))
ON_FD(pwrite64, true, ssize_t, (int fd, const void *from, size_t length, off64_t at), (fd, from, length, at))
ON_FD(writev, true, ssize_t, (int fd, const struct iovec *parts, int count), (fd, parts, count))
ON_FD(ftruncate, true, int, (int fd, off_t length), (fd, length))
ON_FD(ftruncate64, true, int, (int fd, off64_t length), (fd, length))
ON_FD(fsync, true, int, (int fd), (fd))
ON_FD(fdatasync, true, int, (int fd), (fd))

#define ON_PATH(name, space, declared, passed)                                          \
	int name declared                                                               \
	{                                                                               \
		return fails(#name, path, space) ? -1 : NEXT(name) passed;              \
	}
ON_PATH(mkdir, true, (const char *path, mode_t mode), (path, mode))
ON_PATH(rmdir, false, (const char *path), (path))
ON_PATH(unlink, false, (const char *path), (path))
ON_PATH(chmod, false, (const char *path, mode_t mode), (path, mode))
ON_PATH(truncate64, true, (const char *path, off64_t length), (path, length))
ON_PATH(symlink, true, (const char *target, const char *path), (target, path))
ON_PATH(rename, true, (const char *from, const char *path), (from, path))
ON_PATH(link, true, (const char *from, const char *path), (from, path))
