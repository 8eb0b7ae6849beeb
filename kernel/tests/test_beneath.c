// SPDX-License-Identifier: GPL-2.0-only
/* A guest's paths do not lead out of its folder, whatever links another process creates. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "unit.h"
#include "../uml/um_beneath.h"

static char outside[64], buffer[256];

static const char *outside_path(const char *name)
{
	snprintf(buffer, sizeof(buffer), "%s/%s", outside, name);
	return buffer;
}

static int exists(const char *path)
{
	struct stat status;

	return !lstat(path, &status);
}

static int mode_of(const char *path)
{
	struct stat status;

	EXPECT_EQUAL(lstat(path, &status), 0);
	return status.st_mode & 07777;
}

static void close_new(int fd)
{
	EXPECT(fd >= 0);
	close(fd);
}

static void ordinary_files(void)
{
	const char *name;
	int parent;

	EXPECT_EQUAL(um_mkdir("./d", 06777), 0);
	EXPECT_EQUAL(mode_of("d") & 07000, 0);
	close_new(um_open("./d/f", O_CREAT | O_RDWR, 0600));
	close_new(um_open("./d/f", O_RDONLY, 0));
	close_new(um_open("./", O_RDONLY | O_DIRECTORY, 0));
	EXPECT_EQUAL(um_mknod("./d/n", S_IFREG | 06755, 0), 0);
	EXPECT_EQUAL(mode_of("d/n") & 07000, 0);
	EXPECT_EQUAL(um_name("./d/f", "./g", 0, 0), 0);
	EXPECT_EQUAL(um_name("./g", "./d/h", 1, 0), 0);
	EXPECT(exists("g") && exists("d/h") && !exists("d/f"));
	EXPECT_EQUAL(um_name("./g", "./d/h", 0, RENAME_NOREPLACE), -EEXIST);
	parent = um_parent("./d/h", &name);
	EXPECT(parent >= 0 && !strcmp(name, "h"));
	close(parent);
	parent = um_parent("./", &name);
	EXPECT(parent >= 0 && !strcmp(name, "./"));
	close(parent);
	EXPECT_EQUAL(um_unlink("./g", 0), 0);
	EXPECT_EQUAL(um_unlink("./d/h", 0), 0);
	EXPECT_EQUAL(um_unlink("./d/n", 0), 0);
	EXPECT_EQUAL(um_unlink("./d", AT_REMOVEDIR), 0);
	EXPECT_EQUAL(um_open("./d/f", O_RDONLY, 0), -ENOENT);
}

static void foreign_symlinks_are_not_followed(void)
{
	const char *name;

	EXPECT_EQUAL(symlink(outside, "d"), 0);
	EXPECT_EQUAL(symlink(outside_path("secret"), "s"), 0);
	EXPECT_EQUAL(um_open("./d/evil", O_CREAT | O_RDWR, 0600), -ELOOP);
	EXPECT_EQUAL(um_open("./d/secret", O_RDONLY, 0), -ELOOP);
	EXPECT_EQUAL(um_open("./s", O_RDWR, 0), -ELOOP);
	EXPECT_EQUAL(um_parent("./d/secret", &name), -ELOOP);
	EXPECT_EQUAL(um_mkdir("./d/evil", 0700), -ELOOP);
	EXPECT_EQUAL(um_mknod("./d/evil", S_IFREG | 0600, 0), -ELOOP);
	EXPECT_EQUAL(um_unlink("./d/secret", 0), -ELOOP);
	EXPECT_EQUAL(um_name("./d/secret", "./mine", 0, 0), -ELOOP);
	EXPECT_EQUAL(um_name("./d/secret", "./mine", 1, 0), -ELOOP);
	/* nor is it moved to where a reader of results would follow it */
	EXPECT_EQUAL(um_name("./s", "./out", 0, 0), -EPERM);
	EXPECT_EQUAL(um_name("./s", "./out", 1, 0), -EPERM);
	EXPECT(exists(outside_path("secret")) && !exists(outside_path("evil")));
	EXPECT_EQUAL(um_unlink("./d", 0), 0);
	EXPECT_EQUAL(um_unlink("./s", 0), 0);
}

static void other_escapes_fail(void)
{
	EXPECT_EQUAL(um_open("./../secret", O_RDONLY, 0), -EXDEV);
	EXPECT_EQUAL(um_open("../secret", O_CREAT | O_RDWR, 0600), -EXDEV);
	EXPECT_EQUAL(um_unlink("./../secret", 0), -EXDEV);
	EXPECT_EQUAL(um_mkdir("./../evil", 0700), -EXDEV);
	EXPECT_EQUAL(um_symlink("./link", "/etc/passwd"), -EPERM);
	EXPECT_EQUAL(um_mknod("./fifo", S_IFIFO | 0600, 0), -EPERM);
	EXPECT_EQUAL(um_mknod("./device", S_IFCHR | 0600, makedev(1, 3)), -EPERM);
	EXPECT_EQUAL(um_mknod("./socket", S_IFSOCK | 0600, 0), -EPERM);
	/* paths of read-only mounts are absolute */
	close_new(um_open(outside_path("secret"), O_RDONLY, 0));
	EXPECT_EQUAL(um_open(outside_path("secret"), O_RDWR, 0), -EROFS);
	EXPECT_EQUAL(um_open(outside_path("evil"), O_CREAT | O_RDWR, 0600), -EROFS);
	EXPECT_EQUAL(um_unlink(outside_path("secret"), 0), -EROFS);
	EXPECT_EQUAL(um_mkdir(outside_path("evil"), 0700), -EROFS);
	EXPECT_EQUAL(um_name(outside_path("secret"), "./mine", 0, 0), -EROFS);
}

int main(void)
{
	char base[] = "/tmp/qbed-beneath-XXXXXX";

	EXPECT(mkdtemp(base));
	snprintf(outside, sizeof(outside), "%s", base);
	EXPECT_EQUAL(chdir(base), 0);
	EXPECT_EQUAL(mkdir("cell", 0700), 0);
	close_new(open("secret", O_CREAT | O_RDWR, 0600));
	EXPECT_EQUAL(um_beneath_start("nowhere"), -ENOENT);
	EXPECT_EQUAL(chdir("cell"), 0);
	EXPECT_EQUAL(um_beneath_start("."), 0);

	ordinary_files();
	foreign_symlinks_are_not_followed();
	other_escapes_fail();

	EXPECT_EQUAL(unlink("../secret"), 0);
	EXPECT_EQUAL(rmdir("../cell"), 0);	/* fails unless it is empty */
	EXPECT_EQUAL(rmdir(base), 0);
	return PASS();
}
