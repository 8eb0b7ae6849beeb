# SPDX-License-Identifier: Apache-2.0
"""A controller that tests/p4/test_killed.py kills: killed_client.py ADDRESS P4INFO PROGRAM REQUEST KB

It inserts an entry and prints `ready`. After a line on standard input it sends a request of KB kilobytes: a `batch` of
entries, an equal `pipeline`, or none (`stream`). Then it prints `done`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import finsy as fy
from finsy.p4client import P4Client
from finsy.proto import p4r

PADDING = bytes(1000)


def route(number: int) -> fy.P4TableEntry:
    match = fy.P4TableMatch({"address": f"{number << 8}/24"})
    return fy.P4TableEntry("routes", match=match, action=fy.P4TableAction("drop"), metadata=PADDING)


async def replace(address: str, switch: fy.Switch, program: Path, kb: int) -> None:
    config = p4r.ForwardingPipelineConfig(
        p4info=switch.p4info.p4info, p4_device_config=program.read_bytes() + b" " * len(PADDING) * kb
    )
    request = p4r.SetForwardingPipelineConfigRequest(
        device_id=1,
        election_id=p4r.Uint128(low=switch.election_id),
        action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        config=config,
    )
    async with P4Client(address, None) as client:
        await client.request(request)


async def control(address: str, p4info: str, program: str, request: str, kb: str) -> None:
    options = fy.SwitchOptions(p4info=Path(p4info), p4blob=Path(program), initial_election_id=20)
    async with fy.Switch("switch", address, options) as switch:
        host = fy.P4TableMatch({"address": 10})
        await switch.insert([fy.P4TableEntry("hosts", match=host, action=fy.P4TableAction("host_forward", port=5))])
        print("ready", flush=True)
        sys.stdin.readline()
        if request == "batch":
            await switch.insert([route(number) for number in range(1, int(kb) + 1)])
        elif request == "pipeline":
            await replace(address, switch, Path(program), int(kb))
        print("done", flush=True)
        await asyncio.Event().wait()


asyncio.run(control(*sys.argv[1:]))
