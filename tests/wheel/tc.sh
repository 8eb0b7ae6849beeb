#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Test tc on nodes as an ordinary user of the wheel (tools/wheel-test) on the Debian release that it was built on: $WORK has
# the wheel.
set -eu
fail() { echo "wheel: $*" >&2; exit 1; }

[ "$(id -u)" != 0 ] || fail "expected an ordinary user"
cd "$HOME"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile --disable-pip-version-check "$WORK"/qbed-*.whl
PATH=$HOME/venv/bin:$PATH

# The wheel's plugins are for this tc: nothing is built.
qbed new my-lab
sed -i 's/{scheme: droptail, buffer: 128 KB}/{scheme: ecn, buffer: 100 packets, threshold: 7 packets}/' my-lab/lab.yml
qbed up my-lab 2>output || { cat output >&2; fail "the lab does not come up"; }
qbed exec my-lab s1 -- tc qdisc show >shown
grep -q 'qdisc ecn .*limit 100p threshold 7p' shown || { cat output shown >&2; fail "tc does not print the options of ecn"; }
device=$(sed -n 's/^qdisc ecn .* dev \([^ ]*\) .*/\1/p' shown | head -n 1)
qbed exec my-lab s1 -- tc qdisc replace dev "$device" root ecn limit 50p threshold 3p
qbed exec my-lab s1 -- tc qdisc show dev "$device" | grep -q 'threshold 3p' || fail "tc does not take the options of ecn"
qbed down my-lab
[ ! -e "$QBED_CACHE/tc" ] || fail "plugins were built"

# Another tc, as on another release of Debian: the plugins are built from the sources of the wheel.
start=$(date +%s)
built=$(venv/bin/python - <<'PYTHON'
import pathlib, subprocess
from qbed.substrates.user_modules import tc_plugins
other = pathlib.Path("other/tc")
other.mkdir(parents=True)
(other / "version").write_text("another tc")
print(tc_plugins(other.parent, subprocess.run(["tc", "-V"], capture_output=True, check=True).stdout))
PYTHON
)
case $built in "$QBED_CACHE"/tc/*) ;; *) fail "no plugins were built: $built" ;; esac
TC_LIB_DIR=$built tc qdisc add dev lo root ecn help 2>&1 | grep -q 'threshold' || fail "the built plugin does not print its usage"
echo "wheel: plugins of tc, built from the wheel: $(($(date +%s) - start)) s"
