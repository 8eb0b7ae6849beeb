# SPDX-License-Identifier: Apache-2.0
"""The folder of a lab in containers (docs/formats.md section 5): topology, plan, and the folder of each node."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import yaml

from qbed.base.json_files import Row
from qbed.plan.communicating_pairs import shortest_rtt_ns
from qbed.substrates.command_line import guest_arguments
from qbed.substrates.containers import beside, bmv2
from qbed.substrates.containers.images import role
from qbed.substrates.p4_images import write_images
from qbed.substrates.toolchain import find_toolchain

if TYPE_CHECKING:
    from qbed.plan.model import Link, Plan
    from qbed.substrates.containers.placement import Placement

NODES, SHARED, PLAN, PLACE, SOCKET, OUT = "nodes", "shared", "plan.json", "place.json", "control.sock", "out"
LABEL = "qbed"
"""The label of every container that qbed made."""
VERSION = 1
TOOLCHAIN = "/opt/qbed"  # in the images
MEMORY_BYTES = 128 << 20
"""A guest's memory: enough for the flows of one node. Its file grows on use."""

Start = Literal["on go", "at once"]

MAX_BATCH_NS = 50_000
BATCHES_PER_RTT = 20
"""A guest defers frames and deadlines while there is traffic, to process several at a time: in a cell by at most this
part of the shortest round trip (its evidence allows a tenth, `qbed.cells.wall_clock`)."""


def topology(plan: Plan, images: Mapping[str, str], name: str) -> Row:
    """The Containerlab topology of a plan; `images` by role; paths of binds are relative to its file."""
    nodes: dict[str, Row] = {
        node.name: {
            "kind": "linux",
            "image": images[role(node)],
            "binds": [f"{NODES}/{node.name}:/qbed", f"{SHARED}:/qbed-lab"],
            "env": {"QBED_NODE": node.name},
        }
        for node in plan.nodes
    }
    nodes |= beside.topology(plan, nodes, images)
    return {
        "name": name,
        # The nodes have no network but their links. With Docker's bridge named here, Containerlab makes no
        # management network either: labs have none to share, and no subnet to clash.
        "mgmt": {"network": "bridge"},
        "topology": {
            "kinds": {
                "linux": {
                    "network-mode": "none",
                    "image-pull-policy": "Never",
                    # A node that ended has ended: after a crash of the engine, links and clock are not what they were.
                    "restart-policy": "no",
                    "labels": {LABEL: name},
                },
            },
            "nodes": nodes,
            "links": [_link(plan, link) for link in plan.links],
        },
    }


def _link(plan: Plan, link: Link) -> Row:
    ends = [f"{plan.nodes[end.node].name}:{end.interface}" for end in (link.a, link.b)]
    return {"endpoints": ends, "mtu": link.mtu}


def write_folder(
    folder: Path,
    plan: Plan,
    placement: Placement,
    images: Mapping[str, str],
    *,
    name: str,
    file: str,
    start: Start,
    interactive: bool = False,
) -> Path:
    """Write everything that a lab's containers need into `folder`; returns the topology file.

    Guests of an `interactive` lab defer frames by up to `MAX_BATCH_NS` (real time), whatever its round trips. If the
    lab is in real time, frames of a TCP stream cross between its containers as one GSO packet (docs/formats.md section
    5). BMv2 does not segment such a packet, so a lab with BMv2 has none.
    """
    batch_ns = MAX_BATCH_NS if interactive else _batch_ns(plan, placement.dilation)
    (folder / SHARED).mkdir(parents=True)
    (folder / PLAN).write_text(plan.dumps())
    programmed = bmv2.switches(plan)
    gso = interactive and placement.dilation == 1 and not programmed
    for index, node in enumerate(plan.nodes):
        node_folder = folder / NODES / node.name
        (node_folder / OUT).mkdir(parents=True)
        os.link(folder / PLAN, node_folder / PLAN)
        place: Row = {
            "version": VERSION,
            "node": index,
            "host_kernel": list(placement.host_kernel),
            "dilation": placement.dilation,
            "gso": gso,
            "start": start,
        }
        if index not in placement.host_kernel:
            place["boot"] = guest_arguments(
                memory_bytes=MEMORY_BYTES,
                seed=(plan.seed + index) % 2**64,  # nodes draw apart: what one draws is nothing to another
                agent=f"{TOOLCHAIN}/qbed-agent",
                modules=f"{TOOLCHAIN}/modules",
                batch_ns=batch_ns,
            )
        (node_folder / PLACE).write_text(json.dumps(place) + "\n")
        if index in programmed and node.pipeline is not None:
            bmv2.write(node.pipeline, node_folder)
        elif node.pipeline is not None:
            write_images(find_toolchain(), plan, [index], node_folder)
    path = folder / file
    path.write_text(_dump(topology(plan, images, name)))
    return path


def _batch_ns(plan: Plan, dilation: int) -> int:
    """The longest deferral in a guest of a cell (real time)."""
    return min(MAX_BATCH_NS, shortest_rtt_ns(plan) * dilation // BATCHES_PER_RTT)


class _Dumper(yaml.SafeDumper):
    """Short lists and mappings of scalars on one line."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _dump(value: object) -> str:
    header = "# SPDX-License-Identifier: Apache-2.0\n# Written by qbed: containerlab deploy -t THIS-FILE\n"
    return header + yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=160)
