# SPDX-License-Identifier: Apache-2.0
"""A guest that is none: from a plan, the `out/` folder of a run in which every book agrees; deterministic."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

from qbed.plan.model import Plan
from qbed.telemetry.flow_samples import ABSENT, FIELDS
from qbed.telemetry.taps import SUMMARY_FIELDS

FULL, ACK = 1514, 66


def header(kind: int, length: int, queue: int, time_ns: int) -> bytes:
    return struct.pack("<HHIq", kind, length, queue, time_ns)


def sample(queue: int, time_ns: int, interval_ns: int, **values: int) -> bytes:
    names = ("byte_ns", "packet_ns", "dequeued_bytes"), ("min_bytes", "max_bytes", "min_packets", "max_packets")
    counts = ("enqueued", "dequeued", "dropped", "marked", "steady", "steady_bytes", "steady_packets", "zero")
    body = struct.pack("<QQQQ", interval_ns, *(values.get(name, 0) for name in names[0]))
    return header(1, 96, queue, time_ns) + body + struct.pack("<12I", *(values.get(n, 0) for n in (*names[1], *counts)))


def event(queue: int, time_ns: int, op: int, packet: int, size: int = FULL) -> bytes:
    body = struct.pack("<BBBBIIIQHHIIHBB", op, 2, 4, 6, size, size, 1, packet, 40000, 5001, 1, 2, 1448, 16, 0)
    return (
        header(2, 96, queue, time_ns)
        + body
        + bytes([10, 0, 0, 1])
        + bytes(12)
        + bytes([10, 0, 0, 5])
        + bytes(12)
        + bytes(8)
    )


def summary(queue: int, time_ns: int, **values: int) -> bytes:
    return header(3, 144, queue, time_ns) + struct.pack("<16Q", *(values.get(name, 0) for name in SUMMARY_FIELDS))


def bound(queue: int, time_ns: int, **values: int) -> bytes:
    """A summary where a window begins or ends."""
    return header(5, 144, queue, time_ns) + struct.pack("<16Q", *(values.get(name, 0) for name in SUMMARY_FIELDS))


def histogram(queue: int, time_ns: int, bin_bytes: int, ns: list[int], *, at_bound: bool = False) -> bytes:
    length = 24 + 8 * len(ns)
    return header(6 if at_bound else 4, length, queue, time_ns) + struct.pack(f"<II{len(ns)}Q", bin_bytes, len(ns), *ns)


def sojourn(
    queue: int, time_ns: int, traffic: int, counts: dict[int, int], *, at_bound: bool = False, **values: int
) -> bytes:
    """Waits of a class; `counts`: how many packets are in which bin."""
    first, end = min(counts, default=0), max(counts, default=-1) + 1
    bins = [counts.get(number, 0) for number in range(first, end)]
    fields = {"packets": sum(bins)} | values
    return (
        header(8 if at_bound else 7, 56 + 8 * len(bins), queue, time_ns)
        + struct.pack("<II3Q", traffic, first, *(fields.get(name, 0) for name in ("packets", "sum_ns", "max_ns")))
        + struct.pack(f"<II{len(bins)}Q", len(bins), 0, *bins)
    )


def sojourn_sample(queue: int, time_ns: int, traffic: int, packets: int, **values: int) -> bytes:
    waits = (values.get(name, 0) for name in ("sum_ns", "max_ns", "p50_ns", "p99_ns"))
    return header(9, 64, queue, time_ns) + struct.pack("<QII4Q", 1000, traffic, packets, *waits)


def flow_sample(table: str, flow: int, time_ns: int, **values: int | None) -> bytes:
    """A sample of a flow; None: the value is absent."""
    numbers = (values.get(name, 0) for name in FIELDS[table])
    body = struct.pack("<10q", *(ABSENT if number is None else number for number in numbers))
    return header([*FIELDS].index(table) + 1, 96, flow, time_ns) + body


class Books:
    """The counters of a network that these packets have crossed."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.packets = [0] * len(plan.queues)
        self.bytes = [0] * len(plan.queues)
        self.nodes: list[dict[str, dict[str, int]]] = [{"Ip": {}} for _ in plan.nodes]
        self.peer = {}
        for link in plan.links:
            self.peer[link.a.queue], self.peer[link.b.queue] = link.b.node, link.a.node

    def count(self, node: int, name: str, packets: int) -> None:
        ip = self.nodes[node]["Ip"]
        ip[name] = ip.get(name, 0) + packets

    def carry(self, src: int, dst: int, packets: int, size: int) -> None:
        """Packets from one host to another."""
        self.count(src, "OutRequests", packets)
        self.count(src, "OutTransmits", packets)
        for end in self.plan.path(src, dst).ends:
            self.packets[end.queue] += packets
            self.bytes[end.queue] += packets * size
            peer_queue = self.peer[end.queue]
            self.count(peer_queue, "InReceives", packets)
            for name in ("InDelivers",) if peer_queue == dst else ("ForwDatagrams", "OutTransmits"):
                self.count(peer_queue, name, packets)

    def counters(self) -> dict[str, Any]:
        def end(queue: int, other: int) -> dict[str, int]:
            sent, got = self.packets[queue], self.packets[other]
            return {
                "sent": sent,
                "delivered": sent,
                "tx_bytes": self.bytes[queue],
                "rx_packets": got,
                "rx_bytes": self.bytes[other],
            }

        links = [{"a": end(k.a.queue, k.b.queue), "b": end(k.b.queue, k.a.queue)} for k in self.plan.links]
        queues = [{"kind": "pfifo", "packets": p, "bytes": b} for p, b in zip(self.packets, self.bytes, strict=True)]
        return {"time_ns": self.plan.duration_ns, "links": links, "queues": queues, "nodes": self.nodes}


def write_out(plan: Plan, folder: Path) -> None:
    """Write `out/` for a plan into the cell folder."""
    out = folder / "out"
    out.mkdir(exist_ok=True)
    dice = random.Random(plan.seed)
    books = Books(plan)
    with (out / "flows.ndjson").open("w") as flows:
        number = 0
        for workload in plan.workloads:
            for src, dst in getattr(workload, "pairs", None) or ():
                size = getattr(workload, "size_bytes", None) or 14480
                packets = -(-size // 1448)
                books.carry(src, dst, packets, FULL)
                books.carry(dst, src, packets, ACK)
                path = plan.path(src, dst)
                need = size * 8e9 / path.rate_bps + 3 * plan.base_rtt_ns(src, dst)
                took = int(need * (1.1 + dice.random()))
                addresses = [plan.nodes[node].addresses[0].partition("/")[0] for node in (src, dst)]
                row = {
                    "flow": number, "workload": workload.id, "label": workload.label, "transport": "tcp",
                    "congestion_control": "cubic", "src": src, "dst": dst,
                    "src_address": addresses[0], "dst_address": addresses[1],
                    "src_port": 40000 + number, "dst_port": 5001, "size_bytes": size, "start_ns": workload.start_ns,
                    "connected_ns": workload.start_ns + 1000, "end_ns": workload.start_ns + took,
                    "received_bytes": size,
                    "sent_bytes": size, "status": "complete", "error": None, "retransmits": 0,
                    "timeouts": 0, "ce_marks": 0,
                    "segments_sent": packets, "min_rtt_ns": 20240, "rtt_ns": 150000, "ecn": True,
                }  # fmt: skip
                flows.write(json.dumps(row) + "\n")
                number += 1
    write_taps(plan, books, out / "taps.bin", dice)
    (out / "counters.json").write_text(json.dumps(books.counters()))
    (out / "done.json").write_text(json.dumps({"status": "complete", "end_ns": plan.duration_ns}))


def write_taps(plan: Plan, books: Books, path: Path, dice: random.Random) -> None:
    with path.open("wb") as stream:
        for index, queue in enumerate(plan.queues):
            interval, total = queue.observe.interval_ns, 0
            for step in range(plan.duration_ns // interval if interval else 0):
                level = dice.randrange(50) if queue.role == "switch" else 0
                total += level * interval
                values = {"byte_ns": level * FULL * interval, "packet_ns": level * interval, "max_packets": level + 1}
                stream.write(sample(index, (step + 1) * interval, interval, **values, max_bytes=(level + 1) * FULL))
            if queue.observe.events:
                stream.write(event(index, 1000, 1, 0) + event(index, 2000, 2, 0))
            sent = {"offered_packets": books.packets[index], "offered_bytes": books.bytes[index]}
            sent |= {"sent_packets": books.packets[index], "sent_bytes": books.bytes[index]}
            held = {"duration_ns": plan.duration_ns, "byte_ns": total * FULL, "packet_ns": total}
            for bound_ns in plan.bounds_ns:
                stream.write(bound(index, bound_ns, duration_ns=bound_ns))
                stream.write(histogram(index, bound_ns, queue.observe.bin_bytes, [bound_ns], at_bound=True))
            stream.write(summary(index, plan.duration_ns, **held, **sent, max_packets=50 if total else 0))
            stream.write(histogram(index, plan.duration_ns, queue.observe.bin_bytes, [plan.duration_ns, 0, 0]))
