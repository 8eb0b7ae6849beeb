# SPDX-License-Identifier: Apache-2.0
"""Send random netlink messages to qlink, the schemes and qtap, in a node of a guest.

`netlink_guest.py SEED COUNT SCHEMES` (JSON: the schemes' kinds with valid options). Half of the messages are
well-formed with random numbers, the other half is damaged; frames are sent over the links meanwhile. The program prints
how many messages the kernel accepted. It ignores errors of the kernel; warnings are on the guest's console.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
from collections import Counter
from contextlib import suppress

NETLINK_ROUTE, NETLINK_GENERIC = 0, 16
NLM_F_REQUEST, NLM_F_ACK, NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE, NLM_F_DUMP = 1, 4, 0x100, 0x200, 0x400, 0x300
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 16, 17, 18, 36, 37, 38
GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2
IFLA_IFNAME, IFLA_MTU, IFLA_LINKINFO, IFLA_INFO_KIND, IFLA_INFO_DATA, TCA_KIND, TCA_OPTIONS = 3, 4, 18, 1, 2, 1, 2
NESTED, ROOT = 1 << 15, 0xFFFFFFFF
FRAME = b"\xff" * 6 + b"\x02\0\0\0\0\1" + b"\x08\0" + b"\x45" + bytes(59)
NUMBERS = (
    0, 1, 2, 255, 1500, 65_535, 65_536, 10**9, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
LINKS, ROUND = 4, 300


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("<HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


class Sender:
    """Sends the messages of one seed."""

    def __init__(self, seed: int, schemes: list[tuple[str, str]]) -> None:
        self.rng = random.Random(seed)
        self.schemes = [(kind, bytes.fromhex(options)) for kind, options in schemes]
        self.route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
        self.generic = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        self.frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.replies: Counter[str] = Counter()
        self.number = 0
        self.links: dict[str, int] = {}
        self.qtap = self._family("qtap")
        for endpoint in (self.route, self.generic, self.frames):
            endpoint.setblocking(False)

    def _family(self, name: str) -> int:
        body = struct.pack("<BBH", CTRL_CMD_GETFAMILY, 1, 0) + attribute(CTRL_ATTR_FAMILY_NAME, name.encode() + b"\0")
        self.generic.send(struct.pack("<IHHII", 16 + len(body), GENL_ID_CTRL, NLM_F_REQUEST, 1, 0) + body)
        reply, at = self.generic.recv(1 << 16), 20
        while at < len(reply):
            length, kind = struct.unpack_from("<HH", reply, at)
            if kind == CTRL_ATTR_FAMILY_ID:
                return int(struct.unpack_from("<H", reply, at + 4)[0])
            at += length + -length % 4
        raise SystemExit(f"no family {name}")

    def _send(self, endpoint: socket.socket, kind: int, flags: int, body: bytes, *, damaged: bool = False) -> None:
        self.number += 1
        message = struct.pack("<IHHII", 16 + len(body), kind, NLM_F_REQUEST | NLM_F_ACK | flags, self.number, 0) + body
        with suppress(OSError):
            endpoint.send(self._damage(message) if damaged else message)
        self._read_replies(endpoint)

    def _damage(self, message: bytes) -> bytes:
        """Damage a message, mostly behind the header's length and kind."""
        rng, content = self.rng, bytearray(message)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(16 if rng.random() < 0.95 else 0, len(content))
            size = rng.choice((1, 2, 4, 8))
            kind = rng.randrange(4)
            if kind == 0:
                content[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                content[at : at + size] = struct.pack("<Q", rng.choice(NUMBERS))[:size]
            elif kind == 2:
                del content[max(at, 20) + 1 :]
            else:
                content[at:at] = content[rng.randrange(16, len(content)) :][:64]
        if rng.random() < 0.9:
            content[:4] = struct.pack("<I", len(content))
        return bytes(content)

    def _read_replies(self, endpoint: socket.socket) -> None:
        with suppress(BlockingIOError):
            while True:
                try:
                    reply = endpoint.recv(1 << 16)
                except BlockingIOError:
                    raise
                except OSError:  # the socket's buffer is full
                    continue
                if len(reply) >= 20 and struct.unpack_from("<H", reply, 4)[0] == 2:
                    self.replies["accepted" if struct.unpack_from("<i", reply, 16)[0] == 0 else "refused"] += 1

    def _random_number(self, size: int) -> bytes:
        value = self.rng.choice(NUMBERS) if self.rng.random() < 0.7 else self.rng.getrandbits(64)
        return struct.pack("<Q", value)[:size]

    def _name(self, peer: bool) -> bytes:
        return f"{'p' if peer else 'f'}{self.rng.randrange(LINKS)}".encode() + b"\0"

    def _list_links(self) -> None:
        """Update the list of links; it is called rarely, as it takes as long as ten messages."""
        self.links = {name: index for index, name in socket.if_nameindex() if name[0] in "fp" and name[1:].isdigit()}

    def _index(self) -> int:
        known = list(self.links.values())
        return self.rng.choice(known) if known and self.rng.random() < 0.95 else self.rng.randrange(1000)

    def link(self, *, damaged: bool) -> None:
        """Create or change a qlink, mostly up."""
        up = self.rng.random() < 0.8
        info = struct.pack("<BxHiII", 0, 0, 0, int(up), int(up))
        rate = (
            struct.pack("<Q", self.rng.choice((10**6, 10**9, 10**10)))
            if self.rng.random() < 0.6
            else self._random_number(8)
        )
        sizes = {2: 8, 3: 8, 4: 4, 5: 4, 6: 8, 7: 8, 8: 4, 9: 4, 10: 8, 11: 8, 12: 8}
        data = attribute(1, info + attribute(IFLA_IFNAME, self._name(True))) + attribute(2, rate)
        for number in self.rng.sample(sorted(sizes)[1:-3] if self.rng.random() < 0.8 else sorted(sizes), 3):
            data += attribute(number, self._random_number(sizes[number]))
        kind = attribute(IFLA_INFO_KIND, b"qlink\0")
        body = info + attribute(IFLA_IFNAME, self._name(False))
        body += attribute(IFLA_LINKINFO | NESTED, kind + attribute(IFLA_INFO_DATA | NESTED, data))
        flags = self.rng.choice((NLM_F_CREATE, NLM_F_CREATE | NLM_F_EXCL, 0))
        self._send(self.route, RTM_NEWLINK, flags, body, damaged=damaged)

    def remove(self, *, damaged: bool) -> None:
        """Remove a link."""
        if self.links:
            body = struct.pack("<BxHiII", 0, 0, self.rng.choice(list(self.links.values())), 0, 0)
            self._send(self.route, RTM_DELLINK, 0, body)

    def qdisc(self, *, damaged: bool) -> None:
        """Set a scheme as the qdisc of a link."""
        kind, options = self.rng.choice(self.schemes)
        content = bytearray(options)
        for _ in range(self.rng.randrange(3)):
            if content:
                at = self.rng.randrange(0, len(content), 4)
                content[at : at + 4] = self._random_number(4)[: len(content) - at]
        body = struct.pack("<BxHiIII", 0, 0, self._index(), self._handle(), self.rng.choice((ROOT, ROOT, 0x10001)), 0)
        body += attribute(TCA_KIND, kind.encode() + b"\0") + attribute(TCA_OPTIONS, bytes(content))
        flags = self.rng.choice((NLM_F_CREATE | NLM_F_REPLACE, NLM_F_CREATE, NLM_F_REPLACE, 0))
        self._send(self.route, RTM_NEWQDISC, flags, body, damaged=damaged)

    def _handle(self) -> int:
        return self.rng.choice((0, 0x10000, 0x20000, ROOT))

    def dump(self, *, damaged: bool) -> None:
        """Dump links or qdiscs, or remove a qdisc."""
        tc = struct.pack("<BxHiIII", 0, 0, self._index(), self._handle(), ROOT, 0)
        kind, flags = self.rng.choice(
            ((RTM_GETLINK, NLM_F_DUMP), (RTM_GETQDISC, NLM_F_DUMP), (RTM_GETQDISC, 0), (RTM_DELQDISC, 0))
        )
        body = struct.pack("<BxHiII", 0, 0, 0, 0, 0) if kind == RTM_GETLINK else tc
        self._send(self.route, kind, flags, body, damaged=damaged)

    def tap(self, *, damaged: bool) -> None:
        """Add a tap to a link, or send another command to qtap."""
        command = self.rng.choices((1, 2, 3, 0, 4, 255), (80, 8, 8, 1, 1, 2))[0]
        body = struct.pack("<BBH", command, 1, 0)
        if command == 1:
            body += attribute(1, struct.pack("<I", self._index())) + attribute(2, self._random_number(4))
            sizes = {3: 4, 4: 8, 5: 8, 6: 4, 7: 8}
            for kind in self.rng.sample(sorted(sizes), self.rng.randrange(4)):
                body += attribute(kind, self._random_number(sizes[kind]))
        self._send(self.generic, self.qtap, 0, body, damaged=damaged)

    def traffic(self) -> None:
        """Send a burst of frames on each link."""
        for name in self.links:
            for _ in range(8):
                with suppress(OSError):
                    self.frames.sendto(FRAME, (name, 0x0800))

    def clear(self) -> None:
        """Remove all taps and links."""
        self._send(self.generic, self.qtap, 0, struct.pack("<BBH", 3, 1, 0))
        self._list_links()
        for index in self.links.values():
            self._send(self.route, RTM_DELLINK, 0, struct.pack("<BxHiII", 0, 0, index, 0, 0))

    def run(self, count: int) -> None:
        while self.number < count:
            send = self.rng.choices((self.link, self.remove, self.qdisc, self.dump, self.tap), (30, 3, 35, 12, 20))[0]
            send(damaged=self.rng.random() < 0.5)
            if self.number % 10 == 0:
                self._list_links()
            if self.number % 50 == 0:
                self.traffic()
            if self.number % ROUND == 0:
                self.clear()
                print(".", file=sys.stderr, flush=True)  # a busy machine needs minutes, and the test waits for a sign
        self.clear()


def main() -> None:
    sender = Sender(int(sys.argv[1]), json.loads(sys.argv[3]))
    sender.run(int(sys.argv[2]))
    print(json.dumps({"sent": sender.number, **sender.replies}))


main()
