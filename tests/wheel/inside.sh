#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Test the wheel in a minimal root as an ordinary user (tools/wheel-test): /wheel has the wheel and expected numbers.
set -eu
fail() { echo "wheel: $*" >&2; exit 1; }

[ "$(id -u)" != 0 ] || fail "expected an ordinary user"
for program in gcc make ip tc ping sudo; do ! command -v $program >/dev/null || fail "the root is not minimal: it has $program"; done
cd "$HOME"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check /wheel/qbed-*.whl
PATH=$HOME/venv/bin:$PATH

qbed --version
qbed labs | grep -q dumbbell || fail "qbed labs does not list dumbbell"
qbed doctor | grep -v '^ok' || true

# A campaign by the lab's name has the same numbers as in the checkout.
qbed run dumbbell --profile quick --out runs/dumbbell
python3 - <<'PYTHON' || fail "the claims' numbers differ from the checkout's"
import json
found, expected = (json.load(open(name)) for name in ("runs/dumbbell/claims.json", "/wheel/claims.json"))
assert found == expected and all(claim["verdict"] == "holds" for claim in found), (found, expected)
PYTHON
[ -s runs/dumbbell/report.html ] || fail "there is no report"

# A user's lab with a P4 program, and a program of this machine on a node.
qbed new my-lab --like young-flows
qbed up my-lab
printf '#!/bin/sh\necho "from $0 on $(cat /proc/sys/kernel/ostype)"\n' >"$HOME/my-lab/program"
chmod +x "$HOME/my-lab/program"
[ "$(qbed exec my-lab h1 -- "$HOME/my-lab/program")" = "from $HOME/my-lab/program on Linux" ] || fail "qbed exec does not run a program"
qbed down my-lab

# The service with its extra: the API answers, and the page loads its plotting library.
wheel=$(echo /wheel/qbed-*.whl)
venv/bin/pip install --quiet --disable-pip-version-check "$wheel[service]"
qbed serve --port 0 --folder "$HOME/service" >address &
service=$!
python3 - <<'PYTHON' || fail "qbed serve does not answer"
import json, pathlib, time, urllib.request
while not (line := pathlib.Path("address").read_text()).endswith("\n"):
    time.sleep(0.1)
ask = lambda path: urllib.request.urlopen(line.split()[-1] + path).read()
assert "qbed" in json.loads(ask("api/version")) and "dumbbell" in {lab["name"] for lab in json.loads(ask("api/labs"))}
assert b"uPlot" in ask("page/uPlot.js") and b"<canvas" in ask("")
PYTHON
kill $service
status=0; wait $service || status=$?
[ $status = 143 ] || fail "qbed serve ended with status $status"

# A missing program is reported.
refused() { # WORDS COMMAND...
    words=$1; shift
    ! "$@" >output 2>&1 || fail "not refused: $*"
    grep -q "$words" output || { cat output >&2; fail "expected \`$words\` of: $*"; }
}
refused "FRR" qbed run bgp-clos --profile quick --out runs/bgp-clos
qbed new with-tc
sed -i 's/{scheme: droptail, buffer: 128 KB}/{qdisc: fq_codel}/' with-tc/lab.yml
refused "iproute2" qbed run with-tc/lab.yml --out runs/tc
refused "checkout" qbed up my-lab --on containerlab
refused "sudo apt install bc bison build-essential flex" qbed kernel build 7.2
sources=$(python3 -c 'import qbed.base.locations; print(qbed.base.locations.BUNDLE)')
[ -s "$sources/sources/README.md" ] && [ -s "$sources/licenses/GPL-2.0-only.txt" ] || fail "there are no sources or licences"
