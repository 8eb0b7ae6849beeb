# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime server with a real controller (finsy), over a switch with loopback ports.

A packet sent out of a port is received on it (crates/p4runtime/examples/loopback). The program has one entity of each
type that a controller can write, read or subscribe to.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import finsy as fy
import pytest
from finsy import GRPCStatusCode as Code
from finsy import P4ClientError
from finsy.p4client import P4Client
from finsy.p4entity import P4Replica, P4ValueSetMember
from finsy.pbutil import from_text
from finsy.proto import p4i, p4r
from finsy.proto.stratum1.p4_role_config_pb2 import P4RoleConfig

from qbed_testing.p4runtime import read_entities

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "crates" / "p4runtime" / "tests" / "programs"
OPTIONS = fy.SwitchOptions(p4info=PROGRAMS / "everything.p4info.txtpb", p4blob=PROGRAMS / "everything.json")
PROBE = 0x0101
HOST = fy.P4TableMatch({"address": 10})
DROP = fy.P4TableAction("drop")
IDS = (("tables", "hosts"), ("tables", "rules"), ("registers", "balance"), ("digests", "learned_t"))
SOON_S = 5


@asynccontextmanager
async def controller(address: str, **options: Any) -> AsyncIterator[fy.Switch]:
    async with fy.Switch("switch", address, OPTIONS(**options)) as switch:
        yield switch


def messages(switch: fy.Switch, entities: list[Any]) -> list[str]:
    """The entities' messages, sorted, as a table's entries have no order."""
    return sorted(str(entity.encode(switch.p4info)) for entity in entities)


async def first(events: AsyncIterator[Any]) -> Any:
    return await asyncio.wait_for(anext(events), SOON_S)


async def wait_until(condition: Any) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():
            await asyncio.sleep(0.01)


def probe(port: int, address: int, flow: int = 0, kind: int = PROBE) -> fy.P4PacketOut:
    """A probe out of a port, which the port then receives."""
    return fy.P4PacketOut(struct.pack("!HIHH", kind, address, 0, flow), egress_port=port, padding=0)


async def parse_probes(switch: fy.Switch) -> None:
    await switch.modify([fy.P4ValueSetEntry("probes", members=[P4ValueSetMember(PROBE)])])


def test_a_controller_reads_what_it_wrote(address: str) -> None:
    def entry(table: str, match: dict[str, Any], action: Any, **rest: Any) -> fy.P4TableEntry:
        return fy.P4TableEntry(table, match=fy.P4TableMatch(match), action=action, **rest)

    do = fy.P4TableAction
    rule = {"flags": "1/&3", "low": "0...16", "flow": 7}
    paths = fy.P4IndirectAction([2 * do("forward", port=1), 1 * do("forward", port=2)])
    tables = [
        entry("hosts", {"address": 10}, do("host_forward", port=5)),
        entry("routes", {"address": "10.0.0.0/8"}, do("multicast", group=7)),
        entry("rules", rule, do("forward", port=300), priority=9, metadata=b"mine"),
        entry("by_path", {"kind": 5}, paths),
    ]
    others = [
        fy.P4MulticastGroupEntry(7, replicas=[P4Replica(1, instance=1), P4Replica(2, instance=1)]),
        fy.P4CloneSessionEntry(5, replicas=[P4Replica(3)], packet_length_bytes=64),
        fy.P4ActionProfileMember("hops", member_id=1, action=do("drop")),
    ]

    async def session() -> None:
        async with controller(address) as switch:
            await switch.delete_all()
            await switch.insert([*tables, *others])
            constant = [e for e in await read_entities(switch, fy.P4TableEntry()) if e.table_id == "fixed"]
            assert len(constant) == 2 and all(entry.is_const for entry in constant)
            read = [e for e in await read_entities(switch, fy.P4TableEntry()) if e.table_id != "fixed"]
            assert messages(switch, read) == messages(switch, tables)
            wildcards = [fy.P4MulticastGroupEntry(), fy.P4CloneSessionEntry(), fy.P4ActionProfileMember()]
            assert messages(switch, await read_entities(switch, *wildcards)) == messages(switch, others)
            await switch.delete(others)
            await switch.delete_all()
            left = await read_entities(switch, fy.P4TableEntry(), *wildcards)
            assert [entity.table_id for entity in left] == ["fixed", "fixed"]

    asyncio.run(session())


def test_registers_counters_and_meters(address: str) -> None:
    async def session() -> None:
        async with controller(address) as switch:
            await parse_probes(switch)
            await switch.write([probe(3, 1, flow=2)])
            seen = await read_entities(switch, fy.P4RegisterEntry("last_seen", index=2))
            assert seen[0].data > 0
            await switch.modify([fy.P4RegisterEntry("balance", data=-739)])
            assert [entry.data for entry in await read_entities(switch, fy.P4RegisterEntry("balance"))] == [-739] * 4
            counter = fy.P4CounterEntry("port_counter", index=3)
            assert (await read_entities(switch, counter))[0].data == fy.P4CounterData(byte_count=10, packet_count=1)
            rates = fy.P4MeterConfig(cir=1000, cburst=100, pir=2000, pburst=200)
            await switch.modify([fy.P4MeterEntry("port_meter", index=1, config=rates)])
            read = await read_entities(switch, fy.P4MeterEntry("port_meter"))
            assert [entry.config for entry in read] == [None, rates, *[None] * 6]

    asyncio.run(session())


def test_digests_packet_ins_and_idle_entries_are_reported(address: str) -> None:
    async def session() -> None:
        async with controller(address) as switch:
            await parse_probes(switch)
            host = fy.P4TableMatch({"address": 10})
            forward = fy.P4TableAction("host_forward", port=5)
            times = {"max_timeout_ns": 50_000_000, "ack_timeout_ns": 10_000_000_000}
            await switch.insert([fy.P4DigestEntry("learned_t", max_list_size=2, **times)])
            await switch.insert([fy.P4TableEntry("hosts", match=host, action=forward, idle_timeout_ns=50_000_000)])
            digests, idle, packets = (
                switch.read_digests("learned_t"),
                switch.read_idle_timeouts(),
                switch.read_packets(),
            )
            waiting = [asyncio.ensure_future(first(stream)) for stream in (digests, idle, packets)]
            await asyncio.sleep(0.01)  # until they wait for messages
            await switch.write([probe(4, 1), probe(4, 1), probe(6, 2), probe(9, 3, kind=0)])
            learned, entries, packet = await asyncio.gather(*waiting)
            assert list(learned.data) == [{"address": 1, "port": 4}, {"address": 2, "port": 6}]
            again = await first(idle)  # after another time-out
            assert [entry.match for entry in (*entries.table_entry, *again.table_entry)] == [host, host]
            assert packet.payload == struct.pack("!HIHH", 0, 3, 0, 0) and packet["ingress_port"] == 9

            await switch.write([probe(4, 1), probe(4, 7)])  # address 1 was reported and is not acknowledged
            assert list((await first(digests)).data) == [{"address": 7, "port": 4}]
            await switch.write([learned.ack()])
            await switch.write([probe(4, 1)])
            assert list((await first(digests)).data) == [{"address": 1, "port": 4}]

    asyncio.run(session())


def test_each_update_of_a_batch_has_a_separate_error(address: str) -> None:
    async def session() -> None:
        async with controller(address) as switch:

            def entry(address: int, **rest: Any) -> fy.P4TableEntry:
                return fy.P4TableEntry("hosts", match=fy.P4TableMatch({"address": address}), **rest)

            forward = fy.P4TableAction("host_forward", port=5)
            batch = [entry(1, action=forward), entry(1, action=forward), entry(2), entry(3, action=forward)]
            with pytest.raises(P4ClientError) as refused:
                await switch.insert(batch)
            assert refused.value.code == Code.UNKNOWN and refused.value.message == "2 of 4 updates failed"
            codes = {place: error.canonical_code for place, error in refused.value.details.items()}
            assert codes == {1: Code.ALREADY_EXISTS, 2: Code.INVALID_ARGUMENT}
            assert len(await read_entities(switch, fy.P4TableEntry("hosts"))) == 2, "the other updates are applied"

    asyncio.run(session())


def test_the_primary_controller_writes_and_a_backup_takes_over(address: str) -> None:
    async def session() -> None:
        key = fy.P4TableMatch({"address": "10.0.0.0/8"})
        route = fy.P4TableEntry("routes", match=key, action=fy.P4TableAction("drop"))
        async with controller(address, initial_election_id=9) as backup_to_be:
            assert backup_to_be.is_primary
            async with controller(address, initial_election_id=20) as primary:
                await wait_until(lambda: not backup_to_be.is_primary)
                with pytest.raises(P4ClientError) as refused:
                    await backup_to_be.insert([route])
                assert refused.value.code == Code.PERMISSION_DENIED
                await primary.insert([route])
        async with controller(address, initial_election_id=21) as next_one:
            assert next_one.is_primary
            await next_one.delete([route])

    asyncio.run(session())


def test_a_role_is_limited_by_its_config(address: str) -> None:
    async def session() -> None:
        async with controller(address) as full:
            ids = {name: getattr(full.p4info, kind)[name].id for kind, name in IDS}
            await full.insert([fy.P4TableEntry("hosts", match=HOST, action=DROP)])
            role_config = P4RoleConfig(exclusive_p4_ids=[ids["hosts"]], shared_p4_ids=[ids["balance"]])
            two = P4RoleConfig(
                exclusive_p4_ids=[ids["rules"], ids["learned_t"]],
                shared_p4_ids=[ids["balance"]],
                receives_packet_ins=True,
            )
            two.packet_in_filter.CopyFrom(P4RoleConfig.PacketFilter(metadata_id=1, value=b"\x09"))
            async with (
                controller(address, role_name="one", role_config=role_config) as first_role,
                controller(address, role_name="two", role_config=two) as second_role,
            ):
                entry = fy.P4TableEntry("hosts", match=HOST, action=DROP)
                assert messages(full, await read_entities(first_role, fy.P4TableEntry())) == messages(full, [entry])
                assert [e.table_id for e in await read_entities(second_role, fy.P4TableEntry())] == []
                with pytest.raises(P4ClientError) as refused:
                    await read_entities(second_role, fy.P4TableEntry("hosts"))
                assert refused.value.details[0].canonical_code is Code.PERMISSION_DENIED
                with pytest.raises(P4ClientError) as refused:
                    await second_role.delete([entry])
                assert refused.value.details[0].canonical_code is Code.PERMISSION_DENIED
                await first_role.delete([entry])
                for role, value in ((first_role, 1), (second_role, 2)):
                    await role.modify([fy.P4RegisterEntry("balance", index=0, data=value)])
                for role in (first_role, second_role):
                    with pytest.raises(P4ClientError) as refused:
                        await role.modify([fy.P4RegisterEntry("last_seen", index=0, data=1)])

                streams = [role.read_packets() for role in (full, second_role)]
                waiting = [asyncio.ensure_future(first(packets)) for packets in streams]
                silent = asyncio.ensure_future(anext(first_role.read_packets()))
                await asyncio.sleep(0.01)  # until they wait for messages
                await full.write([probe(8, 3, kind=0), probe(9, 3, kind=0)])
                assert [(await reply)["ingress_port"] for reply in waiting] == [8, 9]
                await asyncio.sleep(0.05)
                assert not silent.done(), "the role receives no packet-ins"
                silent.cancel()

    asyncio.run(session())


def translated(folder: Path) -> dict[str, Any]:
    """The P4Info with a translated port type of 32 bits and without constant tables.

    p4c writes it for `@p4runtime_translation("test/port", 32) type bit<9> port_t` and `entries` instead of
    `const entries`; the JSON is the same.
    """
    assert OPTIONS.p4info
    info = from_text(OPTIONS.p4info.read_text(), p4i.P4Info)
    fields = [field for header in info.controller_packet_metadata for field in header.metadata]
    fields += [param for action in info.actions for param in action.params if param.name == "port"]
    for field in fields:
        if field.bitwidth == 9:
            field.bitwidth, field.type_name.name = 32, "port_t"
    info.type_info.structs["learned_t"].members[1].type_spec.new_type.name = "port_t"
    translation = info.type_info.new_types["port_t"].translated_type
    translation.uri, translation.sdn_bitwidth = "test/port", 32
    for table in info.tables:
        table.is_const_table = False
    (folder / "translated.txtpb").write_text(str(info))
    return {"p4info": folder / "translated.txtpb"}


def test_ports_of_a_translated_type_are_translated(address: str, tmp_path: Path) -> None:
    async def session() -> None:
        async with controller(address, **translated(tmp_path)) as switch:
            await parse_probes(switch)
            await switch.insert([fy.P4DigestEntry("learned_t", max_list_size=1)])
            packets, digests = switch.read_packets(), switch.read_digests("learned_t")
            waiting = [asyncio.ensure_future(first(stream)) for stream in (packets, digests)]
            await asyncio.sleep(0.01)  # until they wait for messages
            await switch.write([probe(9, 3, kind=0), probe(300, 1)])
            packet, learned = await asyncio.gather(*waiting)
            assert packet["ingress_port"] == 9 and packet.payload == struct.pack("!HIHH", 0, 3, 0, 0)
            assert list(learned.data) == [{"address": 1, "port": 300}]
            forward = fy.P4TableEntry("hosts", match=HOST, action=fy.P4TableAction("host_forward", port=511))
            await switch.insert([forward])
            assert messages(switch, await read_entities(switch, fy.P4TableEntry("hosts"))) == messages(
                switch, [forward]
            )
            with pytest.raises(P4ClientError) as refused:
                await switch.modify(
                    [fy.P4TableEntry("hosts", match=HOST, action=fy.P4TableAction("host_forward", port=512))]
                )
            assert refused.value.details[0].canonical_code is Code.OUT_OF_RANGE

    asyncio.run(session())


def test_initial_entries_can_be_changed(address: str, tmp_path: Path) -> None:
    def entry(kind: int, action: fy.P4TableAction) -> fy.P4TableEntry:
        return fy.P4TableEntry("fixed", match=fy.P4TableMatch({"kind": kind}), action=action)

    async def session() -> None:
        async with controller(address, **translated(tmp_path)) as switch:
            initial = [entry(0x102, fy.P4TableAction("forward", port=7)), entry(0x103, DROP)]
            assert messages(switch, await read_entities(switch, fy.P4TableEntry("fixed"))) == messages(switch, initial)
            changed = [entry(0x102, DROP), entry(0x104, DROP), entry(0x105, DROP)]
            await switch.modify(changed[:1])
            await switch.insert(changed[1:])
            await switch.delete(initial[1:])
            assert messages(switch, await read_entities(switch, fy.P4TableEntry("fixed"))) == messages(switch, changed)

    asyncio.run(session())


def test_p4info_of_another_program_is_refused_and_the_pipeline_stays(address: str) -> None:
    assert OPTIONS.p4info and isinstance(OPTIONS.p4blob, Path)
    text, blob = OPTIONS.p4info.read_text(), OPTIONS.p4blob.read_bytes()
    mismatches = [
        (text.replace("ProbeIngress.routes", "Other.routes"), blob, "the program has no table Other.routes"),
        (text, blob[:5000], "EOF"),
        (text, blob.replace(b'"Verify"', b'"Varify"').replace(b'"op": "assign"', b'"op": "entangle"'), "entangle"),
    ]

    async def session() -> None:
        async with controller(address) as switch:
            await parse_probes(switch)
            client = P4Client(address, None)
            async with client:
                for info, program, why in mismatches:
                    p4info = from_text(info, p4i.P4Info)
                    config = p4r.ForwardingPipelineConfig(p4info=p4info, p4_device_config=program)
                    request = p4r.SetForwardingPipelineConfigRequest(
                        device_id=1,
                        election_id=p4r.Uint128(low=switch.election_id),
                        action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                        config=config,
                    )
                    with pytest.raises(P4ClientError) as refused:
                        await client.request(request)
                    assert refused.value.code == Code.INVALID_ARGUMENT and why in refused.value.message
            assert (await read_entities(switch, fy.P4ValueSetEntry("probes", members=[])))[0].members, (
                "the pipeline is unchanged"
            )

    asyncio.run(session())
