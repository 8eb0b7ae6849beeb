# SPDX-License-Identifier: Apache-2.0
"""Frames that are lost between a container's interface and its guest are counted."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

from qbed_testing.container_labs import docker, lost, qbed, wait_until, write_lab

PIDFD_GETFD = 438
FRAMES = 500
SEND = f"""
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range({FRAMES}):
    sender.sendto(bytes(1000), ("ADDRESS", 9))
"""
STAR = """\
name: NAME
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Mbit/s, delay: 2 ms}}
switches: {default: {scheme: droptail, buffer: 2 MB}}
hosts: {default: {tcp: cubic, kernel: host}}
duration: 100 ms
"""
OVERLOAD = """\
name: NAME
topology: {star: {hosts: 16}}
links: {default: {rate: 10 Gbit/s, delay: 10 us}}
switches: {default: {scheme: stamp, kind: bmv2, buffer: 200 packets}}
hosts: {default: {tcp: cubic, kernel: qbed, controller: {name: timely, signal: max, min_rtt: 50 us}}}
workload:
  - flows: {from: h2..h16, to: h1, size: unlimited, spread: 1 ms, transport: rate, label: long}
duration: 25 ms
"""


def test_frames_that_overflow_a_guests_receive_buffer_are_counted(tmp_path: Path, state: Path) -> None:
    name = "qbed-t-frames"
    done = qbed(tmp_path, "up", str(write_lab(tmp_path, name, STAR)), "--on", "containerlab", "--dilate", "1")
    assert done.returncode == 0, done.stderr
    try:
        out = state / name / "cell" / "nodes" / "s1" / "out"
        wait_until(lambda: counters(out)["kernel"] is not None, "the guest has not reported its devices")
        address = docker("exec", f"clab-{name}-h2", "ip", "-4", "-o", "address", "show", "eth0").split()[3]
        before = counters(out)["kernel"]["rx_packets"]
        assert counters(out)["socket_dropped"] == 0 and lost(tmp_path) == "0"
        guest = guest_of(f"clab-{name}-s1")
        shrink_receive_buffer(guest)
        sent = sent_by(name)
        os.kill(guest, signal.SIGSTOP)
        try:
            program = SEND.replace("ADDRESS", address.split("/")[0])
            docker("exec", f"clab-{name}-h1", "python3", "-c", program)
        finally:
            os.kill(guest, signal.SIGCONT)
        sent = sent_by(name) - sent
        assert sent >= FRAMES

        def all_counted() -> bool:
            now = counters(out)
            return bool(sent_by(name) - before_sent == now["kernel"]["rx_packets"] - before + now["socket_dropped"])

        before_sent = sent_by(name) - sent
        wait_until(all_counted, f"sent {sent}, and {counters(out)}")
        dropped = counters(out)["socket_dropped"]
        assert 0 < dropped < FRAMES
        wait_until(lambda: lost(tmp_path) == str(dropped), "qbed ps does not show the loss")
        rows = [json.loads(line) for line in qbed(tmp_path, "samples", name).stdout.splitlines()]
        series = [row["socket_dropped"] for row in rows if row.get("sample") == "interface" and row["port"] == "s1>h1"]
        assert (series[0], series[-1]) == (0, dropped)
    finally:
        qbed(tmp_path, "down", name)


def counters(out: Path) -> dict[str, Any]:
    """The counters of the switch's interface to h1."""
    try:
        return dict(json.loads((out / "host.json").read_text())["interfaces"]["eth0"])
    except FileNotFoundError:
        return {"kernel": None}


def sent_by(lab: str) -> int:
    """Frames that h1 has sent to the switch."""
    return int(docker("exec", f"clab-{lab}-h1", "cat", "/sys/class/net/eth0/statistics/tx_packets"))


def guest_of(container: str) -> int:
    """The process of a container's guest, on this machine."""
    supervisor = docker("inspect", "--format", "{{.State.Pid}}", container).strip()
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    (guest,) = [int(pid) for pid in children if Path(f"/proc/{pid}/exe").readlink().name == "linux"]
    return guest


def shrink_receive_buffer(guest: int) -> None:
    """Set the receive buffers of a guest's packet sockets to a few frames."""
    process = os.pidfd_open(guest)
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    sockets = 0
    for entry in Path(f"/proc/{guest}/fd").iterdir():
        if not entry.readlink().name.startswith("socket:"):
            continue
        descriptor = syscall(PIDFD_GETFD, process, int(entry.name), 0)
        assert descriptor >= 0, os.strerror(ctypes.get_errno())
        with socket.socket(fileno=descriptor) as duplicate:
            if duplicate.family == socket.AF_PACKET:
                duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
                sockets += 1
    os.close(process)
    assert sockets


def test_an_overloaded_switch_has_memory_and_its_cell_is_invalid(tmp_path: Path) -> None:
    """Fifteen hosts send more frames than the switch's guest forwards, and its queue drops most of them."""
    name = "qbed-t-overload"
    lab = str(write_lab(tmp_path, name, OVERLOAD))
    done = qbed(tmp_path, "run", lab, "--on", "containerlab", "--dilate", "10", "--out", str(tmp_path / "run"))
    assert done.returncode == 1, done.stderr
    assert "0 of 1 cells complete, 1 invalid" in done.stderr + done.stdout, done.stdout + done.stderr
    consoles = [path.read_text() for path in (tmp_path / "run").glob("cells/*/work/nodes/s1/console.log")]
    assert len(consoles) == 1 and "allocation failure" not in consoles[0]
