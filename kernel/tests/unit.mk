# SPDX-License-Identifier: GPL-2.0-only
# Unit tests in user space: every test_*.c of the including folder. A scheme's
# tests/Makefile sets TESTS_HERE to this folder and includes this file.

CC ?= cc
CFLAGS := -std=gnu11 -g -O1 -Wall -Wextra -Wno-missing-field-initializers -Werror \
	-fsanitize=address,undefined -fno-sanitize-recover=all \
	-I.. -I$(TESTS_HERE) -I$(TESTS_HERE)/../modules
OUT ?= /tmp/qbed-unit-$(shell id -u)
TESTS := $(patsubst %.c,%,$(wildcard test_*.c))

check: $(TESTS:%=run-%)

run-%: $(OUT)/%
	$<

$(OUT)/%: %.c $(wildcard ../*.h $(TESTS_HERE)/*.h $(TESTS_HERE)/../modules/*.h $(TESTS_HERE)/../uml/*.h)
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) -o $@ $<

.PHONY: check
.SECONDARY:
