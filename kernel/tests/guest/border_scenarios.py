# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios of a guest's border, run in the kernel. A veth pair replaces vector device and container interface."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import random
import socket
import struct
from collections.abc import Callable

from netlab import Node, Tap, attribute, link, mac, subnet
from scenarios import background, refused, settle

NLA_F_NESTED = 0x8000
SIOCETHTOOL, ETHTOOL_SGRO = 0x8946, 0x2C
FRAME = 1514
BORDER = 20  # IFLA_QLINK_BORDER
TOTAL = 2_000_000


def link_body(index: int, kind: str, data: bytes) -> bytes:
    info = attribute(1, kind) + attribute(2 | NLA_F_NESTED, data)
    return struct.pack("<BxHiII", 0, 0, index, 0, 0) + attribute(18 | NLA_F_NESTED, info)


def connect(node: Node, stub: str, device: int) -> None:
    """Connect a stub with the device of index `device`."""
    node.netlink.request(16, link_body(node.index(stub), "qlink", attribute(BORDER, device)))


def veth(a: Node, interface_a: str, b: Node, interface_b: str) -> bytes:
    """Create a veth pair with both ends up. Returns the hardware address of `interface_b`."""
    address = mac(1 << 30)
    peer = struct.pack("<BxHiII", 0, 0, 0, 0, 0)
    peer += attribute(3, interface_b) + attribute(1, address) + attribute(28, b.namespace)
    body = link_body(0, "veth", attribute(1 | NLA_F_NESTED, peer)) + attribute(3, interface_a)
    a.netlink.request(16, body, 0x400 | 0x200)
    a.up(interface_a)
    b.up(interface_b)
    return address


def set_gro(node: Node, interface: str, on: bool) -> None:
    value = ctypes.create_string_buffer(struct.pack("<II", ETHTOOL_SGRO, on), 8)
    request = struct.pack("16sP", interface.encode(), ctypes.addressof(value)).ljust(40, b"\0")
    with node.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)


def received(node: Node, interface: str) -> int:
    """Packets that an interface has received; a GSO packet counts as one."""
    packets: int = struct.unpack_from("<Q", node.link(interface)[23])[0]  # IFLA_STATS64
    return packets


def transfer(source: Node, sink: Node, address: str, port: int) -> None:
    """Send random bytes; they arrive unchanged."""
    content = random.Random(port).randbytes(TOTAL)
    listener = sink.socket(socket.SOCK_STREAM)
    listener.bind((address, port))
    listener.listen()
    arrived = bytearray()

    def receive() -> None:
        connection, _ = listener.accept()
        while part := connection.recv(1 << 18):
            arrived.extend(part)

    thread = background(receive)
    with source.socket(socket.SOCK_STREAM) as sender:
        sender.connect((address, port))
        sender.sendall(content)
    thread.join()
    listener.close()
    assert arrived == content


def border(gro: int) -> None:
    """TCP between a node behind a stub and a node of the machine: the stub's queues have frames only, and with GRO
    fewer packets than frames cross.
    """
    local, root, remote = Node(), Node(), Node()
    # without a rate, frames of a burst leave together
    macs = link(local, "eth0", root, "peer", (1 << 64) - 1 if gro else 10_000_000_000, 5_000)
    remote_mac = veth(root, "vec", remote, "eth0")
    addresses = subnet(local, "eth0", remote, "eth0", 0, (macs[0], remote_mac))
    with_errno(errno.ENODEV, lambda: connect(root, "peer", 999))
    connect(root, "peer", root.index("vec"))
    with_errno(errno.EBUSY, lambda: connect(root, "peer", root.index("vec")))
    if not gro:
        set_gro(root, "peer", False)
    for node, interface in ((local, "eth0"), (root, "peer")):
        node.qdisc(interface, "pfifo", struct.pack("<I", 1000))
    tap = Tap()
    tap.attach(local, "eth0", 0, events=True)
    tap.attach(root, "peer", 1, events=True)
    settle()
    transfer(local, remote, addresses[1], 5001)
    sent = [record["bytes"] for record in tap.flush() if record.kind == "event" and record["op"] == 2]
    crossed = received(remote, "eth0")
    print("leaving:", len(sent), "frames,", crossed, "packets at the remote node;", max(sent), "bytes at most")
    before = received(root, "vec")
    transfer(remote, local, addresses[0], 5002)
    entered = [r["bytes"] for r in tap.flush() if r.kind == "event" and r["op"] == 2 and r["id"] == 1]
    crossed_in = received(root, "vec") - before
    print("entering:", crossed_in, "packets,", len(entered), "frames;", max(entered), "bytes at most")
    assert max(sent) == max(entered) == FRAME
    assert len(sent) > TOTAL / 1448 < len(entered)
    assert crossed < TOTAL / 1448 / 2 if gro else crossed > TOTAL / 1448, crossed
    assert crossed_in < len(entered) / 4
    tap.detach()
    # a stub is removed while its frames cross
    with local.socket() as sender:
        for _ in range(50):
            sender.sendto(bytes(1000), (addresses[1], 9))
    root.netlink.request(17, struct.pack("<BxHiII", 0, 0, root.index("peer"), 0, 0))
    refused(lambda: local.index("eth0"), "the peer was removed as well")
    with remote.socket() as sender:
        sender.sendto(bytes(1000), (addresses[0], 9))


def with_errno(number: int, action: Callable[[], object]) -> None:
    try:
        action()
    except OSError as error:
        assert error.errno == number, error
        return
    raise AssertionError("not refused")
