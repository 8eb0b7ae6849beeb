# SPDX-License-Identifier: Apache-2.0
"""Test qbed's server with p4net (tests/p4/test_clients.py): p4net_client.py ADDRESS P4INFO PROGRAM

p4net has no digests or clone sessions, and reads registers by BMv2's Thrift; shell_client.py tests these.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

from p4net.control import (  # type: ignore[import-not-found]
    CounterData,
    DuplicateEntryError,
    EntryNotFoundError,
    NotPrimaryError,
    P4RuntimeClient,
    P4RuntimeError,
)

SOON_S = 10
INGRESS = "ProbeIngress"


@contextmanager
def refused(kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}")


def pipeline(client: P4RuntimeClient, p4info: Path, program: Path) -> None:
    with refused(P4RuntimeError):
        client.set_pipeline_config(bmv2_json=p4info, p4info=p4info)
    for action in ("VERIFY", "VERIFY_AND_SAVE"):
        client.set_pipeline_config(bmv2_json=program, p4info=p4info, action=action)
    client.set_pipeline_config(bmv2_json=program, p4info=p4info)
    config, _ = client.get_pipeline_config()
    assert config == program.read_bytes()


def tables(client: P4RuntimeClient) -> None:
    hosts, routes, rules = (f"{INGRESS}.{name}" for name in ("hosts", "routes", "rules"))
    forward = f"{INGRESS}.forward"
    client.insert_table_entry(hosts, {"hdr.probe.address": 10}, f"{INGRESS}.host_forward", {"port": 5})
    with refused(DuplicateEntryError):
        client.insert_table_entry(hosts, {"hdr.probe.address": 10}, f"{INGRESS}.host_forward", {"port": 5})
    client.insert_table_entry(routes, {"hdr.probe.address": "10.0.0.0/8"}, forward, {"port": 4})
    rule = {"hdr.probe.flags": (1, 3), "hdr.probe.low": (0, 16)}
    client.insert_table_entry(rules, rule, forward, {"port": 300}, priority=9)
    client.modify_table_entry(hosts, {"hdr.probe.address": 10}, f"{INGRESS}.drop")
    (entry,) = client.list_table_entries(hosts)
    assert entry["action"] == f"{INGRESS}.drop" and entry["match"] == {"hdr.probe.address": b"\x0a"}, entry
    (entry,) = client.list_table_entries(rules)
    assert entry["priority"] == 9 and entry["params"] == {"port": b"\x01\x2c"}, entry
    client.delete_table_entry(rules, rule, priority=9)
    with refused(EntryNotFoundError):
        client.delete_table_entry(rules, rule, priority=9)
    assert client.clear_table(routes) == 1 and client.list_table_entries(routes) == []


def packets(client: P4RuntimeClient) -> None:
    """Send packets out of ports, which receive them; the program sends them to the controller."""
    received: Queue[tuple[bytes, dict[str, int]]] = Queue()
    client.on_packet_in(lambda payload, metadata: received.put((payload, metadata)))
    for port in (9, 300):
        payload = struct.pack("!HIHH", 0, 3, 0, port)
        client.send_packet_out(payload, {"egress_port": port, "padding": 0})
        assert received.get(timeout=SOON_S) == (payload, {"ingress_port": port, "reason": 0})


def counters(client: P4RuntimeClient) -> None:
    name = f"{INGRESS}.port_counter"
    assert client.read_counter(name, 3) == CounterData(0, 0)
    assert len(client.read_counter(name)) == 16
    client.reset_counter(name)


def groups(client: P4RuntimeClient) -> None:
    client.add_multicast_group(7, [1, 2])
    with refused(DuplicateEntryError):
        client.add_multicast_group(7, [1])
    client.modify_multicast_group(7, [1, 2, 3])
    assert client.list_multicast_groups() == {7: [1, 2, 3]}
    client.delete_multicast_group(7)
    assert client.list_multicast_groups() == {}


def main(address: str, p4info: str, program: str) -> None:
    client = P4RuntimeClient(address, 1, election_id=(1, 5))
    client.connect()
    pipeline(client, Path(p4info), Path(program))
    for step in (tables, packets, counters, groups):
        step(client)
    with refused(NotPrimaryError):
        P4RuntimeClient(address, 1, election_id=(1, 4)).connect()
    with refused(EntryNotFoundError):  # no such device
        P4RuntimeClient(address, 2, election_id=(1, 6)).connect()
    client.disconnect()
    print("all done")


main(*sys.argv[1:])
