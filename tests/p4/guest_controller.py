# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime controller that runs in the guest (tests/virtual/test_p4.py).

    guest_controller.py PROGRAM.p4info.txtpb PROGRAM.json ADDRESS:PORT

It learns addresses from the switch's digests, and inserts entries that forward their packets to port 2. It prints
`ready`, then for each address `learned ADDRESS PORT TIME`, with the time from a register. It sends a packet-in out of
port 2 and prints `packet-in PORT`, the packet's ingress port.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import finsy as fy
from finsy.p4entity import P4ValueSetMember

PROBE = 0x0101


def write_line(*words: Any) -> None:
    print(*words, flush=True)


async def forward_packets(switch: fy.Switch) -> None:
    async for packet in switch.read_packets():
        port = packet["ingress_port"]
        await switch.write([fy.P4PacketOut(packet.payload, egress_port=2, padding=0)])
        write_line("packet-in", port)


async def control(p4info: str, program: str, address: str) -> None:
    options = fy.SwitchOptions(p4info=Path(p4info), p4blob=Path(program))
    async with fy.Switch("switch", address, options) as switch, asyncio.TaskGroup() as tasks:
        await switch.modify([fy.P4ValueSetEntry("probes", members=[P4ValueSetMember(PROBE)])])
        await switch.insert([fy.P4DigestEntry("learned_t", max_list_size=1, ack_timeout_ns=1_000_000_000)])
        tasks.create_task(forward_packets(switch))
        digests = switch.read_digests("learned_t")
        learned = asyncio.ensure_future(anext(digests))
        await asyncio.sleep(0.001)  # until it waits for digests
        write_line("ready")
        while True:
            message = await learned
            learned = asyncio.ensure_future(anext(digests))
            for digest in message.data:
                key = fy.P4TableMatch({"address": digest["address"]})
                await switch.insert(
                    [fy.P4TableEntry("hosts", match=key, action=fy.P4TableAction("host_forward", port=2))]
                )
                read: Any = switch.read
                seen = [entry.data async for entry in read([fy.P4RegisterEntry("last_seen", index=5)])]
                write_line("learned", digest["address"], digest["port"], *seen)
            await switch.write([message.ack()])


asyncio.run(control(*sys.argv[1:]))
