# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios of qp4, run in the kernel, with the program of crates/p4kernel/examples/guest.rs.

Each function is one boot.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from netlab import Node, Tap, link, load, unload
from p4_switch import NO_CPU_PORT, Switch, Wire
from scenarios import background, chain, settle, traffic, udp_pair

MS = 1_000_000
GBIT = 10**9
DROP, FORWARD, FLOOD, MIRROR, SHADOW, RESUBMIT, RECIRCULATE, SPIN, WHIRL, CUT, REPORT, SWELL, BOUNCE, STRIP = range(14)
TO_CPU, FLOOD_CPU, MIRROR_CPU, CPU_PORT = 20, 21, 22, 510
NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 0, 1, 2, 4, 5, 6
TO_PORT = 100
PACKET = 4  # kind of a switch's event
DEQUEUED, DROPPED = 2, 3  # operations of a tap's events
SENT = 10  # attribute of a qlink


def read_input(name: str) -> bytes:
    return (Path(os.environ["QBED_P4"]) / name).read_bytes()


def items(data: bytes) -> Iterator[bytes]:
    while data:
        (length,) = struct.unpack_from("<I", data)
        yield data[4 : 4 + length]
        data = data[4 + length :]


def wait(milliseconds: float) -> None:
    traffic.sleep_until_ns(traffic.now_ns() + int(milliseconds * MS))


class Lab:
    """A P4 switch with three hosts at ports 0, 1 and 2, and `limit` packets of queue at each."""

    def __init__(self, rates: tuple[int, ...] = (GBIT, GBIT, GBIT), limit: int = 1000, program: bool = True) -> None:
        self.node = Node()
        self.hosts = []
        self.wires = []
        for number, rate in enumerate(rates):
            host = Node()
            link(self.node, f"p{number}", host, "eth0", rate, 1000)
            self.node.qdisc(f"p{number}", "pfifo", struct.pack("<I", limit))
            self.hosts.append(host)
            self.wires.append(Wire(host, "eth0"))
        self.switch = Switch(self.node)
        for number in range(len(rates)):
            self.switch.attach(number, f"p{number}")
        if program:
            self.switch.load(read_input("image"))
            for request in items(read_input("requests")):
                assert self.switch.control(request) == b"\0", request

    def send(self, destination: int, payload: bytes = bytes(50), port: int = 0) -> bytes:
        frame = bytes((2, 0, 0, 0, 0, destination)) + bytes(8) + payload
        self.wires[port].send(frame)
        return frame

    def received(self) -> list[list[bytes]]:
        return [wire.received() for wire in self.wires]

    def exchange(self, destination: int, payload: bytes = bytes(50)) -> list[list[bytes]]:
        """Send one packet to port 0. Returns the frames received at each port."""
        self.send(destination, payload)
        wait(1)
        return self.received()


def metadata(frame: bytes) -> tuple[int, int, int, int, int]:
    """The metadata that the program writes: queue length at enqueue and at dequeue, number of the copy, kind of the
    packet, us in the queue.
    """
    return struct.unpack_from(">HHBBH", frame, 6)


def kinds(frames: list[list[bytes]]) -> list[list[tuple[int, int, int]]]:
    """Number of the copy, kind and length of each frame, per port."""
    return [[(*metadata(frame)[2:4], len(frame)) for frame in port] for port in frames]


def same() -> None:
    """1,000 packets are processed as by the same engine in user space, byte for byte."""
    lab = Lab()
    expected: list[list[bytes]] = [[], [], []]
    for frame, sent in zip(items(read_input("packets")), items(read_input("sent")), strict=True):
        lab.wires[0].send(frame)
        wait(0.05)  # queues are empty again
        if sent:
            expected[struct.unpack_from("<H", sent)[0]].append(sent[2:])
    wait(1)
    received = lab.received()
    assert [len(port) for port in received] == [len(port) for port in expected]
    assert received == expected
    count = sum(map(len, expected))
    assert 400 < count < 800, count
    assert lab.switch.counters() == {"received": 1000, "sent": count}, lab.switch.counters()


def copies() -> None:
    """Multicast, clones of ingress and egress, resubmitted, recirculated and truncated packets."""
    lab = Lab()
    assert kinds(lab.exchange(FORWARD)) == [[], [(0, NORMAL, 64)], []]
    assert kinds(lab.exchange(FLOOD)) == [[], [(41, REPLICATED, 64)], [(42, REPLICATED, 64)]]
    assert kinds(lab.exchange(MIRROR)) == [[], [(0, NORMAL, 64)], [(42, INGRESS_CLONE, 40)]]
    assert kinds(lab.exchange(SHADOW)) == [[], [(0, NORMAL, 64)], [(42, EGRESS_CLONE, 40)]]
    assert kinds(lab.exchange(RESUBMIT)) == [[], [(0, NORMAL, 64)], []]
    assert kinds(lab.exchange(RECIRCULATE)) == [[], [(0, NORMAL, 64)], []]
    assert kinds(lab.exchange(CUT, bytes(1000))) == [[], [(0, NORMAL, 64)], []]
    assert kinds(lab.exchange(DROP)) == kinds(lab.exchange(77)) == [[], [], []]
    counters = lab.switch.counters()
    assert counters == {"received": 9, "sent": 10}, counters


def cut() -> None:
    """A queued packet has its length on the wire; truncated bytes are restored where egress needs them."""
    lab = Lab()
    tap = Tap()
    for port in range(3):
        tap.attach(lab.node, f"p{port}", port, events=True)
    payload = bytes(k & 255 for k in range(1000))
    assert kinds(lab.exchange(CUT, payload)) == [[], [(0, NORMAL, 64)], []]
    assert kinds(lab.exchange(MIRROR, payload)) == [[], [(0, NORMAL, 1014)], [(42, INGRESS_CLONE, 40)]]
    assert kinds(lab.exchange(SHADOW, payload)) == [[], [(0, NORMAL, 1014)], [(42, EGRESS_CLONE, 40)]]
    assert lab.exchange(STRIP, payload) == [[], [payload[:64]], []]
    assert lab.exchange(STRIP, payload[:55]) == [[], [payload[:55]], []]
    events = [r for r in tap.flush() if r.kind == "event" and r["op"] == DEQUEUED]
    assert [r["bytes"] for r in events if r["id"] == 1] == [64, 1014, 1014, 64, 64], events
    assert [r["bytes"] for r in events if r["id"] == 2] == [40, 40], events
    tap.detach()
    netem = struct.pack("<6I", 0, 1000, 0, 0, 0xFFFFFFFF, 0)  # every packet twice
    lab.node.qdisc("p1", "netem", netem)
    assert lab.exchange(STRIP, payload) == [[], [payload[:64]] * 2, []]


def endless() -> None:
    """Endless loops in a program: the packet is dropped and the lab continues."""
    lab = Lab()
    for number, destination in enumerate((SPIN, WHIRL, SWELL), start=1):
        assert lab.exchange(destination) == [[], [], []]
        assert lab.switch.counters()["too_many_rounds"] == number, lab.switch.counters()
    assert kinds(lab.exchange(FORWARD)) == [[], [(0, NORMAL, 64)], []]


def queued() -> None:
    """Queue lengths and times equal the computed ones and those of a tap."""
    lab = Lab(rates=(10 * GBIT, GBIT, GBIT), limit=30)
    tap = Tap()
    tap.attach(lab.node, "p1", 0, events=True)
    for _ in range(60):
        lab.send(TO_PORT + 1, bytes(1236))  # 1,250 bytes: 10 us at port 1, and 1 us at port 0
    wait(2)
    frames = lab.received()[1]
    # packet k arrives at k us: the first is sent at once, the others every 10 us
    expected, queue, free = [], [], 0
    for arrival in range(60):
        while queue and queue[0][0] <= arrival:
            queue.pop(0)
        if len(queue) == 30:
            continue
        departure = max(arrival, free)
        free = departure + 10
        if departure > arrival:
            queue.append((departure, arrival))
        expected.append((len(queue) - (departure > arrival), departure - arrival))
    assert [(metadata(frame)[0], metadata(frame)[4]) for frame in frames] == expected, [
        metadata(frame) for frame in frames
    ]
    events = [r for r in tap.flush() if r.kind == "event"]
    tap.detach()
    assert [metadata(frame)[1] for frame in frames] == [r["queue_packets"] for r in events if r["op"] == DEQUEUED]
    dropped = 60 - len(frames)
    assert dropped > 0 and sum(r["op"] == DROPPED for r in events) == dropped, dropped
    counters = lab.switch.counters()
    assert counters == {"received": 60, "sent": 60 - dropped, "refused": dropped}, counters


def duplicated() -> None:
    """A queue that duplicates packets: each copy passes egress separately."""
    lab = Lab()
    options = struct.pack("<6I", 0, 1000, 0, 0, 0xFFFFFFFF, 0)  # netem: duplicate every packet
    lab.node.qdisc("p1", "netem", options)
    lab.send(FORWARD, bytes(1000))
    lab.send(SHADOW, bytes(1000))
    wait(5)
    assert sorted(map(len, lab.received()[1])) == [1014] * 4
    assert lab.switch.counters()["sent"] == 6, lab.switch.counters()


def refused(error: int, message: str, action: object) -> None:
    try:
        action()  # type: ignore[operator]
    except OSError as raised:
        assert (raised.errno, raised.strerror) == (error, message), raised
    else:
        raise AssertionError(f"not refused: {message}")


def asked_badly() -> None:
    """Invalid requests get an error message and the loaded program stays. A truncated request fails in write()."""
    lab = Lab()
    switch = lab.switch
    refused(errno.ENODEV, "no such interface", lambda: switch.attach(4, "p9"))
    refused(errno.EEXIST, "the port has an interface", lambda: switch.attach(1, "p2"))
    refused(errno.EBUSY, "the interface belongs to a switch or a bridge", lambda: switch.attach(4, "p2"))
    refused(errno.EINVAL, "the interface is not a qlink", lambda: switch.attach(4, "lo"))
    refused(errno.ERANGE, "expected a port from 0 to 510", lambda: switch.attach(511, "p2"))
    refused(errno.EINVAL, "expected the name of an interface", lambda: switch.attach(4, "x" * 16))
    refused(errno.ENOENT, "no such port", lambda: switch.detach(4))
    refused(errno.EOPNOTSUPP, "no such command", lambda: switch.request(77))
    refused(errno.EINVAL, "not a request to a program", lambda: switch.control(b"\xff\xff"))
    message = "the image is not a program of this version"
    refused(errno.EINVAL, message, lambda: switch.load(read_input("image")[:100]))
    message = "registers, counters and meters need more memory than is available"
    refused(errno.EINVAL, message, lambda: switch.load(read_input("large")))
    with contextlib.suppress(OSError):
        os.write(switch.device, b"1234567")
        raise AssertionError("a request without a header was accepted")
    assert kinds(lab.exchange(FORWARD)) == [[], [(0, NORMAL, 64)], []]
    empty = Lab(program=False)
    refused(errno.ENOENT, "no program is loaded", lambda: empty.switch.control(b"\0"))
    empty.exchange(FORWARD)
    assert empty.switch.counters() == {"received": 1, "no_program": 1}


def hostile(images: int) -> None:
    """Corrupted images and requests are refused or executed; none crashes the kernel."""
    lab, image = Lab(), read_input("image")
    requests = list(items(read_input("requests")))
    rng = random.Random(13)
    loaded = 0
    for _ in range(images):
        changed = bytearray(image)
        for _ in range(rng.choice((1, 1, 2, 8))):
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        try:
            lab.switch.load(bytes(changed[: rng.choice((len(changed), rng.randrange(len(changed))))]))
        except OSError as error:
            assert error.errno == errno.EINVAL and error.strerror, error
            continue
        loaded += 1
        for request in requests:
            spoiled = bytearray(request)
            spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
            for message in (request, bytes(spoiled)):
                with contextlib.suppress(OSError):
                    lab.switch.control(message)
        for destination in range(12):
            lab.send(destination, bytes(rng.randrange(200)))
        wait(1)
        lab.received()
        lab.switch.events()
    print("loaded", loaded, "of", images, lab.switch.counters())
    assert 0 < loaded < images


def reported() -> None:
    """Digests can be read in order. If the queue is full, they are counted and dropped."""
    lab = Lab()
    lab.exchange(REPORT)
    lab.exchange(REPORT)
    first, second = lab.switch.events()
    assert (first.kind, first.id, first.bytes) == (1, 7, bytes((2, 0, 0, 0, 0, REPORT)))
    assert second.time_ns - first.time_ns > MS and not lab.switch.events()
    for _ in range(5000):
        lab.send(REPORT)
        wait(0.001)
    wait(5)
    assert lab.switch.counters()["events_lost"] == 904
    assert len(lab.switch.events(10_000)) == 4096


def packets_in_and_out() -> None:
    """Packets sent to the CPU port become events, through egress and without a queue; packets can be injected on it."""
    lab = Lab()
    switch = lab.switch
    assert lab.exchange(TO_CPU) == [[], [], []] and switch.counters()["no_port"] == 1 and not switch.events()
    refused(errno.ENOENT, "the switch has no CPU port", lambda: switch.packet_out(bytes(64)))
    refused(errno.ERANGE, "expected a port from 0 to 510, or 511 for none", lambda: switch.cpu_port(512))
    refused(errno.EEXIST, "the port has an interface", lambda: switch.cpu_port(1))
    switch.cpu_port(CPU_PORT)
    refused(errno.EEXIST, "the port is the CPU port", lambda: switch.attach(CPU_PORT, "p2"))
    refused(errno.EMSGSIZE, "a packet has 1 to 65535 bytes", lambda: switch.packet_out(b""))
    assert lab.exchange(TO_CPU, bytes(range(50))) == [[], [], []]
    assert kinds(lab.exchange(FLOOD_CPU)) == [[], [(41, REPLICATED, 64)], []]
    assert kinds(lab.exchange(MIRROR_CPU)) == [[], [(0, NORMAL, 64)], []]
    lab.send(REPORT)
    wait(1)
    first, *others, digest = switch.events()
    assert (first.kind, first.id, first.bytes[14:]) == (PACKET, CPU_PORT, bytes(range(50)))
    assert metadata(first.bytes) == (0, 0, 0, NORMAL, 0)
    assert [metadata(event.bytes)[2:4] for event in others] == [
        (CPU_PORT + 40 & 255, REPLICATED),
        (CPU_PORT + 40 & 255, 1),
    ]
    assert (digest.kind, digest.id) == (1, 7) and digest.time_ns > others[1].time_ns > first.time_ns
    packet = bytes((2, 0, 0, 0, 0, BOUNCE)) + bytes(8) + b"back to who sent it"
    switch.packet_out(packet)
    (bounced,) = switch.events()
    assert (bounced.id, bounced.bytes[14:]) == (CPU_PORT, packet[14:])
    switch.packet_out(bytes((2, 0, 0, 0, 0, TO_PORT + 2)) + bytes(60_000))
    switch.packet_out(b"x")  # too short for the parser
    wait(1)
    assert [[len(frame) for frame in port] for port in lab.received()] == [[], [], [60_006]]
    for _ in range(1100):
        switch.packet_out(packet)
    counters = switch.counters()
    assert (counters["packets_in"], counters["packets_in_lost"], counters["packets_out"]) == (1104, 76, 1103), counters
    assert len(switch.events(10_000)) == 1024 and not switch.events()
    switch.cpu_port(NO_CPU_PORT)
    assert lab.exchange(TO_CPU) == [[], [], []] and switch.counters()["no_port"] == 2


def replaced() -> None:
    """A program is replaced: queued packets pass the old one's egress, new ones enter the new one without entries."""
    lab = Lab(rates=(10 * GBIT, GBIT, GBIT))
    for _ in range(20):
        lab.send(TO_PORT + 1, bytes(1236))
    wait(0.03)
    lab.switch.load(read_input("image"))
    lab.send(TO_PORT + 1)
    wait(2)
    frames = lab.received()[1]
    assert len(frames) == 20 and metadata(frames[-1])[4] == 171, [metadata(frame) for frame in frames]


def ports_come_and_go() -> None:
    """A port that is down, detached or deleted, and a packet sent through a port, but not by the program."""
    lab = Lab()
    lab.node.up("p1", False)
    assert lab.exchange(FORWARD) == [[], [], []] and lab.switch.counters()["no_port"] == 1
    lab.node.up("p1")
    lab.node.enter()
    Wire(lab.node, "p1").send(bytes(60))
    wait(1)
    assert lab.received() == [[], [], []] and lab.switch.counters()["foreign"] == 1
    lab.switch.detach(1)
    assert lab.exchange(FORWARD) == [[], [], []] and lab.switch.counters()["no_port"] == 2
    lab.switch.attach(1, "p1")
    assert kinds(lab.exchange(FORWARD)) == [[], [(0, NORMAL, 64)], []]
    lab.node.netlink.request(17, struct.pack("<BxHiII", 0, 0, lab.node.index("p1"), 0, 0))
    lab.send(FORWARD)
    wait(1)
    assert lab.switch.counters()["no_port"] == 3, lab.switch.counters()
    refused(errno.ENOENT, "no such port", lambda: lab.switch.detach(1))


def controlled() -> None:
    """A controller in the guest loads a program by P4Runtime, learns an address from a digest and adds an entry.

    Packets that the program sends to the controller are sent back to the switch.
    """
    lab = Lab(program=False)
    lab.node.enter()
    commands = json.loads(read_input("controller.json"))
    *command, _ = commands["server"]
    refused = subprocess.run([*command, "1"], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stderr) == (1, "p4switch: /dev/qp4: --cpu-port 1: the port has an interface\n")
    with contextlib.ExitStack() as running:
        for command in commands.values():
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            running.callback(process.kill)
            wait(100)  # until the server listens
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        frame = struct.pack("!HIHH", 0x0101, 77, 0, 5) + bytes(50)
        lab.wires[1].send(frame)
        before_us = traffic.now_ns() // 1000
        learned, address, port, seen_us = process.stdout.readline().split()
        assert (learned, address, port) == ("learned", "77", "1")
        assert before_us - 1000 < int(seen_us) < before_us + 1000, (before_us, seen_us)
        assert lab.received() == [[frame], [], []], "without an entry the frame is sent to port 0"
        lab.wires[1].send(frame)
        wait(1)
        assert lab.received() == [[], [], [frame]]
        returned = bytes(2) + frame[2:]
        lab.wires[1].send(returned)
        assert process.stdout.readline() == "packet-in 1\n"
        wait(1)
        assert lab.received() == [[], [], [returned]]
        counters = lab.switch.counters()
        assert (counters["packets_in"], counters["packets_out"]) == (1, 1), counters


def faulty() -> None:
    """The engine panics on a failed allocation, and with it the guest."""
    lab = Lab()
    assert kinds(lab.exchange(FORWARD)) == [[], [(0, NORMAL, 64)], []]
    Path("/sys/module/qp4/parameters/fail_after").write_text("1")
    lab.switch.control(next(items(read_input("requests"))))
    print("still here")


def removed_while_packets_wait() -> None:
    """Queued packets of a detached port are sent without egress, and through egress if it is attached again. Removing
    the device drops them.
    """
    lab = Lab(rates=(10 * GBIT, 10**6, GBIT))
    for _ in range(100):
        lab.send(TO_PORT + 1, bytes(1236))  # 10 ms each at port 1
    wait(0.2)
    lab.switch.detach(1)
    wait(35)
    first, *others = (metadata(frame) for frame in lab.received()[1])
    assert first[3] == NORMAL and first[1] == 0 and others == [(0, 0, 0, 0, 0)] * 2, (first, others)
    assert lab.switch.counters()["sent"] == 1
    lab.switch.attach(1, "p1")
    wait(30)
    lengths = [metadata(frame)[1] for frame in lab.received()[1]]
    assert lengths == [0, 95, 94], lengths  # the first one was already in transmission
    lab.node.netlink.request(17, struct.pack("<BxHiII", 0, 0, lab.node.index("p1"), 0, 0))
    lab.send(TO_PORT + 2)
    wait(30)
    assert len(lab.wires[2].received()) == 1 and lab.switch.counters()["sent"] == 5, lab.switch.counters()
    refused(errno.ENOENT, "no such port", lambda: lab.switch.detach(1))


def free_kb() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])


def switches_gone() -> None:
    """Namespaces with switches, with packets in their queues, and the module are removed without a memory leak."""
    available, other = [], Node()
    for _ in range(12):
        lab = Lab(rates=(10 * GBIT, 10**6, GBIT))
        for _ in range(200):
            lab.send(TO_PORT + 1, bytes(1236))
        wait(0.1)
        lab.switch.close()
        for node in (lab.node, *lab.hosts):
            node.netlink.socket.close()
            os.close(node.namespace)
        for wire in lab.wires:
            wire.socket.close()
        other.enter()
        del lab
        wait(200)
        available.append(free_kb())
    print(available)
    assert available[3] - available[-1] < 1000, available
    unload("qp4")
    load(os.environ["QBED_MODULES"] + "/qp4.ko")
    assert kinds(Lab().exchange(FORWARD)) == [[], [(0, NORMAL, 64)], []]


def hosts_and_switch(program: bool) -> tuple[list[Node], list[str]]:
    """Two hosts, and between them Linux's IP forwarding or a program (the example `routed`)."""
    nodes, addresses = chain(2, [10 * GBIT], 5_000)
    for interface in ("left", "right"):
        nodes[1].qdisc(interface, "pfifo", struct.pack("<I", 1000))
    if program:
        switch = Switch(nodes[1])
        for port, interface in enumerate(("left", "right")):
            switch.attach(port, interface)
        switch.load(read_input("image"))
        for request in items(read_input("requests")):
            assert switch.control(request) == b"\0", request
    settle()
    return nodes, addresses


def checksums(captured: int, hops: int) -> None:
    """Datagrams and a stream arrive with valid checksums, which the senders leave to their devices.

    `captured` is the node that captures packets between the switch (1) and the receiver (2), if any. `hops` is how
    often the program stamps a datagram with a congestion header.
    """
    nodes, addresses = hosts_and_switch(program=True)
    wire = Wire(nodes[captured], "right" if captured == 1 else "left") if captured else None
    generator = random.Random(1)
    source, sink = udp_pair(nodes, addresses)
    for size in (0, 1, 18, 1000, 1471, 1472, 3000):
        source.send(sent := generator.randbytes(size))
        assert sink.recv(4000) == sent
    source, sink = udp_pair(nodes, addresses, 6190)
    signal = bytes((1, 1, 0, 3, 0, 8, 0, 0)) + generator.randbytes(48) + bytes(32)  # data, maximum, 8 bits
    for size in (len(signal), 100, 1472):
        source.send(signal + bytes(size - len(signal)))
        received = sink.recv(4000)
        assert len(received) == size and received[6] == hops, received[:88].hex()
    stream(nodes, addresses, 1 << 20)
    nodes[2].enter()
    counters = Path("/proc/thread-self/net/snmp").read_text().splitlines()
    for names, values in zip(counters[::2], counters[1::2], strict=True):
        found = dict(zip(names.split(), values.split(), strict=True))
        assert found.get("InCsumErrors", "0") == "0", found
    if wire and captured == 2:
        frames = wire.received()
        assert sum(map(has_valid_checksum, frames)) > 700, len(frames)
    sink.close()


def has_valid_checksum(frame: bytes) -> bool:
    """Whether a frame has a checksum of TCP or UDP, which is valid; a fragment has none."""
    packet = frame[14 : 14 + int.from_bytes(frame[16:18])]
    if frame[12:14] != b"\x08\0" or packet[9] not in (6, 17) or int.from_bytes(packet[6:8]) & 0x3FFF:
        return False
    covered = packet[12:20] + bytes((0, packet[9])) + (len(packet) - 20).to_bytes(2) + packet[20:]
    covered += bytes(len(covered) % 2)
    assert sum(struct.unpack(f">{len(covered) // 2}H", covered)) % 0xFFFF == 0, packet.hex()
    return True


def routed(program: int, packets: int, payload: int, megabytes: int) -> None:
    """Send datagrams, then a stream, through Linux's IP forwarding or a program: bench/p4.py."""
    nodes, addresses = hosts_and_switch(bool(program))
    source, sink = udp_pair(nodes, addresses)
    assert traffic.blast(source.fileno(), packets, payload) == packets
    wait(10)
    sent = [nodes[hop].qlink("right")[SENT] for hop in (0, 1)]
    assert sent == [packets, packets], sent
    if megabytes:
        stream(nodes, addresses, megabytes << 20)
    sink.close()


def stream(nodes: list[Node], addresses: list[str], total: int) -> None:
    listener = nodes[2].socket(socket.SOCK_STREAM)
    listener.bind((addresses[1], 5001))
    listener.listen()
    source = nodes[0].socket(socket.SOCK_STREAM)
    source.bind((addresses[0], 0))
    source.connect((addresses[1], 5001))
    connection, _ = listener.accept()
    thread = background(lambda: traffic.drain(connection.fileno(), total, 1 << 18))
    assert traffic.pour(source.fileno(), total, 1 << 18) == total
    thread.join()
