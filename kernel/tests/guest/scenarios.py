# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios of the link and the tap, run in the kernel. Each function is one boot."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from netlab import Node, Tap, attribute, link, subnet, unload

resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 16, 1 << 16))

traffic = ctypes.CDLL(os.environ["QBED_TRAFFIC"])
for function in (traffic.blast, traffic.pour, traffic.drain):
    function.restype = ctypes.c_long
    function.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_size_t)
traffic.ping.restype = traffic.now_ns.restype = ctypes.c_uint64
traffic.sleep_until_ns.argtypes = (ctypes.c_uint64,)

HEADERS = 14 + 20 + 8  # Ethernet, IPv4, UDP


def parameter(name: str) -> int:
    return int(Path(f"/sys/module/qlink/parameters/{name}").read_text())


def settle() -> None:
    """Wait until 2 s of virtual time, after which timers are exact."""
    traffic.sleep_until_ns(2_000_000_000)


def background(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def chain(hops: int, rates: list[int], delay_ns: int, extra: bytes = b"") -> tuple[list[Node], list[str]]:
    """Create a chain of nodes h0 - s - ... - hn. Returns the nodes and the addresses of both ends."""
    nodes = [Node() for _ in range(hops + 1)]
    ends = []
    for i in range(hops):
        a, b = nodes[i], nodes[i + 1]
        macs = link(a, "right", b, "left", rates[i % len(rates)], delay_ns, extra)
        ends += subnet(a, "right", b, "left", i, macs)
    for i, node in enumerate(nodes):
        node.set("net/ipv4/ip_forward", "1")
        if i < hops - 1:
            node.route(ends[-1], 32, ends[2 * i + 1])
        if i > 1:
            node.route(ends[0], 32, ends[2 * i - 2])
    return nodes, [ends[0], ends[-1]]


def udp_pair(nodes: list[Node], addresses: list[str], port: int = 9) -> tuple[socket.socket, socket.socket]:
    sink = nodes[-1].socket()
    sink.bind((addresses[1], port))
    source = nodes[0].socket()
    source.connect((addresses[1], port))
    return source, sink


def rtt() -> None:
    """Round-trip times on an idle path equal the computed ones, to the nanosecond."""
    rate, delay = 10_000_000_000, 5_000
    nodes, addresses = chain(2, [rate], delay)
    settle()
    for size in (18, 56, 98, 500, 1000, 1042, 1472):
        source, sink = udp_pair(nodes, addresses)
        thread = background(lambda s=sink, n=size: traffic.echo(s.fileno(), 10, n))
        total = traffic.ping(source.fileno(), 10, size)
        thread.join()
        wire = round((size + HEADERS) * 8e9 / rate)
        expected = 10 * 4 * (delay + wire)
        print("rtt", size, total, expected, total - expected)
        assert total == expected, (size, total, expected)
        source.close()
        sink.close()
    assert parameter("late_ns") == 0


def rate() -> None:
    """A busy link carries exactly its rate, also if frame times are not whole nanoseconds."""
    for rate in (10_000_000_000, 9_999_999_937, 1_000_000_000, 123_456_789):
        nodes, addresses = chain(1, [rate], 5_000)
        source, sink = udp_pair(nodes, addresses)
        tap = Tap()
        settle()
        start = traffic.now_ns()
        tap.attach(nodes[0], "right", 0, events=True)
        count, size = 20_000, 1472
        frame = size + HEADERS
        assert traffic.blast(source.fileno(), count, size) == count
        time.sleep(1)
        events = [record for record in tap.flush() if record.kind == "event" and record["op"] == 2]
        tap.detach()
        assert len(events) == count
        begin = events[0]["time_ns"]
        worst = 0.0
        for number, event in enumerate(events):
            exact = number * frame * 8 * 10**9 / rate
            worst = max(worst, abs(event["time_ns"] - begin - exact))
        print("rate", rate, "worst deviation", worst, "ns of", events[-1]["time_ns"] - begin, "start", start)
        assert worst <= 0.5000001, worst
        assert nodes[0].qlink("right")[11] == count
        source.close()
        sink.close()


def speed(packets: int, hops: int, size: int = 958, tapped: int = 0) -> None:
    """Send packets through a chain. There is no assertion on speed: the host measures the wall-clock time."""
    nodes, addresses = chain(hops, [10_000_000_000], 5_000)
    for node in nodes[:-1]:
        node.qdisc("right", "pfifo", struct.pack("<I", 1000))
    tap = Tap()
    if tapped:
        for i, node in enumerate(nodes[:-1]):
            tap.attach(node, "right", i, interval_ns=1_000_000, events=tapped > 1)
    source, _sink = udp_pair(nodes, addresses)
    settle()
    nodes[0].enter()
    begin = traffic.now_ns()
    traffic.blast(source.fileno(), packets, size)
    print("virtual", traffic.now_ns() - begin, nodes[0].qlink("right")[11], nodes[-2].qlink("right")[11])
    if tapped:
        for record in tap.flush():
            if record.kind == "summary":
                print(record)
    assert parameter("late_ns") == 0


def tcp(megabytes: int, tapped: int = 0) -> None:
    nodes, addresses = chain(2, [10_000_000_000], 5_000)
    for node, interface in ((0, "right"), (1, "right"), (1, "left"), (2, "left")):
        nodes[node].qdisc(interface, "pfifo", struct.pack("<I", 1000))
    tap = Tap()
    if tapped:
        for i, (node, interface) in enumerate(((0, "right"), (1, "right"), (1, "left"), (2, "left"))):
            tap.attach(nodes[node], interface, i, interval_ns=1_000_000, events=tapped > 1)
    settle()
    listener = nodes[2].socket(socket.SOCK_STREAM)
    listener.bind((addresses[1], 5001))
    listener.listen()
    total = megabytes * 1_000_000
    source = nodes[0].socket(socket.SOCK_STREAM)
    done: list[int] = []

    def receive() -> None:
        connection, _ = listener.accept()
        assert traffic.drain(connection.fileno(), total, 1 << 18) == total
        done.append(traffic.now_ns())

    thread = background(receive)
    begin = traffic.now_ns()
    source.settimeout(3)
    source.connect((addresses[1], 5001))
    source.settimeout(None)
    assert traffic.pour(source.fileno(), total, 1 << 18) == total
    thread.join()
    print("tcp goodput", round(total * 8 / (done[0] - begin), 4), "Gbit/s", nodes[0].qlink("right"))
    if tapped:
        print(len(tap.flush()), "records")
    assert parameter("late_ns") == 0


def many(links: int, rounds: int = 0, burst: int = 4, tapped: int = 0) -> None:
    """A star of links around one switch, with bursts from every other host to its neighbour, all at once."""
    switch = Node()
    switch.set("net/ipv4/ip_forward", "1")
    hosts, addresses = [], []
    tap = Tap()
    for i in range(links):
        host = Node()
        macs = link(host, "eth0", switch, f"p{i}", 10_000_000_000, 5_000)
        a, b = subnet(host, "eth0", switch, f"p{i}", i, macs)
        host.route("0.0.0.0", 0, b)
        if tapped:
            tap.attach(host, "eth0", 2 * i)
            tap.attach(switch, f"p{i}", 2 * i + 1)
        hosts.append(host)
        addresses.append(a)
    settle()
    sinks, sources = [], []
    for i in range(0, links - 1, 2):
        sinks.append(hosts[i + 1].socket())
        sinks[-1].bind((addresses[i + 1], 9))
        sources.append(hosts[i].socket())
        sources[-1].connect((addresses[i + 1], 9))
    fds = (ctypes.c_int * len(sources))(*(source.fileno() for source in sources))
    sent = traffic.scatter(
        fds, len(sources), rounds, burst, ctypes.c_size_t(958), ctypes.c_uint64(10_000 + 2_000 * burst)
    )
    print("packet-hops", 2 * sent)
    print("late", parameter("late_ns"))
    assert parameter("late_ns") == 0


def drops(kind: int) -> None:
    """A bottleneck that drops and marks: the packet accounting is consistent, and integrals agree with the events."""
    kinds = {
        0: ("pfifo", struct.pack("<I", 50)),
        1: ("bfifo", struct.pack("<I", 50_000)),
        2: ("ecn", attribute(2, 100) + attribute(4, 20)),
        3: ("qcodel", attribute(2, 100) + attribute(3, 50_000, 8) + attribute(4, 200_000, 8) + attribute(5, 0)),
        4: ("qcodel", attribute(2, 100) + attribute(3, 50_000, 8) + attribute(4, 200_000, 8) + attribute(5, 1)),
        5: ("codel", attribute(1, 50) + attribute(2, 100) + attribute(3, 200)),
        6: ("fq_codel", attribute(1, 50) + attribute(2, 100) + attribute(3, 200)),
        7: ("pfifo_head_drop", struct.pack("<I", 50)),
        8: ("pfifo_fast", b""),
    }
    name, options = kinds[kind]
    nodes, addresses = chain(2, [10_000_000_000, 1_000_000_000], 5_000)
    for node in nodes:
        node.set("net/ipv4/tcp_ecn", "1")
    nodes[1].qdisc("right", name, options)
    tap = Tap()
    start = 2_000_000_000
    tap.attach(nodes[1], "right", 0, start_ns=start, interval_ns=100_000, events=True, end_ns=start + 30_000_000)
    settle()
    listener = nodes[2].socket(socket.SOCK_STREAM)
    listener.bind((addresses[1], 5001))
    listener.listen()
    sources = []
    for _ in range(2):
        source = nodes[0].socket(socket.SOCK_STREAM)
        source.connect((addresses[1], 5001))
        connection, _ = listener.accept()
        sources.append((source, connection))
    total = 3_000_000
    threads = [background(lambda c=c: traffic.drain(c.fileno(), total, 1 << 16)) for _, c in sources]
    threads += [background(lambda s=s: traffic.pour(s.fileno(), total, 1 << 16)) for s, _ in sources]
    for thread in threads:
        thread.join()
    traffic.sleep_until_ns(start + 40_000_000 + 1)
    found = tap.flush()
    check_accounting(found, name)
    tap.detach()


def check_accounting(found: list[dict[str, int]], name: str) -> None:
    samples = [r for r in found if r.kind == "sample"]
    events = [r for r in found if r.kind == "event"]
    summary = next(r for r in found if r.kind == "summary")
    histogram = next(r for r in found if r.kind == "histogram")
    print(name, summary, len(events), "events", len(samples), "samples")
    for unit in ("packets", "bytes"):
        assert summary[f"offered_{unit}"] == (
            summary[f"sent_{unit}"] + summary[f"dropped_{unit}"] + summary[f"queue_{unit}"]
        )
    # samples are contiguous and add up
    assert [s["time_ns"] for s in samples] == [100_000 * (i + 1) for i in range(300)]
    assert all(s["interval_ns"] == 100_000 for s in samples)
    for key in ("byte_ns", "packet_ns"):
        assert sum(s[key] for s in samples) == summary[key]
    for key, total in (
        ("dequeued", "sent_packets"),
        ("dequeued_bytes", "sent_bytes"),
        ("dropped", "dropped_packets"),
        ("marked", "marked_packets"),
    ):
        assert sum(s[key] for s in samples) == summary[total], key
    assert max(s["max_bytes"] for s in samples) == summary["max_bytes"]
    assert sum(histogram.bins) == summary["duration_ns"] == 30_000_000
    # events: brute force over every packet
    waiting: dict[int, int] = {}
    queue_bytes = byte_ns = last = 0
    numbers: dict[int, list[int]] = {1: [], 2: [], 3: [], 4: []}
    for event in events:
        byte_ns += queue_bytes * (event["time_ns"] - last)
        last = event["time_ns"]
        number, op = event["packet"], event["op"]
        assert number < 1 << 63, "unknown packet"
        numbers[op].append(number)
        if op == 1:
            waiting[number] = event["bytes"]
        elif op == 2 or (op == 3 and number in waiting):
            assert waiting.pop(number) == event["bytes"]
        queue_bytes = event["queue_bytes"]
        if op != 4:
            assert queue_bytes == sum(waiting.values()) and event["queue_packets"] == len(waiting), event
    byte_ns += queue_bytes * (summary["duration_ns"] - last)
    assert byte_ns == summary["byte_ns"], (byte_ns, summary["byte_ns"])
    assert len(numbers[2]) == summary["sent_packets"]
    assert len(numbers[3]) == summary["dropped_packets"]
    assert len(numbers[4]) == summary["marked_packets"]
    if name == "ecn":
        seen = {}
        for event in events:
            if event["op"] == 1 and event["ecn"]:
                # more than 20 packets on arrival, excluding the arriving one
                assert (event["ecn"] == 3) == (event["queue_packets"] - 1 > 20), event
                seen[event["ecn"]] = seen.get(event["ecn"], 0) + 1
        print("ecn", seen)
        assert seen[3] > 10


def upheaval() -> None:
    """Qdiscs, links, namespaces and modules are added and removed under traffic; the packet accounting stays
    consistent.
    """
    nodes, addresses = chain(2, [1_000_000_000], 50_000, attribute(5, 1 << 29))  # loses 1 in 8
    tap = Tap()
    tap.attach(nodes[0], "right", 0, interval_ns=1_000_000, events=True)
    tap.attach(nodes[1], "right", 1)
    tap.attach(nodes[1], "left", 2)
    refused(lambda: tap.attach(nodes[1], "left", 3), "already tapped")
    refused(lambda: tap.attach(nodes[1], "lo", 3), "no root queue")
    settle()
    source, sink = udp_pair(nodes, addresses)
    thread = background(lambda: traffic.blast(source.fileno(), 20_000, 958))
    for i, (kind, options) in enumerate(
        (
            ("pfifo", struct.pack("<I", 100)),
            ("fq_codel", b""),
            ("bfifo", struct.pack("<I", 9000)),
            ("ecn", attribute(2, 30) + attribute(4, 3)),
            ("qcodel", attribute(1, 100_000)),
        )
    ):
        traffic.sleep_until_ns(2_010_000_000 + i * 10_000_000)
        nodes[0].qdisc("right", kind, options)
        nodes[1].qdisc("right", kind, options)
    nodes[0].qdisc("right", "ecn", attribute(2, 2))
    nodes[0].qdisc("right", "qcodel", attribute(1, 3000))
    traffic.sleep_until_ns(2_070_000_000)
    nodes[1].up("right", False)
    traffic.sleep_until_ns(2_080_000_000)
    nodes[1].up("right", True)
    thread.join()
    traffic.sleep_until_ns(4_000_000_000)
    summaries = [record for record in tap.flush() if record.kind == "summary"]
    for summary in summaries:
        print(summary)
        for unit in ("packets", "bytes"):
            assert summary[f"offered_{unit}"] == (
                summary[f"sent_{unit}"] + summary[f"dropped_{unit}"] + summary[f"queue_{unit}"]
            )
    assert len(summaries) == 3 and summaries[0]["dropped_packets"] and summaries[1]["sent_packets"]
    counters = nodes[0].qlink("right")
    print(counters)
    assert counters[10] == counters[11] + counters[12]
    assert 0.1 < counters[12] / counters[10] < 0.15
    # remove a link while packets are in the transmitter and on the wire
    traffic.blast(source.fileno(), 50, 958)
    nodes[0].netlink.request(17, struct.pack("<BxHiII", 0, 0, nodes[0].index("right"), 0, 0))
    refused(lambda: nodes[1].index("left"), "the peer was removed as well")
    macs = link(nodes[0], "right", nodes[1], "left", 10**9, 1000)
    _, gateway = subnet(nodes[0], "right", nodes[1], "left", 0, macs)
    nodes[0].route(addresses[1], 32, gateway)
    tap.attach(nodes[0], "right", 7, events=True)
    again, _ = udp_pair(nodes, addresses, 10)
    traffic.blast(again.fileno(), 50, 958)
    # remove a namespace with a tapped device
    for closing in (again, source):
        closing.close()
    nodes[0].netlink.socket.close()
    os.close(nodes[0].namespace)
    nodes[1].enter()
    traffic.sleep_until_ns(6_000_000_000)
    refused(lambda: nodes[1].index("left"), "the peer was removed with the namespace")
    last = [record for record in tap.flush() if record["id"] == 7 and record.kind == "summary"]
    assert last[0]["sent_packets"] == 50, last
    tap.detach()
    tap.attach(nodes[1], "right", 8)
    for thing in (sink, _):
        thing.close()
    os.close(tap.stream)
    unload("qtap")
    unload("qlink")
    refused(lambda: nodes[1].index("right"), "the module was removed")


def refused(action: Callable[[], object], reason: str) -> None:
    try:
        action()
    except OSError:
        return
    raise AssertionError(f"not refused: {reason}")


def warned() -> None:
    """A message like a warning of the kernel: kernel/tests/guest/run has to fail."""
    Path("/dev/kmsg").write_text("<4>WARNING: of a test\n")
