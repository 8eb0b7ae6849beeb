# SPDX-License-Identifier: Apache-2.0
"""Senders of large amounts share one buffer (qbulk) instead of copying: equal bytes on the wire, similar flows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qbed.plan import compile as compiling
from qbed.testing import CellOutput, store_tables

from qbed_testing.pcap import has_valid_checksum, read_pcap, tcp_payload

FLOWS, SIZE = 34, 4_000_000
LAB = f"""
name: bulk
topology: {{star: {{hosts: 4}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 5 us}}}}
workload:
  - flows: {{pairs: [{", ".join(["[h1, h2]", "[h3, h4]"] * (FLOWS // 2))}], size: 4 MB}}
"""
VARIANTS = {
    "plain": "switches: {default: {scheme: droptail, buffer: 1 MB}}",
    "tso": "switches: {default: {scheme: ecn, buffer: 1 MB, threshold: 65 packets}}\nhosts: {default: {offload: tso}}",
    "p4": "switches: {default: {kind: bmv2, scheme: droptail, buffer: 1 MB}}\naddressing: ipv6",
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_shared_data_arrives_as_fast_as_copied_data(
    run_cell: Callable[..., CellOutput], monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    lab = f"{LAB}{VARIANTS[variant]}\nduration: 100 ms\n"
    shared = run_cell(lab)
    monkeypatch.setattr(compiling, "MAX_COPIED", 1 << 40)
    copied = run_cell(lab)
    assert "qbulk" in shared.plan.modules and "qbulk" not in copied.plan.modules
    for cell in (shared, copied):
        assert [(flow["status"], flow["received_bytes"]) for flow in cell.flows()] == [("complete", SIZE)] * FLOWS
    ends = [max(flow["end_ns"] for flow in cell.flows()) for cell in (shared, copied)]
    # Two links of 10 Gbit/s carry 68 MB each: 54.4 ms without headers. Retransmissions happen at other times.
    assert min(ends) > 54_400_000 and max(ends) < 1.1 * min(ends), ends


def test_frames_have_the_pattern_and_valid_checksums(run_cell: Callable[..., CellOutput]) -> None:
    text = f"{LAB}{VARIANTS['plain']}\ncapture: [{{end: 'h1>s1', snaplen: 64 KB}}, {{end: 's1>h2', snaplen: 64 KB}}]\n"
    cell = run_cell(f"{text}duration: 1500 us\n")
    for end in ("h1-eth0", "s1-eth1"):
        frames = [packet.data for packet in read_pcap(cell.out / f"{end}.pcap")]
        payloads = [payload for frame in frames if (payload := tcp_payload(frame))]
        assert sum(map(len, payloads)) > 500_000 and {byte for payload in payloads for byte in set(payload)} == {0x71}
        assert all(has_valid_checksum(frame) for frame in frames)


CALLER = """\
#!/usr/bin/env python3
import errno, fcntl, os, socket, struct
device = os.open("/dev/qbulk", os.O_RDONLY)
def call(name, fd, size, command=0x400C7101):
    try:
        result = fcntl.ioctl(device, command, bytearray(struct.pack("iII", fd, size, 0)), True)
    except OSError as error:
        result = errno.errorcode[error.errno]
    print(f"{name}={result}", end=" ")
    return result
call("command", 0, 1, 0x400C7102)
call("closed", 1000, 1)
call("file", device, 1)
datagrams, unconnected = socket.socket(type=socket.SOCK_DGRAM), socket.socket()
call("udp", datagrams.fileno(), 1)
call("unconnected", unconnected.fileno(), 1)
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
call("few", client.fileno(), 5)
call("none", client.fileno(), 0)
print(f"text={server.recv(100).decode()}", end=" ")
sent = 0
while isinstance(amount := call("full", client.fileno(), 0xFFFFFFFF), int):
    assert amount <= 1 << 20
    sent += amount
client.shutdown(socket.SHUT_WR)
received = b""
while part := server.recv(1 << 20):
    received += part
print(f"same={received == b'q' * sent}", end=" ")
call("shut", client.fileno(), 1)
"""


def test_invalid_calls_of_qbulk_are_refused(run_cell: Callable[..., CellOutput], tmp_path: Path) -> None:
    (tmp_path / "cell-0").mkdir()
    (tmp_path / "cell-0" / "call.py").write_text(CALLER)
    program = "programs: [{on: h4, run: ./call.py, output: key=value}]"
    cell = run_cell(f"{LAB}{VARIANTS['plain']}\n{program}\nduration: 80 ms\n")
    row, table = store_tables(cell, tmp_path / "cell-0")
    assert row["status"] == "complete", row["contradictions"]
    (record,) = table("program_records")
    assert dict(record["texts"]) == {
        "command": "ENOTTY", "closed": "EBADF", "file": "ENOTSOCK", "udp": "ENOTSUP", "unconnected": "EPIPE",
        "text": "qqqqq", "full": "EAGAIN", "same": "True", "shut": "EPIPE",
    }  # fmt: skip
    numbers = dict(record["numbers"])
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
sock = socket.create_connection((sys.argv[1], 9))
device = os.open("/dev/qbulk", os.O_RDONLY)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
for _ in range(4):
    time.sleep(0.001)
    try:
        fcntl.ioctl(device, 0x400C7101, struct.pack("iII", sock.fileno(), 0x100000, 0))
    except BlockingIOError:
        pass
queued = struct.unpack("9I", sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))[WMEM_QUEUED]
print(f"queued={queued} bytes={struct.unpack('i', fcntl.ioctl(sock, SIOCOUTQ, bytes(4)))[0]}")
"""


def test_unsent_data_is_queued_in_few_packets(run_cell: Callable[..., CellOutput], tmp_path: Path) -> None:
    (tmp_path / "cell-0").mkdir()
    for name, text in {"serve.py": SERVE, "fill.py": FILL}.items():
        (tmp_path / "cell-0" / name).write_text(text)
    programs = """\
programs:
  - {on: h3, run: ./serve.py, stop: 70 ms}
  - {on: h4, run: './fill.py h3', start: 20 ms, output: key=value}
"""
    cell = run_cell(f"{LAB}{VARIANTS['plain']}\n{programs}duration: 80 ms\n")
    _, table = store_tables(cell, tmp_path / "cell-0")
    (record,) = table("program_records")
    numbers = dict(record["numbers"])
    # With one packet per segment the ratio is 1.57.
    assert numbers["bytes"] > 200_000 and numbers["queued"] < 1.3 * numbers["bytes"], numbers
