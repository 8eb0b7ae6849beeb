# SPDX-License-Identifier: Apache-2.0
# make demo   sets everything up and runs a small experiment matrix in virtual time
# make test   sets everything up and runs all tests
# make check  the fast part of the tests (no kernel boots)
# make bench  measures (bench/), writes JSON to bench/results/
# make setup  only the set-up: leaves .venv/bin/qbed

QBED := .venv/bin/qbed
PY := .venv/bin/python

.PHONY: setup demo test check lint unit e2e headers bench generate clean

setup:
	@tools/setup

demo: setup
	$(QBED) run labs/dumbbell --profile quick --out runs/demo
	@echo "The report: runs/demo/report.html"

test: check headers e2e

check: setup lint unit

lint:
	tools/lint

unit:
	$(MAKE) -s -C kernel/tests check
	tools/cargo test --quiet --workspace
	$(PY) -m pytest -q orchestrator/tests -n 2

e2e: setup
	$(PY) -m pytest -q tests

# Every qdisc against the stock kernels of Debian 12 and 13.
headers: setup
	kernel/tests/debian-headers

bench: setup
	$(PY) -m bench.run

generate: setup
	$(QBED) reference > docs/lab-file.md
	$(QBED) schema > docs/lab.schema.json

clean:
	rm -rf .venv runs
