#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Test a kernel with a patch from the wheel as an ordinary user without cargo (tools/wheel-test): $WORK has the wheel, the
# patch, and qp4.ko of the checkout; $QBED_CACHE has the objects of the unpatched kernel.
set -eu
fail() { echo "wheel: $*" >&2; exit 1; }

[ "$(id -u)" != 0 ] || fail "expected an ordinary user"
for program in cargo rustc; do ! command -v $program >/dev/null || fail "there is $program"; done
cd "$HOME"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile --disable-pip-version-check "$WORK"/qbed-*.whl
PATH=$HOME/venv/bin:$PATH

# A lab with a P4 switch, whose module contains an object of Rust, and with a congestion control that the patch changes.
qbed new my-lab --like young-flows
rm -f my-lab/campaign.*
sed -i 's/tcp: dctcp, rto_min: 10 ms/tcp: cubic/; s/^duration: .*/duration: 50 ms/' my-lab/lab.yml
cp -r "$WORK/my-patches" my-lab/
printf 'question: Does the patch change a trace?\naxes: {kernel: [6.12, ./my-patches]}\n' >my-lab/campaign.yml

! qbed run my-lab --out refused 2>output || fail "a kernel was built without permission"
grep -q 'qbed kernel build' output || { cat output >&2; fail "the refusal does not name the command"; }
start=$(date +%s)
qbed kernel build my-lab/my-patches 2>output || { cat output >&2; fail "the kernel did not build"; }
echo "wheel: the kernel with a patch, on kept objects: $(($(date +%s) - start)) s"
! grep -q 'jobs (some minutes' output || { cat output >&2; fail "the unpatched kernel was compiled again"; }
qbed kernel ls | grep -q "^6.12+.*$HOME/my-lab/my-patches\$" || fail "qbed kernel ls does not list the kernel"
for built in "$QBED_CACHE"/kernel/*/modules/qp4-*/qp4.ko; do
    cmp "$built" "$WORK/qp4.ko" || fail "qp4.ko is another one than in the checkout"
done

qbed run my-lab --out first --no-images 2>output || { cat output >&2; fail "the lab does not run on the kernel"; }
! grep -q building output || { cat output >&2; fail "the kernel was built again"; }
venv/bin/python - <<'PYTHON' || fail "the kernels' results are not as expected"
import qbed
rows = qbed.open("first").sql("SELECT kernel, status, trace_sha256 FROM cells").to_pylist()
assert {row["kernel"]: row["status"] for row in rows} == {"6.12": "complete", "./my-patches": "complete"}, rows
assert len({row["trace_sha256"] for row in rows}) == 2, rows
PYTHON
