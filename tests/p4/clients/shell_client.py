# SPDX-License-Identifier: Apache-2.0
"""Test qbed's server with p4runtime-shell (tests/p4/test_clients.py): shell_client.py ADDRESS P4INFO PROGRAM WRITE

WRITE is a WriteRequest as text, since the shell has no value sets and registers.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
import p4runtime_sh.shell as sh  # type: ignore[import-not-found]
from p4runtime_sh.p4runtime import P4RuntimeWriteException  # type: ignore[import-not-found]

SOON_S = 10
PROBE = 0x0101


def first(events: Any) -> Any:
    """The first message of a queue; the shell's `sniff` would wait for its whole time limit."""
    return events.get(timeout=SOON_S)


@contextmanager
def refused(code: str) -> Iterator[None]:
    try:
        yield
    except (sh.P4RuntimeException, P4RuntimeWriteException, grpc.RpcError) as error:
        assert code in str(error), error
    else:
        raise AssertionError(f"expected {code}")


def send(port: int, address: int, kind: int = PROBE) -> None:
    """Send a probe out of a port, which then receives it."""
    packet = sh.PacketOut(struct.pack("!HIHH", kind, address, 0, 0), egress_port=str(port))
    packet.send()


def tables() -> None:
    entry = sh.TableEntry("hosts")(action="host_forward")
    entry.match["address"] = "10"
    entry.action["port"] = "5"
    entry.insert()
    with refused("ALREADY_EXISTS"):
        entry.insert()
    route = sh.TableEntry("routes")(action="multicast")
    route.match["address"] = "10.0.0.0/8"
    route.action["group"] = "7"
    route.insert()
    rule = sh.TableEntry("rules")(action="forward", priority=9)
    rule.match["flags"] = "1&&&3"
    rule.match["low"] = "0..16"
    rule.action["port"] = "300"
    rule.insert()
    for table, message in (("hosts", entry), ("routes", route), ("rules", rule)):
        (read,) = sh.TableEntry(table).read()
        assert read.msg() == message.msg(), (read, message)
    entry.action["port"] = "6"
    entry.modify()
    (read,) = sh.TableEntry("hosts").read()
    assert read.action["port"].value == b"\6"
    rule.delete()
    with refused("NOT_FOUND"):
        rule.delete()


def profiles() -> None:
    for member, port in ((1, "1"), (2, "2")):
        path_member = sh.ActionProfileMember("paths")(member_id=member, action="forward")
        path_member.action["port"] = port
        path_member.insert()
    group = sh.ActionProfileGroup("paths")(group_id=3)
    group.add(1, weight=2).add(2)
    group.insert()
    entry = sh.TableEntry("by_path")(group_id=3)
    entry.match["kind"] = "5"
    entry.insert()
    (read,) = sh.TableEntry("by_path").read()
    assert read.group_id == 3
    with refused("FAILED_PRECONDITION"):
        group.delete()
    for path_member in (entry, group):
        path_member.delete()


def counters_and_meters() -> None:
    send(3, 1)
    counter = sh.CounterEntry("port_counter")(index=3)
    ends = time.monotonic() + SOON_S
    while not (read := next(iter(counter.read()))).packet_count:  # a read may overtake the packet-out on the stream
        assert time.monotonic() < ends
    assert (read.packet_count, read.byte_count) == (1, 10), read
    meter = sh.MeterEntry("port_meter")(index=1, cir=1000, cburst=100, pir=2000, pburst=200)
    meter.modify()
    assert next(iter(meter.read())).pburst == 200


def replication() -> None:
    group = sh.MulticastGroupEntry(7)
    group.add(1, 1).add(2, 1)
    group.insert()
    clone = sh.CloneSessionEntry(5).add(3)
    clone.packet_length_bytes = 64
    clone.insert()
    assert [entity.msg() for entity in sh.MulticastGroupEntry().read()] == [group.msg()]
    assert [entity.msg() for entity in sh.CloneSessionEntry().read()] == [clone.msg()]
    group.delete()
    clone.delete()


def notifications() -> None:
    """Packets, digests and idle entries."""
    packets, digests, idle = sh.PacketIn(), sh.DigestList(), sh.IdleTimeoutNotification()
    send(9, 3, kind=0)
    packet = first(packets.packet_in_queue).packet
    assert packet.payload == struct.pack("!HIHH", 0, 3, 0, 0)
    assert int.from_bytes(packet.metadata[0].value, "big") == 9, "the ingress port"
    learn = sh.DigestEntry("learned_t")
    learn.max_list_size, learn.ack_timeout_ns = 1, 10**10
    learn.insert()
    for address in (1, 2):  # the shell acknowledges digests
        send(4, address)
        (member,) = first(digests.digest_list_queue).digest.data
        values = [int.from_bytes(part.bitstring, "big") for part in member.struct.members]
        assert values == [address, 4]
    entry = sh.TableEntry("hosts")(action="drop", idle_timeout_ns=10**6)
    entry.match["address"] = "11"
    entry.insert()
    for _ in range(2):
        (expired,) = first(idle.notification_queue).idle_timeout_notification.table_entry
        assert expired.match[0].exact.value == b"\x0b"
    entry.delete()


def arbitration(address: str) -> None:
    primary, sh.client = sh.client, sh.P4RuntimeClient(1, address, (0, 8))
    with refused("PERMISSION_DENIED"):
        sh.CloneSessionEntry(6).add(3).insert()
    assert list(sh.TableEntry("routes").read()), "a backup reads"
    sh.client.tear_down()
    sh.client = primary


def main(address: str, p4info: str, program: str, write: str) -> None:
    sh.setup(device_id=1, grpc_addr=address, election_id=(0, 9), config=sh.FwdPipeConfig(p4info, program))
    assert sh.APIVersion().startswith("1.")
    sh.Write(write)
    for step in (tables, profiles, counters_and_meters, replication):
        step()
    arbitration(address)
    notifications()
    print("all done")


try:
    main(*sys.argv[1:])
finally:
    sh.teardown()  # ends its threads
