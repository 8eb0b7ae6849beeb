# SPDX-License-Identifier: Apache-2.0
"""A lab file's sysctls and queueing disciplines change its nodes only, and start no program."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from qbed.base.errors import LabError
from qbed.lab.sysctls import SYSCTLS
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.schemes.linux_qdiscs import LAB_QDISCS

ROOT = Path(__file__).parents[2]
NAMESPACE = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
LAB = """\
name: received
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {SWITCH}}
hosts: {default: {sysctls: {SYSCTLS}}}
workload:
  - flow: {from: h1, to: h2, size: 100 KB}
duration: 5 ms
"""


def lab(folder: Path, sysctls: object = None, switch: str = "scheme: droptail") -> Path:
    folder.mkdir(exist_ok=True)
    text = LAB.replace("{SYSCTLS}", json.dumps(sysctls or {})).replace("SWITCH", switch)
    (folder / "lab.yml").write_text(text)
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(LabError) as caught:
        load_lab(folder)
    assert len(caught.value.messages) == 1
    return caught.value.messages[0]


@pytest.mark.parametrize(
    ("name", "message_part"),
    [
        ("kernel/modprobe", "which are under `net/`"),
        ("kernel.core_pattern", "which are under `net/`"),
        ("vm/overcommit_memory", "which are under `net/`"),
        ("/proc/sys/kernel/modprobe", "which are under `net/`"),
        ("../sys/kernel/modprobe", "which are under `net/`"),
        ("NET/ipv4/tcp_sack", "which are under `net/`"),
        ("nеt/ipv4/tcp_sack", "which are under `net/`"),  # noqa: RUF001 - a Cyrillic letter is the attack
        ("", "which are under `net/`"),
        ("net/../kernel/modprobe", "no sysctl that a node has for itself"),
        ("net/ipv4/../../kernel/modprobe", "no sysctl that a node has for itself"),
        ("net/ipv4/conf/../../../kernel/modprobe", "no sysctl that a node has for itself"),
        ("net/ipv4/conf/eth0/../../../../kernel/modprobe", "no sysctl that a node has for itself"),
        ("net/./ipv4/tcp_sack", "did you mean `net/ipv4/tcp_sack`?"),
        ("net//ipv4/tcp_sack", "did you mean `net/ipv4/tcp_sack`?"),
        ("net/ipv4/tcp_sack/", "did you mean `net/ipv4/tcp_sack`?"),
        ("net/ipv4/tcp_sack\n", "did you mean `net/ipv4/tcp_sack`?"),
        ("net/ipv4/tcp_sack\0", "did you mean `net/ipv4/tcp_sack`?"),
        ("net.ipv4/tcp_sack", "which are under `net/`"),
        ("net/ipv4.tcp_sack", "did you mean `net/ipv4/tcp_sack`?"),
        ("net.ipv4.tcp_sak", "did you mean `net/ipv4/tcp_sack`?"),
        ("net/ipv4/conf/eth0/forwardin", "did you mean `net/ipv4/conf/eth0/forwarding`?"),
        ("net/ipv4/conf/*/forwarding", "did you mean `net/ipv4/conf/all/forwarding`?"),
        ("net/ipv4/conf/docker0/forwarding", "no sysctl that a node has for itself"),
        ("net/core/bpf_jit_enable", "no sysctl that a node has for itself"),
        ("net/core/rmem_max", "no sysctl that a node has for itself"),
        ("net/core/default_qdisc", "no sysctl that a node has for itself"),
        ("net/netfilter/nf_conntrack_max", "no sysctl that a node has for itself"),
        ("net/ipv4/tcp_congestion_control", "expected the field `tcp`"),
        ("net/" + "a" * 900, "no sysctl that a node has for itself"),
    ],
)
def test_only_sysctls_of_a_network_namespace_are_set(tmp_path: Path, name: str, message_part: str) -> None:
    message = refusal(lab(tmp_path, {name: "1"}))
    assert "hosts.default.sysctls" in message
    assert message_part in message


def test_dots_and_slashes_name_one_sysctl_and_values_are_one_line(tmp_path: Path) -> None:
    plans = [compile_lab(load_lab(lab(tmp_path, {name: 0}))) for name in ("net.ipv4.tcp_sack", "net/ipv4/tcp_sack")]
    assert plans[0] == plans[1]
    assert plans[0].nodes[0].sysctls["net/ipv4/tcp_sack"] == "0"
    plan = compile_lab(load_lab(lab(tmp_path, {"net.ipv4.conf.eth0.forwarding": 1})))
    assert plan.nodes[0].sysctls["net/ipv4/conf/eth0/forwarding"] == "1"
    twice = refusal(lab(tmp_path, {"net.ipv4.tcp_sack": 0, "net/ipv4/tcp_sack": 1}))
    assert "`net.ipv4.tcp_sack` and `net/ipv4/tcp_sack` are the same sysctl" in twice
    for value in ("1\n2", "\x1b[2J", "1" * 1000):
        assert "expected a line of at most 200 plain characters" in refusal(lab(tmp_path, {"net.ipv4.tcp_sack": value}))


@pytest.mark.parametrize(
    ("qdisc", "message_part"),
    [
        ("nosuch", "no queueing discipline `nosuch`"),
        ("fq_code limit 100", "did you mean `fq_codel`?"),
        ("x/../../../../mnt/evil limit 1", "no queueing discipline"),
        ("dev eth1 fq", "no queueing discipline `dev`"),
        ("ingress", "no queueing discipline `ingress`"),
        ("abq", "expected `scheme: abq`"),
        ("netem distribution ../../../../mnt/evil", "got `../../../../mnt/evil`"),
        ("fq limit $(id)", "got `$(id)`"),
    ],
)
def test_an_unknown_or_unsafe_queueing_discipline_is_refused(tmp_path: Path, qdisc: str, message_part: str) -> None:
    message = refusal(lab(tmp_path, switch=f"qdisc: {qdisc!r}"))
    assert "lab.yml:4:" in message
    assert message_part in message


def test_the_queueing_disciplines_are_those_of_the_labs_kernel() -> None:
    configured = re.findall(r"(?m)^CONFIG_NET_SCH_(\w+)=y", (ROOT / "kernel" / "config.fragment").read_text())
    built_in = {"pfifo", "bfifo", "pfifo_fast"}
    assert {name.lower() for name in configured} - {"ingress"} | built_in == LAB_QDISCS


def test_a_lab_file_starts_no_program(tmp_path: Path) -> None:
    """The attack of issue 11: a program for kernel/modprobe, and a queueing discipline that the kernel would load."""
    witness = tmp_path / "witness"
    program = lab(tmp_path / "lab", {"kernel/modprobe": "/mnt/evil"}, "qdisc: nosuch") / "evil"
    program.write_text(f"#!/bin/sh\ntouch {witness}\n")
    program.chmod(0o755)
    command = [sys.executable, "-m", "qbed", "run", "lab", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "kernel/modprobe" in done.stderr
    assert "Traceback" not in done.stderr
    assert not witness.exists()


def test_the_list_has_the_sysctls_of_a_network_namespace(tmp_path: Path) -> None:
    """A node shows the sysctls of its network namespace; the kernel's other sysctls are shown outside only."""
    name = f"sysctls-{os.getpid()}"
    folder = lab(tmp_path / "lab")
    (folder / "lab.yml").write_text((folder / "lab.yml").read_text().replace("name: received", f"name: {name}"))
    qbed = [sys.executable, "-m", "qbed"]
    subprocess.run([*qbed, "up", str(folder)], check=True, capture_output=True, timeout=120)
    try:
        command = "cd /proc/sys && find net -type f -perm -200"
        done = subprocess.run(
            [*qbed, "exec", name, "h1", "--", "sh", "-c", command], capture_output=True, text=True, timeout=60
        )
    finally:
        subprocess.run([*qbed, "down", name], check=True, capture_output=True, timeout=60)
    shown = {re.sub(r"/(conf|neigh)/[^/]*/", r"/\1/*/", path) for path in done.stdout.split()}
    assert len(shown) > 200
    left_out = {name for name in shown if name.endswith("/route/flush") or "/nf_log/" in name}
    assert shown - SYSCTLS - left_out == {
        "net/ipv4/tcp_congestion_control", "net/ipv4/tcp_child_ehash_entries", "net/ipv4/udp_child_hash_entries"
    }  # fmt: skip
    assert shown >= SYSCTLS


SET_ALL = """
import pathlib, sys
for line in sys.stdin:
    for path in pathlib.Path("/proc/sys").glob(line.strip()):
        try:
            text = path.read_text()
        except OSError:
            continue
        if text.strip().isdigit() and "disable_ipv6" not in path.name:
            for value in (int(text) + 1, int(text) - 1, 1 - int(text)):
                try:
                    path.write_text(str(value))
                except OSError:
                    continue
                print(path)
                break
"""


def test_the_list_changes_no_sysctl_of_this_machine() -> None:
    """Setting each sysctl in a new network namespace of this machine does not change it outside."""

    def values() -> dict[Path, str]:
        found = {}
        for path in (path for name in SYSCTLS for path in Path("/proc/sys").glob(name)):
            with suppress(OSError):  # stable_secret is not readable before it is set
                found[path] = path.read_text()
        return found

    if subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets this user make no network namespace")
    before = values()
    done = subprocess.run(
        [*NAMESPACE, sys.executable, "-c", SET_ALL],
        input="\n".join(SYSCTLS),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert len(done.stdout.splitlines()) > 100, done.stderr
    assert values() == before
