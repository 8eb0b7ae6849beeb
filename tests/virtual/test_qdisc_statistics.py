# SPDX-License-Identifier: Apache-2.0
"""Statistics of Linux's qdiscs agree with the records of the taps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from qbed.testing import CellOutput, store_tables

QDISCS = {
    "red": "red limit 150000 min 15000 max 45000 avpkt 1500 burst 20 probability 0.1 bandwidth 100mbit ecn",
    "choke": "choke limit 200 min 3 max 120 burst 5 avpkt 1500 probability 1 bandwidth 100mbit ecn",
    "codel": "codel limit 100 target 500us interval 5ms ecn",
    "fq_codel": "fq_codel limit 100 target 500us interval 5ms ecn",
    "pie": "pie limit 100 target 500us tupdate 1ms ecn",
    "fq_pie": "fq_pie limit 100 target 500us tupdate 1ms ecn",
    "cake": "cake rtt 2ms",
}
PORTS = {f"s1>h{number}": kind for number, kind in enumerate(QDISCS, 1)}


def lab() -> str:
    slow = ", ".join(f'"s1>h{number}": {{rate: 100 Mbit/s}}' for number in range(1, len(QDISCS) + 1))
    ports = ", ".join(f'"{port}": {{qdisc: "{QDISCS[kind]}"}}' for port, kind in PORTS.items())
    flows = ", ".join(f"[h{sender}, h{number}]" for number in range(1, len(QDISCS) + 1) for sender in (8, 9))
    return f"""
name: stock
topology: {{star: {{hosts: {len(QDISCS) + 2}}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 50 us}}, {slow}}}
switches: {{default: {{scheme: droptail}}, {ports}}}
hosts: {{default: {{tcp: cubic, ecn: "on"}}}}
workload: [flows: {{pairs: [{flows}], size: unlimited}}]
observe: {{statistics: 5 ms}}
duration: 600 ms
"""


def test_statistics_agree_with_the_taps(run_cell: Callable[[str], CellOutput], tmp_path: Path) -> None:
    row, table = store_tables(run_cell(lab()), tmp_path)
    assert (row["status"], row["contradictions"]) == ("complete", [])
    queues = {found["port"]: found for found in table("queues")}
    marks = {}
    for port, kind in PORTS.items():
        queue = queues[port]
        statistics = dict(queue["xstats"])
        assert queue["discipline"] == kind
        # the tap counts a mark at dequeue; packets that were marked at enqueue may be in the queue
        assert 0 <= statistics["marked"] - queue["marked_packets"] <= queue["queue_packets"], kind
        marks[kind] = statistics["marked"]
        reasons = ["dropped_early", "overlimit", "dropped_other", "dropped_for_memory", *["dropped_pairs"] * 2]
        dropped = statistics.get("dropped", sum(statistics.get(name, 0) for name in reasons))
        if "codel" not in kind:  # codel does not count drops instead of marks
            assert dropped == queue["dropped_packets"], kind
    assert sum(count > 0 for count in marks.values()) >= 6, marks
    assert 0 < dict(queues["s1>h5"]["xstats"])["probability"] < 1
    cake = queues["s1>h7"]
    assert dict(cake["xstats"])["enqueued"] == cake["sent_packets"] + cake["queue_packets"] + cake["dropped_packets"]

    series = [found for found in table("statistics") if found["statistic"] == "marked"]
    for port, kind in PORTS.items():
        of_port = [found for found in series if found["port"] == port]
        assert {found["discipline"] for found in of_port} == {kind}
        values = [found["value"] for found in of_port]
        assert len(values) > 5 and values == sorted(values) and values[-1] <= marks[kind]
        assert all(found["time_ns"] % 5_000_000 == 0 for found in of_port)
    assert {found["port"] for found in series} == set(PORTS), "a queue without statistics has rows"
