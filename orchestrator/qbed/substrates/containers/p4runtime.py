# SPDX-License-Identifier: Apache-2.0
"""Configures a P4Runtime server with a program and the plan's entries, once, by finsy's client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from qbed.p4.entry import Masked, Match, Prefix, Range
from qbed.plan.pipeline import P4Program, Pipeline
from qbed.substrates import SubstrateError

if TYPE_CHECKING:
    from finsy.p4client import P4Client, P4ClientError

DEVICE = 1
BATCH = 1000
TIMEOUT_S = 60.0
_MAX_ERROR_CHARS = 300


class RefusedError(SubstrateError):
    """Raised if the server does not respond or refuses a request."""


def configure(address: str, program: P4Program, pipeline: Pipeline) -> None:
    """Tell the server at an address its program, clone sessions, groups and entries, in this order; `RefusedError`."""
    from finsy.p4client import P4Client, P4ClientError

    async def session() -> None:
        async with asyncio.timeout(TIMEOUT_S), P4Client(address, wait_for_ready=False) as client:
            await _write_config(client, program, pipeline)

    try:
        asyncio.run(session())
    except TimeoutError:
        raise RefusedError(f"it has not answered within {TIMEOUT_S:g} s") from None
    except P4ClientError as error:
        raise RefusedError(_reason(error)) from None
    except (ValueError, LookupError) as error:  # what does not belong to the P4Info
        raise RefusedError(f"the program {program.name} and its P4Info do not belong together: {error}") from None


async def _write_config(client: P4Client, program: P4Program, pipeline: Pipeline) -> None:
    from finsy.p4client import P4ClientError
    from finsy.p4entity import encode_updates
    from finsy.p4schema import P4Schema
    from finsy.pbutil import from_text
    from finsy.proto import p4i, p4r

    schema = P4Schema(info := from_text(program.p4info or "", p4i.P4Info))
    master = p4r.Uint128(low=1)
    arbitration = p4r.MasterArbitrationUpdate(device_id=DEVICE, election_id=master)
    await client.send(p4r.StreamMessageRequest(arbitration=arbitration))
    await client.receive()
    config = p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=program.bmv2.encode())
    action = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
    await client.request(
        p4r.SetForwardingPipelineConfigRequest(device_id=DEVICE, election_id=master, action=action, config=config)
    )
    entities = list(_entities(pipeline))
    for at in range(0, len(entities), BATCH):
        updates: list[Any] = encode_updates(entities[at : at + BATCH], schema)
        try:
            await client.request(p4r.WriteRequest(device_id=DEVICE, election_id=master, updates=updates))
        except P4ClientError as error:
            raise RefusedError(_first(error, entities[at:])) from None
    if not entities:  # BMv2 takes any program, and says that it has none of its tables where it was no good
        every = p4r.Entity(table_entry=p4r.TableEntry())
        async for _ in client.request_iter(p4r.ReadRequest(device_id=DEVICE, entities=[every])):
            pass


def _entities(pipeline: Pipeline) -> Iterator[Any]:
    """Yield finsy's entities: `+` inserts, `~` modifies."""
    import finsy

    for session in pipeline.sessions:
        yield +finsy.P4CloneSessionEntry(
            session.session, replicas=session.ports, packet_length_bytes=session.truncate_bytes
        )
    for group in pipeline.groups:
        yield +finsy.P4MulticastGroupEntry(group.group, replicas=group.ports)
    for entry in pipeline.entries:
        action = finsy.P4TableAction(entry.action, **entry.arguments)
        if entry.key is None:
            yield ~finsy.P4TableEntry(entry.table, action=action, is_default_action=True)
        else:
            match = finsy.P4TableMatch({name: _match(value) for name, value in entry.key.items()})
            yield +finsy.P4TableEntry(entry.table, match=match, action=action, priority=entry.priority)


def _match(match: Match) -> int | tuple[int, int]:
    """Convert a match to finsy's form."""
    match match:
        case Prefix(value, prefix):
            return value, prefix
        case Masked(value, mask):
            return value, mask
        case Range(low, high):
            return low, high
    return match


def _first(error: P4ClientError, entities: list[Any]) -> str:
    """Which of a batch was refused first, and why."""
    for index, detail in error.details.items():
        entity = entities[index]
        where = f"{getattr(entity, 'table_id', type(entity).__name__)} {getattr(entity, 'match', None) or ''}".strip()
        return f"{where}: {detail.canonical_code.name}: {detail.message}"[:_MAX_ERROR_CHARS]
    return _reason(error)


def _reason(error: P4ClientError) -> str:
    return " ".join(f"{error.code.name}: {error.message}".split())[:_MAX_ERROR_CHARS]
