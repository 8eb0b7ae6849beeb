# SPDX-License-Identifier: Apache-2.0
# make demo   sets everything up and runs a small experiment matrix in virtual time
# make test   sets everything up and runs all tests
# make check  the fast part of the tests (no kernel boots)
# make py     lints Python and runs the orchestrator's tests that a change since the last `make py` affects
# make rust   lints Rust and runs the tests of the crates that a change affects; make c lints C and runs its unit tests
# make coverage       prints the coverage of each Python package, crate and folder of C by their tests (runs/coverage)
# make containers     gives this machine Docker, Containerlab and the images that labs in containers run on
# make images-clean   removes the images
# make test-kernels  tests/virtual on the other kernel series, which it builds once a machine, and tests/kernels; part of make test
# make fuzz SECONDS_EACH=3600  runs each fuzzer for so long (in make test: for seconds); what is found goes to runs/fuzz
# make miri   the P4 engine and its border to the kernel's C under Miri, where rustup has a nightly toolchain (docs/p4.md)
# make test-kills  kills a campaign 200 times at random instants (20 times in make test) and compares what comes of it
# make compose        InfluxDB, Grafana with its dashboards and the orchestrator service (docker-compose.yml)
# make locks  writes what every quick cell of labs/ does into their campaign.lock, after a change that is meant to change it
# make slurm  installs Debian's Slurm, for the tests of qbed run --slurm (they bring it up on this machine, and down again)
# make bench  measures (bench/), writes JSON to bench/results/
# make pictures  writes docs/pictures/page-*.png: the live page with 6, 102 and 1,041 nodes, running and finished
# make p4     compiles the P4 programs of schemes and labs where p4c is installed (docs/p4.md)
# make p4-campaigns  runs the profile `switch` of every campaign that has one: the kernel's switches against those in P4
# make docs   builds the documentation as a site in runs/docs; a broken link fails
# make setup  only the set-up: leaves .venv/bin/qbed
# make wheel  writes dist/qbed-*.whl, which any x86-64 Linux can install with pip; make wheel-test tries it in bare roots of Debian
# make attack       runs every fuzzer and attack for minutes; counts are printed and written to runs/attack; attack-long: an hour
# make audit        known vulnerabilities of the lock files, two equal builds of the wheel, its bill of materials (runs/audit)
# make machine         prepares this machine for containers too, by the playbook (Docker, Containerlab, sysctls)
# make playbooks-test  checks the playbooks and plays them against a container

QBED := .venv/bin/qbed
PY := .venv/bin/python
CORES := $(shell nproc)

# Without bytecode, each process would compile its modules again: pytest (12 s instead of 4 s), Dask's workers, the service.
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup demo py rust c coverage test test-kernels test-kills locks slurm check lint unit e2e e2e-machines e2e-containers headers bench pictures fuzz miri generate p4 p4-campaigns clean containers images images-clean machine playbooks-test \
    wheel wheel-test compose docs papers attack attack-long audit

setup:
	@tools/setup

demo: setup
	$(QBED) run labs/dumbbell --profile quick --out runs/demo --fresh
	@echo "The report: runs/demo/report.html"

# Stages that load one core run side by side. Labs in containers run on the wall clock, alone.
test: slurm check e2e
	@+$(MAKE) --no-print-directory -j2 --output-sync=target headers wheel-test test-kernels e2e-machines
	@+$(MAKE) --no-print-directory e2e-containers

test-kernels: setup
	tools/test-kernels

SECONDS_EACH := 3600

# The last line fuzzes the agent's reading of plans: two tests of 400 cases a second each.
fuzz: setup
	@failed=0; \
	for one in $(wildcard $(addprefix tests/fuzz/,run.py telemetry.py plans.py netlink.py)); do \
	    $(PY) $$one --seconds $(SECONDS_EACH) || failed=1; \
	done; \
	PROPTEST_CASES=$$(($(SECONDS_EACH) * 400)) tools/cargo test --quiet --workspace fuzz || failed=1; \
	exit $$failed

# Counts are printed and written to runs/attack/counts.json, findings beside it.
attack: MINUTES = 5
attack-long: MINUTES = 60
attack: setup
	@tools/programs
	@$(PY) tests/attacks/attack.py --minutes $(MINUTES)

attack-long: setup
	@tools/programs
	@$(PY) tests/attacks/attack.py --long --minutes $(MINUTES)

# One case of each property, since Miri takes some hundred times as long; in a folder of this checkout's own (tools/rustc).
NIGHTLY := nightly
miri:
	@cargo +$(NIGHTLY) miri --version >/dev/null 2>&1 || \
	    { echo "miri: not here: rustup toolchain install nightly-2026-05-20 --component miri,rust-src, then make miri NIGHTLY=nightly-2026-05-20" >&2; exit 1; }
	cache=$${QBED_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/qbed}; \
	export CARGO_TARGET_DIR=$$cache/miri/$$(pwd | cksum | cut -d' ' -f1) MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=1; \
	cargo +$(NIGHTLY) miri test --locked --package qbed-p4kernel --test boundary && \
	cargo +$(NIGHTLY) miri test --locked --package qbed-p4engine --lib --tests

check: setup lint unit

lint:
	tools/lint

# Skipped tests and second tries are listed. tests/second-tries.txt names the tests that may be tried again.
REPORT := -rsR

# Generated documents are compared by tests (test_reference, test_rooms, test_dashboards): `make generate` writes them.
unit: setup
	$(MAKE) -s -j $(CORES) --output-sync=target -C kernel/tests check
	tools/cargo test --quiet --workspace
	$(PY) -m pytest -q orchestrator/tests labs -n 2 $(REPORT)

py: setup
	tools/lint python
	$(PY) -m pytest -q orchestrator/tests labs -n 2 --testmon

# A change in crates/ does not need the agent's release build.
rust: $(QBED)
	tools/lint rust
	tools/test-rust

$(QBED):
	@tools/setup

c: $(QBED)
	tools/lint c
	$(MAKE) -s -j $(CORES) --output-sync=target -C kernel/tests check

coverage: setup
	$(PY) -m pytest -q orchestrator/tests -n 2 --cov=qbed --cov-report=json:runs/coverage/python.json
	tools/coverage-native runs/coverage
	$(PY) tools/coverage runs/coverage

test-kills: setup
	$(PY) tests/e2e/kill_campaign.py --kills 200

# Programs that are otherwise built at their first use are built before the tests, which have bounds in time.
e2e: setup
	@tools/programs
	@tools/browser
	@tools/page-tools >/dev/null || [ $$? = 3 ]
	$(PY) -m pytest -q tests schemes congestion --ignore tests/containers --ignore tests/images --ignore tests/playbooks \
	    --ignore tests/kernels -n 2 --dist worksteal $(REPORT)

# Status 3 says that this machine cannot have Docker; the reason stands there as a skip (.ci/expected-skips).
e2e-machines: TESTS = tests/images tests/playbooks $(REPORT)
e2e-containers: TESTS = tests/containers $(REPORT)
e2e-machines e2e-containers: setup
	@tools/containers --or-skip; case $$? in \
	    0) tools/programs && tools/images && $(PY) -m pytest -q $(TESTS) ;; \
	    3) ;; \
	    *) exit 1 ;; \
	esac

wheel: setup
	@tools/wheel

# Advisories that cannot be had here are a skip (status 3). The second build has another umask and folder of temporary files.
audit: setup
	@mkdir -p runs/audit/tmp
	@$(PY) tools/audit advisories --json runs/audit/advisories.json || [ $$? = 3 ]
	@tools/wheel >/dev/null && mv dist/qbed-*.whl runs/audit/
	@umask 077; TMPDIR=$(CURDIR)/runs/audit/tmp tools/wheel >/dev/null
	@cmp dist/qbed-*.whl runs/audit/$$(basename dist/qbed-*.whl) && echo "audit: two builds of the wheel are equal"
	@for wheel in dist/qbed-*.whl; do $(PY) tools/audit sbom $$wheel >$${wheel%.whl}.cdx.json && echo $${wheel%.whl}.cdx.json; done

# Status 3 says that this machine cannot; the reason stands there as a skip.
wheel-test: wheel
	@tools/wheel-test || [ $$? = 3 ]

# Every qdisc and the transport against the stock kernels of Debian 12 and 13.
headers: setup
	kernel/tests/debian-headers

containers: setup
	tools/containers
	tools/images

images: setup
	@tools/images

images-clean:
	@tools/images --clean

compose: setup
	image=$$(tools/images orchestrator | sed -n 's/^orchestrator //p') && QBED_ORCHESTRATOR_IMAGE=$$image tools/compose up

bench: setup
	$(PY) -m bench.run

pictures: setup
	@tools/browser
	$(PY) -m bench.page_pictures

generate: setup
	$(QBED) reference > docs/.lab-file.md && mv docs/.lab-file.md docs/lab-file.md
	$(QBED) reference campaign > docs/.campaign.md && mv docs/.campaign.md docs/campaign.md
	$(QBED) schema > docs/.lab.schema.json && mv docs/.lab.schema.json docs/lab.schema.json
	$(PY) playbooks/reference.py
	$(PY) -m qbed.plan.reference docs
	$(PY) orchestrator/tests/plan_examples.py
	$(PY) orchestrator/tests/packages.py
	$(PY) tests/qbed_testing/lab_commands.py
	$(PY) -m qbed.live.grafana dashboards
	$(PY) docs/papers/write_pages.py

# Hours; an interrupted run continues. `make papers RUNS="rpm.fct qcn"` runs some of them.
papers: setup
	@tools/browser
	$(PY) docs/papers/record_runs.py $(RUNS)
	$(PY) docs/papers/write_pages.py

# The documentation has an environment of its own, so it needs no set-up.
docs:
	@tools/docs

p4:
	@tools/p4

# Status 3 says that this machine cannot have it; its test stands there as a skip (.ci/expected-skips).
slurm:
	@tools/slurm --or-skip || [ $$? = 3 ]

locks: setup
	tools/locks

p4-campaigns: setup
	@failed=0; \
	for file in $$(grep -l '^  switch:' labs/*/*.yml); do \
	    $(QBED) run $$file --profile switch || failed=1; \
	done; \
	exit $$failed

machine:
	tools/ansible ansible-playbook -i localhost, -c local playbooks/prepare.yml -e toolchain_folder=$(CURDIR) $(if $(VARS),-e '$(VARS)')

playbooks-test: setup
	$(PY) -m pytest -q tests/playbooks

clean:
	rm -rf .venv runs dist
