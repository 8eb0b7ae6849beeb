#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Moves flows away from a hot port: a P4Runtime controller of one switch that runs balance.p4.

    balance.py ADDRESS:PORT

Every millisecond it reads the longest queue of each path. If a path is hot, it reads which buckets of flows sent, and
moves one bucket from the hot path to the path with the fewest buckets, if that has at least two fewer.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import finsy as fy

BUCKETS = 64
EPOCH_NS = int(os.environ["QBED_EPOCH_NS"])
"""When the flows begin, by time.monotonic_ns()."""
EVERY_NS = 1_000_000
HOT_PACKETS = 20
ACTIVE_NS = 10_000_000
"""A bucket that has sent nothing for so long has no flow any more."""


async def read(switch: fy.Switch, entities: Iterable[Any]) -> list[Any]:
    found: Any = switch.read(entities)
    return [entity async for entity in found]


class Path(NamedTuple):
    """A next hop of a route: its port, and the addresses of frames that leave by it."""

    port: int
    source: int
    destination: int


Bucket = tuple[int, int]
"""The port of the flows' route, and the number of the bucket."""


async def paths(switch: fy.Switch) -> list[Path]:
    """Routes with several next hops, read from the tables that the lab's compiler filled."""
    routes = [entry.action.args for entry in await read(switch, [fy.P4TableEntry("ipv4_routes")])]
    hops = {entry["hop"]: entry.action.args for entry in await read(switch, [fy.P4TableEntry("next_hops")])}
    first, count = next((route["first"], route["count"]) for route in routes if route["count"] > 1)
    return [Path(*(hops[hop][name] for name in Path._fields)) for hop in range(first, first + count)]


class Balance:
    def __init__(self, switch: fy.Switch, next_hops: list[Path]) -> None:
        self.switch, self.paths = switch, {path.port: path for path in next_hops}
        self.sent: dict[Bucket, int] = {(port, bucket): 0 for port in self.paths for bucket in range(BUCKETS)}
        self.seen_ns: dict[Bucket, int] = {}
        """When each bucket with flows last sent."""
        self.moved: dict[Bucket, int] = {}

    async def look(self, now_ns: int) -> None:
        queues = [fy.P4RegisterEntry("longest_queue", index=port) for port in self.paths]
        longest, hot = max((entry.data, entry.index) for entry in await read(self.switch, queues))
        if longest < HOT_PACKETS:
            return
        entries = [fy.P4RegisterEntry("bucket_bytes", index=port * BUCKETS + bucket) for port, bucket in self.sent]
        for bucket, entry in zip(self.sent, await read(self.switch, entries), strict=True):
            if entry.data > self.sent[bucket]:
                self.sent[bucket], self.seen_ns[bucket] = entry.data, now_ns
        self.seen_ns = {bucket: at_ns for bucket, at_ns in self.seen_ns.items() if at_ns > now_ns - ACTIVE_NS}
        await self.relieve(hot)
        await self.switch.modify([fy.P4RegisterEntry("longest_queue", index=port, data=0) for port in self.paths])

    async def relieve(self, hot: int) -> None:
        """Move one bucket away from a port if that makes the numbers of buckets more equal."""
        flows: dict[int, list[Bucket]] = {port: [] for port in self.paths}
        for bucket in self.seen_ns:
            flows[self.moved.get(bucket, bucket[0])].append(bucket)
        cold = min(self.paths, key=lambda port: len(flows[port]))
        if len(flows[hot]) - len(flows[cold]) < 2:
            return
        bucket = min(flows[hot])
        key = fy.P4TableMatch({"port": bucket[0], "bucket": bucket[1]})
        entry = fy.P4TableEntry("moved", match=key, action=fy.P4TableAction("move", **self.paths[cold]._asdict()))
        if cold == bucket[0]:
            await self.switch.delete([entry])
            del self.moved[bucket]
        else:
            await (self.switch.modify([entry]) if bucket in self.moved else self.switch.insert([entry]))
            self.moved[bucket] = cold
        print(f"{(time.monotonic_ns() - EPOCH_NS) / 1e6:.3f} ms: bucket {bucket[1]} from port {hot} to port {cold}")


async def control(address: str) -> None:
    async with fy.Switch("switch", address) as switch:
        balance = Balance(switch, await paths(switch))
        print("balancing ports", *balance.paths)
        next_ns = EPOCH_NS
        while True:
            await asyncio.sleep(max(0, next_ns - time.monotonic_ns()) / 1e9)
            await balance.look(time.monotonic_ns())
            next_ns = max(next_ns + EVERY_NS, time.monotonic_ns())


asyncio.run(control(sys.argv[1]))
