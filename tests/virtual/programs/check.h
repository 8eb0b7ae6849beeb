/* SPDX-License-Identifier: Apache-2.0 */
/* A program of the tests ends with 0, or says what does not hold. */
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
