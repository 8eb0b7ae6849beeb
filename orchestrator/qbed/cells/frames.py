# SPDX-License-Identifier: Apache-2.0
"""Frames between containers: frames exchanged by both ends of each link, and losses outside the plan's queues.

A frame leaves the sender's kernel, crosses the interfaces of two containers and enters the receiver's kernel. On this
path an interface, the packet socket of a guest or a guest's device can drop it. Each of these losses is counted. If
sent = received + lost does not hold, the cell is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from qbed.base.json_files import Row
from qbed.plan.model import End, Plan
from qbed.plan.ports import port_names
from qbed.telemetry.wall import Interface, Wall

MAX_SHOWN = 20


@dataclass(frozen=True)
class _Direction:
    """One direction of a link, with the interfaces of its sender and its receiver."""

    link: int
    side: str
    name: str
    sender: Interface
    receiver: Interface


def interface_rows(plan: Plan, wall: Wall) -> Iterator[Row]:
    """The rows of the table `interfaces`: each end of a link, if its node reports frames."""
    ports = port_names(plan)
    for link in plan.links:
        for end in (link.a, link.b):
            interface = _interface(plan, wall, end)
            if interface is None:
                continue
            kernel = interface.kernel or interface
            yield {
                "link": link.name,
                "port": ports[end.queue],
                "node": plan.nodes[end.node].name,
                "interface": end.interface,
                "rx_packets": kernel.rx_packets,
                "tx_packets": kernel.tx_packets,
                "interface_dropped": interface.interface_dropped,
                "socket_dropped": interface.socket_dropped,
                "device_dropped": interface.device_dropped,
            }


def examine_frames(plan: Plan, wall: Wall, slack: Callable[[int], int]) -> tuple[list[str], list[str], Row]:
    """Contradictions, warnings, and details. `slack`: the tolerance between two nodes' counters for a number of frames
    sent.
    """
    contradictions, warnings = _losses(wall)
    for direction in _directions(plan, wall):
        sender, receiver = direction.sender, direction.receiver
        if sender.kernel is None or receiver.kernel is None:
            continue
        sent, received = sender.kernel.tx_packets, receiver.kernel.rx_packets
        dropped = receiver.socket_dropped or 0
        unknown = sent - received - dropped
        # A frame that an interface dropped may have been sent again: a guest retries until the interface accepts it.
        uncertain = sender.interface_dropped + receiver.interface_dropped
        room = slack(sent)
        if not -room <= unknown <= room + uncertain:
            contradictions.append(
                f"link {direction.name}: {sent} frames sent to its container's interface, {received} received from the"
                f" peer's and {dropped} dropped there: {unknown} are unaccounted for"
            )
    rows = sorted(interface_rows(plan, wall), key=lambda row: -_lost(row))
    lost = [row for row in rows if _lost(row)]
    return contradictions, warnings, {"frames_lost": sum(map(_lost, lost)), "frames_lost_at": lost[:MAX_SHOWN]}


def lost_between(plan: Plan, wall: Wall) -> dict[tuple[int, str], int]:
    """Frames lost between two guests, by link and sending side. If one node runs on the host's kernel, both ends of the
    link device are in the other node's guest, and no frame is lost between them.
    """
    return {
        (direction.link, direction.side): direction.sender.device_dropped + direction.receiver.lost
        for direction in _directions(plan, wall)
        if not {plan.nodes[end.node].name for end in _ends(plan, direction.link)} & set(wall.host_kernel)
    }


def _losses(wall: Wall) -> tuple[list[str], list[str]]:
    """Contradictions for frames that interfaces lost, and a warning for those that could not be counted."""
    contradictions, uncounted = [], []
    for name, node in wall.nodes.items():
        for interface, counted in node.interfaces.items() if node is not None else ():
            places = {
                "at the interface": counted.interface_dropped,
                "in the packet socket": counted.socket_dropped or 0,
                "in the guest's device": counted.device_dropped,
            }
            if counted.lost:
                where = ", ".join(f"{number} {place}" for place, number in places.items() if number)
                contradictions.append(
                    f"{name}:{interface} dropped {counted.lost} frames outside the plan's queues ({where}):"
                    f" this machine does not carry them at dilation {wall.dilation}"
                )
            if counted.kernel is not None and counted.socket_dropped is None and name not in wall.host_kernel:
                uncounted.append(f"{name}:{interface}")
    more = f" and {len(uncounted) - MAX_SHOWN} more" if len(uncounted) > MAX_SHOWN else ""
    text = f"{', '.join(uncounted[:MAX_SHOWN])}{more}: frames that the packet socket dropped could not be counted"
    return contradictions, [text] if uncounted else []


def _directions(plan: Plan, wall: Wall) -> Iterator[_Direction]:
    ports = port_names(plan)
    for index, link in enumerate(plan.links):
        for side, end, peer in (("a", link.a, link.b), ("b", link.b, link.a)):
            sender, receiver = _interface(plan, wall, end), _interface(plan, wall, peer)
            if sender is not None and receiver is not None:
                yield _Direction(index, side, ports[end.queue], sender, receiver)


def _ends(plan: Plan, link: int) -> tuple[End, End]:
    return plan.links[link].a, plan.links[link].b


def _interface(plan: Plan, wall: Wall, end: End) -> Interface | None:
    node = wall.nodes.get(plan.nodes[end.node].name)
    return node.interfaces.get(end.interface) if node is not None else None


def _lost(row: Row) -> int:
    return int(row["interface_dropped"] + row["device_dropped"] + (row["socket_dropped"] or 0))
