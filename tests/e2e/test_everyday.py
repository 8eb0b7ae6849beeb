# SPDX-License-Identifier: Apache-2.0
"""A small lab runs on machines and for users that are set up in another way. A clock that jumps: tests/runs."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbed_testing.untrusted_lab import write_lab

CAMPAIGN = """\
question: Läuft es überall?
axes: {seed: [1]}
claims:
  - name: ends
    paper: Es endet, 終わり.
    random: false
    sql: SELECT count(*) = 1 AS holds FROM flows WHERE label = 'größe'
"""
QBED = f"{shlex.quote(sys.executable)} -m qbed"
RUN = f"{QBED} run lab --out run --no-images --jobs 1"
NO_IPV6 = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1; ip link set lo up"
OTHER_USER = "setpriv --reuid=65534 --regid=65534 --clear-groups"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with the lab that every user can reach."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o777)
        write_lab(place / "lab", "größe", CAMPAIGN)
        yield place


def run(folder: Path, command: str, *namespaces: str, **environment: str) -> str:
    """Run a shell command, in new namespaces if any; its output. It must succeed."""
    if namespaces and subprocess.run(["unshare", *namespaces, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make namespaces")
    words = ["unshare", *namespaces, "sh", "-euc", command] if namespaces else ["sh", "-euc", command]
    done = subprocess.run(
        words, cwd=folder, env=os.environ | environment, capture_output=True, timeout=300, check=False
    )
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    assert done.returncode == 0, text
    return text


def assert_holds(text: str) -> None:
    assert "holds  ends" in text, text
    assert "1 of 1 cells complete" in text, text
    assert "Traceback" not in text


def test_locale_c_umask_077_and_a_path_with_spaces_and_other_letters(folder: Path) -> None:
    place = folder / "mein Ordner/ä ö/日本"
    place.mkdir(parents=True)
    (folder / "lab").rename(place / "lab")
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert_holds(run(place, f"umask 077; {RUN}", **locale))
    assert "größe" in (place / "run" / "report.html").read_text("utf-8")
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (place / "run").rglob("*")}
    assert modes == {0}
    up = f"{QBED} up lab --name everyday; {QBED} exec everyday h1 -- echo höre; {QBED} down everyday"
    assert "höre" in run(place, f"umask 077; {up}", **locale)


def test_small_and_read_only_file_systems_and_no_ipv6(folder: Path) -> None:
    """A home that is read-only, 256 KiB for temporary files, 64 MiB of shared memory (Docker's default)."""
    for name in ("home", "small"):
        (folder / name).mkdir()
    mounts = (
        "mount -t tmpfs -o ro none home; mount -t tmpfs -o size=256k none small;"
        "mount -t tmpfs -o size=64m none /dev/shm"
    )
    text = run(
        folder, f"{mounts}; {NO_IPV6}; {RUN}", "-m", "-n", HOME=str(folder / "home"), TMPDIR=str(folder / "small"),
        QBED_CACHE="", XDG_CACHE_HOME="",
    )  # fmt: skip
    assert_holds(text)
    report = f"mount -t tmpfs -o size=256k none small; {QBED} report run"
    text = run(folder, report, "-m", TMPDIR=str(folder / "small"))
    assert "could not be drawn" not in text or "(TMPDIR) has only" in text, text


def test_the_service_listens_without_ipv6(folder: Path) -> None:
    service = f"{QBED} serve --port 0 --jobs 1 --folder jobs"
    wait = "i=0; while [ $i -lt 300 ] && ! grep -q 'http://127.0.0.1:' log; do sleep 0.1; i=$((i + 1)); done; cat log"
    text = run(folder, f"{NO_IPV6}; {service} >log 2>&1 & {wait}; kill -INT %1 || kill -INT $!; wait || true", "-n")
    assert "http://127.0.0.1:" in text


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_address_to_listen_on_without_ipv6(folder: Path, host: str) -> None:
    text = run(folder, f"{NO_IPV6}; ! {QBED} serve --port 0 --folder jobs --host '{host}'", "-n")
    assert "cannot listen at [::1]" in text and "this machine has no IPv6" in text, text
    assert len(text.splitlines()) == 1, text


def test_a_second_user(folder: Path) -> None:
    """The user reaches this Python and the toolchain, and has a separate cache."""
    (folder / "home").mkdir(mode=0o777)
    (folder / "home").chmod(0o777)
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    home = Path.home()
    places = " ".join(shlex.quote(str(place)) for place in (home / ".pyenv", home / ".cache/qbed") if place.is_dir())
    script = (
        f"for place in {places}; do mkdir -p kept$place; mount --bind $place kept$place; done;"
        f"mount -t tmpfs -o mode=755 none {shlex.quote(str(home))};"
        f"for place in {places}; do mkdir -p $place; mount --bind kept$place $place; done;"
        f"{OTHER_USER} {RUN}"
    )
    assert_holds(run(folder, script, "-m", HOME=str(folder / "home"), QBED_CACHE="", QBED_STORE="1 GB"))
    assert (folder / "run" / "report.html").stat().st_uid == 65534
    assert (folder / "home/.cache/qbed/cells").is_dir()
