# SPDX-License-Identifier: Apache-2.0
"""A controller that is killed: the server applies its complete requests, no part of incomplete ones, and goes on.

A relay between them stops after a given number of bytes, so the request is cut at the same place each time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import finsy as fy
import pytest

from qbed_testing.p4runtime import read_entities

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "crates" / "p4runtime" / "tests" / "programs"
PIPELINE = (PROGRAMS / "everything.p4info.txtpb", PROGRAMS / "everything.json")
OPTIONS = fy.SwitchOptions(p4info=PIPELINE[0], p4blob=PIPELINE[1])
CLIENT = Path(__file__).parent / "clients" / "killed_client.py"
HALF_WAY = 300_000
"""Bytes after which requests of about 900,000 bytes are cut."""
UNLIMITED = 1 << 40
SOON_S = 60


class Relay:
    """Forwards bytes to the server up to a limit, and back unless `mute` is set."""

    def __init__(self, server: str) -> None:
        self.host, self.port = server.split(":")
        self.limit = UNLIMITED
        self.mute = False
        self.stopped = asyncio.Event()
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, answers = await asyncio.open_connection(self.host, self.port)
        replies_task = asyncio.create_task(self.forward_replies(onward, writer))
        await self.forward_requests(reader, answers)
        replies_task.cancel()
        answers.close()
        writer.close()
        self.closed.set()

    async def forward_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data[: self.limit])
            await writer.drain()
            if self.limit < len(data):
                self.stopped.set()
            self.limit = max(self.limit - len(data), 0)

    async def forward_replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self.mute:
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def relay(server: str) -> AsyncIterator[tuple[str, Relay]]:
    relayed = Relay(server)
    async with await asyncio.start_server(relayed.serve, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        yield f"{host}:{port}", relayed


def switch(address: str, election_id: int) -> fy.Switch:
    return fy.Switch("s", address, OPTIONS(initial_election_id=election_id))


async def entries(switch: fy.Switch) -> tuple[int, int]:
    """The number of entries of the tables hosts and routes."""
    wanted = (fy.P4TableEntry("hosts"), fy.P4TableEntry("routes"))
    tables = [entry.table_id for entry in await read_entities(switch, *wanted)]
    return tables.count("hosts"), tables.count("routes")


async def kill_controller(server: str, what: str, kb: int, when: str, expected: tuple[int, int]) -> None:
    """Kill a controller while it is idle, within its request, or after the request but before the reply."""
    async with relay(server) as (address, relayed):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, CLIENT, address, *PIPELINE, what, str(kb)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin and process.stdout
        assert await process.stdout.readline() == b"ready\n"
        relayed.mute = when == "done"
        if when == "half-way":
            relayed.limit = HALF_WAY
        process.stdin.write(b"\n")
        if when == "idle":
            assert await process.stdout.readline() == b"done\n"
        elif when == "half-way":
            await relayed.stopped.wait()
        else:
            async with switch(server, 5) as backup:
                while await entries(backup) != expected:
                    await asyncio.sleep(0.01)
        process.kill()
        await process.wait()
        assert await process.stdout.read() == b"", "the controller received a reply before it was killed"
        await relayed.closed.wait()


@pytest.mark.parametrize(
    ("what", "kb", "when", "expected"),
    [
        ("stream", 0, "idle", (1, 0)),
        ("batch", 900, "half-way", (1, 0)),
        ("batch", 20, "done", (1, 20)),
        ("pipeline", 900, "half-way", (1, 0)),
        ("pipeline", 20, "done", (0, 0)),
    ],
)
def test_complete_requests_of_a_killed_controller_are_applied(
    address: str, what: str, kb: int, when: str, expected: tuple[int, int]
) -> None:
    async def session() -> None:
        async with asyncio.timeout(SOON_S):
            await kill_controller(address, what, kb, when, expected)
            async with switch(address, 21) as following:
                assert following.is_primary
                assert await entries(following) == expected
                match = fy.P4TableMatch({"address": 11})
                await following.insert([fy.P4TableEntry("hosts", match=match, action=fy.P4TableAction("drop"))])

    asyncio.run(session())
