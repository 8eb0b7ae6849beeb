# SPDX-License-Identifier: Apache-2.0
"""Where senders hold much at once, nobody copies it: what the wire carries is the same, and what flows do nearly so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qbed.plan import compile as compiling

from qbed_testing.cells import CellOutput, store_tables
from qbed_testing.pcap import has_valid_checksum, read_pcap, tcp_payload

FLOWS, SIZE = 34, 4_000_000
LAB = f"""
name: bulk
topology: {{star: {{hosts: 4}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 5 us}}}}
workload:
  - flows: {{pairs: [{", ".join(["[h1, h2]", "[h3, h4]"] * (FLOWS // 2))}], size: 4 MB}}
"""
WAYS = {
    "plain": "switches: {default: {scheme: droptail, buffer: 1 MB}}",
    "tso": "switches: {default: {scheme: ecn, buffer: 1 MB, threshold: 65 packets}}\nhosts: {default: {offload: tso}}",
    "p4": "switches: {default: {kind: bmv2, scheme: droptail, buffer: 1 MB}}\naddressing: ipv6",
}


@pytest.mark.parametrize("way", WAYS)
def test_all_of_it_arrives_as_fast_as_copied(
    run_cell: Callable[..., CellOutput], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    lab = f"{LAB}{WAYS[way]}\nduration: 100 ms\n"
    shared = run_cell(lab)
    monkeypatch.setattr(compiling, "MAX_COPIED", 1 << 40)
    copied = run_cell(lab)
    assert "qbulk" in shared.plan.modules and "qbulk" not in copied.plan.modules
    for cell in (shared, copied):
        assert [(flow["status"], flow["received_bytes"]) for flow in cell.flows()] == [("complete", SIZE)] * FLOWS
    ends = [max(flow["end_ns"] for flow in cell.flows()) for cell in (shared, copied)]
    # Two links of 10 Gbit/s carry 68 MB each: 54.4 ms without headers. Retransmissions come at other instants.
    assert min(ends) > 54_400_000 and max(ends) < 1.1 * min(ends), ends


def test_what_the_wire_carries_is_the_pattern_with_right_checksums(run_cell: Callable[..., CellOutput]) -> None:
    text = f"{LAB}{WAYS['plain']}\ncapture: [{{end: 'h1>s1', snaplen: 64 KB}}, {{end: 's1>h2', snaplen: 64 KB}}]\n"
    cell = run_cell(f"{text}duration: 1500 us\n")
    for end in ("h1-eth0", "s1-eth1"):
        frames = [packet.data for packet in read_pcap(cell.out / f"{end}.pcap")]
        payloads = [payload for frame in frames if (payload := tcp_payload(frame))]
        assert sum(map(len, payloads)) > 500_000 and {byte for payload in payloads for byte in set(payload)} == {0x71}
        assert all(has_valid_checksum(frame) for frame in frames)


ASK = """\
#!/usr/bin/env python3
import errno, fcntl, os, socket, struct
device = os.open("/dev/qbulk", os.O_RDONLY)
def ask(what, fd, size, command=0x400C7101):
    try:
        said = fcntl.ioctl(device, command, bytearray(struct.pack("iII", fd, size, 0)), True)
    except OSError as error:
        said = errno.errorcode[error.errno]
    print(f"{what}={said}", end=" ")
    return said
ask("command", 0, 1, 0x400C7102)
ask("closed", 1000, 1)
ask("file", device, 1)
datagrams, unconnected = socket.socket(type=socket.SOCK_DGRAM), socket.socket()
ask("udp", datagrams.fileno(), 1)
ask("unconnected", unconnected.fileno(), 1)
listener = socket.create_server(("127.0.0.1", 0))
ours = socket.create_connection(listener.getsockname())
theirs, _ = listener.accept()
ask("few", ours.fileno(), 5)
ask("none", ours.fileno(), 0)
print(f"text={theirs.recv(100).decode()}", end=" ")
sent = 0
while isinstance(now := ask("full", ours.fileno(), 0xFFFFFFFF), int):
    assert now <= 1 << 20
    sent += now
ours.shutdown(socket.SHUT_WR)
got = b""
while part := theirs.recv(1 << 20):
    got += part
print(f"same={got == b'q' * sent}", end=" ")
ask("shut", ours.fileno(), 1)
"""


def test_what_cannot_be_sent_is_refused(run_cell: Callable[..., CellOutput], tmp_path: Path) -> None:
    (tmp_path / "cell-0").mkdir()
    (tmp_path / "cell-0" / "ask.py").write_text(ASK)
    program = "programs: [{on: h4, run: ./ask.py, output: key=value}]"
    cell = run_cell(f"{LAB}{WAYS['plain']}\n{program}\nduration: 80 ms\n")
    row, table = store_tables(cell, tmp_path / "cell-0")
    assert row["status"] == "complete", row["contradictions"]
    (said,) = table("program_records")
    assert dict(said["texts"]) == {
        "command": "ENOTTY", "closed": "EBADF", "file": "ENOTSOCK", "udp": "ENOTSUP", "unconnected": "EPIPE",
        "text": "qqqqq", "full": "EAGAIN", "same": "True", "shut": "EPIPE",
    }  # fmt: skip
    numbers = dict(said["numbers"])
    assert (numbers["few"], numbers["none"]) == (5, 0) and numbers["full"] > 100_000


SERVE = """\
#!/usr/bin/env python3
import socket, time
server = socket.create_server(("", 9))
time.sleep(60)
"""
FILL = """\
#!/usr/bin/env python3
import fcntl, os, socket, struct, sys, time
SO_MEMINFO, WMEM_QUEUED, SIOCOUTQ = 55, 5, 0x5411
to = socket.create_connection((sys.argv[1], 9))
device = os.open("/dev/qbulk", os.O_RDONLY)
to.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
for _ in range(4):
    time.sleep(0.001)
    try:
        fcntl.ioctl(device, 0x400C7101, struct.pack("iII", to.fileno(), 0x100000, 0))
    except BlockingIOError:
        pass
queued = struct.unpack("9I", to.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))[WMEM_QUEUED]
print(f"queued={queued} bytes={struct.unpack('i', fcntl.ioctl(to, SIOCOUTQ, bytes(4)))[0]}")
"""


def test_what_is_not_sent_lies_in_few_packets(run_cell: Callable[..., CellOutput], tmp_path: Path) -> None:
    (tmp_path / "cell-0").mkdir()
    for name, text in {"serve.py": SERVE, "fill.py": FILL}.items():
        (tmp_path / "cell-0" / name).write_text(text)
    programs = """\
programs:
  - {on: h3, run: ./serve.py, stop: 70 ms}
  - {on: h4, run: './fill.py h3', start: 20 ms, output: key=value}
"""
    cell = run_cell(f"{LAB}{WAYS['plain']}\n{programs}duration: 80 ms\n")
    _, table = store_tables(cell, tmp_path / "cell-0")
    (said,) = table("program_records")
    numbers = dict(said["numbers"])
    # With a packet of each segment it is 1.57 times as much.
    assert numbers["bytes"] > 200_000 and numbers["queued"] < 1.3 * numbers["bytes"], numbers
