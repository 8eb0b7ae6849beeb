// SPDX-License-Identifier: Apache-2.0
/* System calls that do nothing, for bench/syscalls.py: `getpid COUNT`. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 1;

	while (count-- > 0)
		syscall(SYS_getppid);
	return 0;
}
