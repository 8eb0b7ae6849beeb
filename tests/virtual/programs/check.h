/* SPDX-License-Identifier: Apache-2.0 */
/* CHECK() ends the program with status 1 and prints the condition if it does not hold. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                            \
    do {                                                                                            \
        if (!(condition)) {                                                                         \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);       \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)
