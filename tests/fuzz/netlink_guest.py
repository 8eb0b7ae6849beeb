# SPDX-License-Identifier: Apache-2.0
"""Runs in a guest, in a node: sends netlink messages that nobody means to qlink, the schemes and qtap.

`netlink_guest.py SEED COUNT SCHEMES` (JSON: the schemes' kinds, with options that are right). Half of what is sent is
right but for its numbers, the other half is damaged; frames go over the links meanwhile. It prints how many messages
the kernel took, and ends well whatever the kernel says: whether that is still sound, its console says.
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
    0,
    1,
    2,
    255,
    1500,
    65_535,
    65_536,
    10**9,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**40,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
LINKS, ROUND = 4, 300


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("<HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


class Sender:
    """The messages of one seed."""

    def __init__(self, seed: int, schemes: list[tuple[str, str]]) -> None:
        self.chance = random.Random(seed)
        self.schemes = [(kind, bytes.fromhex(options)) for kind, options in schemes]
        self.route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
        self.generic = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        self.frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.said: Counter[str] = Counter()
        self.number = 0
        self.links: dict[str, int] = {}
        self.qtap = self._family("qtap")
        for one in (self.route, self.generic, self.frames):
            one.setblocking(False)

    def _family(self, name: str) -> int:
        body = struct.pack("<BBH", CTRL_CMD_GETFAMILY, 1, 0) + attribute(CTRL_ATTR_FAMILY_NAME, name.encode() + b"\0")
        self.generic.send(struct.pack("<IHHII", 16 + len(body), GENL_ID_CTRL, NLM_F_REQUEST, 1, 0) + body)
        answer, at = self.generic.recv(1 << 16), 20
        while at < len(answer):
            length, kind = struct.unpack_from("<HH", answer, at)
            if kind == CTRL_ATTR_FAMILY_ID:
                return int(struct.unpack_from("<H", answer, at + 4)[0])
            at += length + -length % 4
        raise SystemExit(f"no family {name}")

    def _send(self, one: socket.socket, kind: int, flags: int, body: bytes, *, harm: bool = False) -> None:
        self.number += 1
        message = struct.pack("<IHHII", 16 + len(body), kind, NLM_F_REQUEST | NLM_F_ACK | flags, self.number, 0) + body
        with suppress(OSError):
            one.send(self._harmed(message) if harm else message)
        self._hear(one)

    def _harmed(self, message: bytes) -> bytes:
        """Damaged behind the header's length and kind, mostly; lengths of attributes are what lies at even places."""
        chance, content = self.chance, bytearray(message)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(16 if chance.random() < 0.95 else 0, len(content))
            size = chance.choice((1, 2, 4, 8))
            kind = chance.randrange(4)
            if kind == 0:
                content[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                content[at : at + size] = struct.pack("<Q", chance.choice(NUMBERS))[:size]
            elif kind == 2:
                del content[max(at, 20) + 1 :]
            else:
                content[at:at] = content[chance.randrange(16, len(content)) :][:64]
        if chance.random() < 0.9:
            content[:4] = struct.pack("<I", len(content))
        return bytes(content)

    def _hear(self, one: socket.socket) -> None:
        with suppress(BlockingIOError):
            while True:
                try:
                    answer = one.recv(1 << 16)
                except BlockingIOError:
                    raise
                except OSError:  # more was said than the socket holds
                    continue
                if len(answer) >= 20 and struct.unpack_from("<H", answer, 4)[0] == 2:
                    self.said["taken" if struct.unpack_from("<i", answer, 16)[0] == 0 else "refused"] += 1

    def _odd(self, size: int) -> bytes:
        value = self.chance.choice(NUMBERS) if self.chance.random() < 0.7 else self.chance.getrandbits(64)
        return struct.pack("<Q", value)[:size]

    def _name(self, peer: bool) -> bytes:
        return f"{'p' if peer else 'f'}{self.chance.randrange(LINKS)}".encode() + b"\0"

    def _look(self) -> None:
        """What links of ours there are: now and then, since to ask takes as long as ten messages."""
        self.links = {name: index for index, name in socket.if_nameindex() if name[0] in "fp" and name[1:].isdigit()}

    def _index(self) -> int:
        known = list(self.links.values())
        return self.chance.choice(known) if known and self.chance.random() < 0.95 else self.chance.randrange(1000)

    def link(self, *, harm: bool) -> None:
        """A qlink, made or changed; mostly up."""
        up = self.chance.random() < 0.8
        info = struct.pack("<BxHiII", 0, 0, 0, int(up), int(up))
        rate = (
            struct.pack("<Q", self.chance.choice((10**6, 10**9, 10**10)))
            if self.chance.random() < 0.6
            else self._odd(8)
        )
        sizes = {2: 8, 3: 8, 4: 4, 5: 4, 6: 8, 7: 8, 8: 4, 9: 4, 10: 8, 11: 8, 12: 8}
        data = attribute(1, info + attribute(IFLA_IFNAME, self._name(True))) + attribute(2, rate)
        for number in self.chance.sample(sorted(sizes)[1:-3] if self.chance.random() < 0.8 else sorted(sizes), 3):
            data += attribute(number, self._odd(sizes[number]))
        kind = attribute(IFLA_INFO_KIND, b"qlink\0")
        body = info + attribute(IFLA_IFNAME, self._name(False))
        body += attribute(IFLA_LINKINFO | NESTED, kind + attribute(IFLA_INFO_DATA | NESTED, data))
        flags = self.chance.choice((NLM_F_CREATE, NLM_F_CREATE | NLM_F_EXCL, 0))
        self._send(self.route, RTM_NEWLINK, flags, body, harm=harm)

    def remove(self, *, harm: bool) -> None:
        """A link of ours goes."""
        if self.links:
            body = struct.pack("<BxHiII", 0, 0, self.chance.choice(list(self.links.values())), 0, 0)
            self._send(self.route, RTM_DELLINK, 0, body)

    def qdisc(self, *, harm: bool) -> None:
        """A scheme on a link of ours."""
        kind, options = self.chance.choice(self.schemes)
        content = bytearray(options)
        for _ in range(self.chance.randrange(3)):
            if content:
                at = self.chance.randrange(0, len(content), 4)
                content[at : at + 4] = self._odd(4)[: len(content) - at]
        body = struct.pack(
            "<BxHiIII", 0, 0, self._index(), self._handle(), self.chance.choice((ROOT, ROOT, 0x10001)), 0
        )
        body += attribute(TCA_KIND, kind.encode() + b"\0") + attribute(TCA_OPTIONS, bytes(content))
        flags = self.chance.choice((NLM_F_CREATE | NLM_F_REPLACE, NLM_F_CREATE, NLM_F_REPLACE, 0))
        self._send(self.route, RTM_NEWQDISC, flags, body, harm=harm)

    def _handle(self) -> int:
        return self.chance.choice((0, 0x10000, 0x20000, ROOT))

    def ask(self, *, harm: bool) -> None:
        """Dumps, and qdiscs that go."""
        tc = struct.pack("<BxHiIII", 0, 0, self._index(), self._handle(), ROOT, 0)
        kind, flags = self.chance.choice(
            ((RTM_GETLINK, NLM_F_DUMP), (RTM_GETQDISC, NLM_F_DUMP), (RTM_GETQDISC, 0), (RTM_DELQDISC, 0))
        )
        body = struct.pack("<BxHiII", 0, 0, 0, 0, 0) if kind == RTM_GETLINK else tc
        self._send(self.route, kind, flags, body, harm=harm)

    def tap(self, *, harm: bool) -> None:
        """A tap on a link of ours, or an end of all."""
        command = self.chance.choices((1, 2, 3, 0, 4, 255), (80, 8, 8, 1, 1, 2))[0]
        body = struct.pack("<BBH", command, 1, 0)
        if command == 1:
            body += attribute(1, struct.pack("<I", self._index())) + attribute(2, self._odd(4))
            sizes = {3: 4, 4: 8, 5: 8, 6: 4, 7: 8}
            for kind in self.chance.sample(sorted(sizes), self.chance.randrange(4)):
                body += attribute(kind, self._odd(sizes[kind]))
        self._send(self.generic, self.qtap, 0, body, harm=harm)

    def traffic(self) -> None:
        """A burst of frames on every link of ours."""
        for name in self.links:
            for _ in range(8):
                with suppress(OSError):
                    self.frames.sendto(FRAME, (name, 0x0800))

    def clear(self) -> None:
        """Nothing of ours is left."""
        self._send(self.generic, self.qtap, 0, struct.pack("<BBH", 3, 1, 0))
        self._look()
        for index in self.links.values():
            self._send(self.route, RTM_DELLINK, 0, struct.pack("<BxHiII", 0, 0, index, 0, 0))

    def run(self, count: int) -> None:
        while self.number < count:
            what = self.chance.choices((self.link, self.remove, self.qdisc, self.ask, self.tap), (30, 3, 35, 12, 20))[0]
            what(harm=self.chance.random() < 0.5)
            if self.number % 10 == 0:
                self._look()
            if self.number % 50 == 0:
                self.traffic()
            if self.number % ROUND == 0:
                self.clear()
        self.clear()


def main() -> None:
    sender = Sender(int(sys.argv[1]), json.loads(sys.argv[3]))
    sender.run(int(sys.argv[2]))
    print(json.dumps({"sent": sender.number, **sender.said}))


main()
