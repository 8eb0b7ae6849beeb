/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Paths in the only host folder that a guest may write to: the confining part
 * of fs/hostfs/hostfs_user.c, separate so that it can be tested without a
 * kernel (kernel/tests/test_beneath.c).
 *
 * A relative path is resolved by the host from a descriptor of that folder:
 * "..", symbolic links and folders replaced by another process do not lead out.
 * An absolute path belongs to a read-only mount.
 *
 * Readers of a guest's results expect files and folders, so a guest can create
 * nothing else there: no symbolic link (nor move one that the host created), no
 * FIFO that would block a reader, no device, no program that runs as its owner.
 *
 * All functions return -errno. Without um_beneath_start() nothing is confined.
 */
#ifndef _UM_BENEATH_H
#define _UM_BENEATH_H

#define UM_BENEATH_MODES 01777		/* neither set-user-ID nor set-group-ID */

static int um_beneath = -1;		/* the folder */

static int um_beneath_start(const char *folder)
{
	struct open_how how = { .flags = O_PATH, .resolve = RESOLVE_BENEATH };
	int probe;

	um_beneath = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (um_beneath < 0)
		return -errno;
	/* Linux 5.6; an old sandbox may block it */
	probe = syscall(SYS_openat2, um_beneath, ".", &how, sizeof(how));
	if (probe < 0)
		return -errno;
	close(probe);
	return 0;
}

static int um_is_beneath(const char *path)
{
	return um_beneath >= 0 && *path != '/';
}

static int um_open(const char *path, int flags, int mode)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.mode = mode,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	int fd;

	if (um_beneath >= 0 && *path == '/' && (flags & (O_ACCMODE | O_CREAT | O_TRUNC)))
		return -EROFS;
	if (um_is_beneath(path))
		fd = syscall(SYS_openat2, um_beneath, path, &how, sizeof(how));
	else
		fd = open(path, flags | O_CLOEXEC, mode);
	return fd < 0 ? -errno : fd;
}

/*
 * Opens the parent folder of a path; @name points to the last component.
 * Release it with um_put().
 */
static int um_parent(const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	char *folder;
	int fd;

	*name = path;
	if (!um_is_beneath(path))
		return AT_FDCWD;
	if (!slash || !slash[1])		/* the folder itself: "." or "./" */
		return um_open(".", O_PATH | O_DIRECTORY, 0);
	*name = slash + 1;
	folder = malloc(slash - path + 1);
	if (!folder)
		return -ENOMEM;
	memcpy(folder, path, slash - path);
	folder[slash - path] = '\0';
	fd = um_open(folder, O_PATH | O_DIRECTORY, 0);
	free(folder);
	return fd;
}

/* Opens the parent folder for an operation that modifies it. */
static int um_parent_rw(const char *path, const char **name)
{
	if (um_beneath >= 0 && !um_is_beneath(path))
		return -EROFS;
	return um_parent(path, name);
}

static int um_failed(int parent)
{
	return parent < 0 && parent != AT_FDCWD;
}

/* Closes a parent and returns the result of a system call in it. */
static int um_put(int parent, int result)
{
	int error = result < 0 ? -errno : result;

	if (parent >= 0)
		close(parent);
	return error;
}

static int um_is_link(int parent, const char *name)
{
	struct stat status;

	return um_beneath >= 0 &&
	       !fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) &&
	       S_ISLNK(status.st_mode);
}

static int um_unlink(const char *path, int flags)
{
	const char *name;
	int parent = um_parent_rw(path, &name);

	return um_failed(parent) ? parent : um_put(parent, unlinkat(parent, name, flags));
}

static int um_mkdir(const char *path, int mode)
{
	const char *name;
	int parent = um_parent_rw(path, &name);

	if (um_beneath >= 0)
		mode &= UM_BENEATH_MODES;
	return um_failed(parent) ? parent : um_put(parent, mkdirat(parent, name, mode));
}

static int um_symlink(const char *path, const char *to)
{
	if (um_beneath >= 0)
		return -EPERM;
	return um_put(-1, symlink(to, path));
}

static int um_mknod(const char *path, int mode, dev_t device)
{
	const char *name;
	int parent = um_parent_rw(path, &name);

	if (um_failed(parent))
		return parent;
	if (um_beneath >= 0 && (mode & S_IFMT) && !S_ISREG(mode)) {
		errno = EPERM;
		return um_put(parent, -1);
	}
	if (um_beneath >= 0)
		mode &= S_IFMT | UM_BENEATH_MODES;
	return um_put(parent, mknodat(parent, name, mode, device));
}

/* Renames a file, or links it (@link). */
static int um_name(const char *from, const char *to, int link, unsigned int flags)
{
	const char *old, *new;
	int source, target, result = -1;

	source = um_parent_rw(from, &old);
	if (um_failed(source))
		return source;
	target = um_parent_rw(to, &new);
	if (um_failed(target)) {
		um_put(source, 0);
		return target;
	}
	if (um_is_link(source, old))
		errno = EPERM;
	else if (link)
		result = linkat(source, old, target, new, 0);
	else
		result = syscall(SYS_renameat2, source, old, target, new, flags);
	result = um_put(target, result);
	um_put(source, 0);
	return result;
}

#endif
