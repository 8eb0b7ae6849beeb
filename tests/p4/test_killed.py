# SPDX-License-Identifier: Apache-2.0
"""A controller that is killed half-way: what it had asked for wholly is done, of the rest nothing, and others go on.

Its bytes go through a relay, which stops where the test says; so half-way is the same place each time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import finsy as fy
import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "crates" / "p4runtime" / "tests" / "programs"
PIPELINE = (PROGRAMS / "everything.p4info.txtpb", PROGRAMS / "everything.json")
OPTIONS = fy.SwitchOptions(p4info=PIPELINE[0], p4blob=PIPELINE[1])
CLIENT = Path(__file__).parent / "clients" / "killed_client.py"
HALF_WAY = 300_000
"""Bytes of requests that have some 900,000."""
FOREVER = 1 << 40
SOON_S = 60


class Relay:
    """To the server; stops after so many bytes there; brings nothing back while it is told so."""

    def __init__(self, server: str) -> None:
        self.host, self.port = server.split(":")
        self.there = FOREVER
        self.mute = False
        self.stopped = asyncio.Event()
        self.gone = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, answers = await asyncio.open_connection(self.host, self.port)
        answering = asyncio.create_task(self.answer(onward, writer))
        await self.ask(reader, answers)
        answering.cancel()
        answers.close()
        writer.close()
        self.gone.set()

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data[: self.there])
            await writer.drain()
            if self.there < len(data):
                self.stopped.set()
            self.there = max(self.there - len(data), 0)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self.mute:
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def relay(server: str) -> AsyncIterator[tuple[str, Relay]]:
    carried = Relay(server)
    async with await asyncio.start_server(carried.serve, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        yield f"{host}:{port}", carried


def switch(address: str, election_id: int) -> fy.Switch:
    return fy.Switch("s", address, OPTIONS(initial_election_id=election_id))


async def entries(switch: fy.Switch) -> tuple[int, int]:
    """Of hosts, of routes."""
    read: Any = switch.read  # its overloads are typed as coroutines
    tables = [entry.table_id async for entry in read([fy.P4TableEntry("hosts"), fy.P4TableEntry("routes")])]
    return tables.count("hosts"), tables.count("routes")


async def killed(server: str, what: str, kb: int, when: str, expected: tuple[int, int]) -> None:
    """By SIGKILL: idle; half-way in its request; when what it asked for is done, of which it knows nothing."""
    async with relay(server) as (address, carried):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, CLIENT, address, *PIPELINE, what, str(kb)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin and process.stdout
        assert await process.stdout.readline() == b"ready\n"
        carried.mute = when == "done"
        if when == "half-way":
            carried.there = HALF_WAY
        process.stdin.write(b"\n")
        if when == "idle":
            assert await process.stdout.readline() == b"done\n"
        elif when == "half-way":
            await carried.stopped.wait()
        else:
            async with switch(server, 5) as backup:
                while await entries(backup) != expected:
                    await asyncio.sleep(0.01)
        process.kill()
        await process.wait()
        assert await process.stdout.read() == b"", "it was killed before it had an answer"
        await carried.gone.wait()


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
def test_killed(address: str, what: str, kb: int, when: str, expected: tuple[int, int]) -> None:
    async def session() -> None:
        async with asyncio.timeout(SOON_S):
            await killed(address, what, kb, when, expected)
            async with switch(address, 21) as following:
                assert following.is_primary
                assert await entries(following) == expected
                match = fy.P4TableMatch({"address": 11})
                await following.insert([fy.P4TableEntry("hosts", match=match, action=fy.P4TableAction("drop"))])

    asyncio.run(session())
