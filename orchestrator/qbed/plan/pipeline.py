# SPDX-License-Identifier: Apache-2.0
"""The plan's P4 switches: programs, ports and table entries."""

from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from qbed.lab.settings import P4Engine
from qbed.p4.entry import Entry, Number
from qbed.plan.base import Part
from qbed.plan.queue import Qdisc


class RecirculationPort(Part):
    """A recirculation port: packets sent there return to the ingress. `interface` represents it in the switch's
    namespace. `rate_bps` is informative; without it, packets leave at once.
    """

    port: int
    interface: str
    rate_bps: int | None
    qdisc: Qdisc


class Session(Part):
    """Ports of a clone session; `truncate_bytes` 0: clones are not truncated."""

    session: int
    ports: list[int]
    truncate_bytes: int


class Group(Part):
    """The ports of a multicast group."""

    group: int
    ports: list[int]


class Register(Part):
    """The initial value of a register's element."""

    name: str
    index: int
    value: Number


class Pipeline(Part):
    """The program of a P4 switch: one of the plan's `p4`, by name. Port N is the interface `ports[N]`. `engine`: the
    engine in containers, if the lab file names one.
    """

    program: str
    engine: P4Engine | None = None
    ports: list[str]
    entries: list[Entry]
    recirculation: list[RecirculationPort] = []
    sessions: list[Session] = []
    groups: list[Group] = []
    registers: list[Register] = []

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        required = {name for name, field in Pipeline.model_fields.items() if field.is_required()}
        return {name: value for name, value in handler(self).items() if value or name in required}


class P4Program(Part):
    """A P4 program: BMv2's JSON as text, and its P4Info if an engine of the plan is configured by P4Runtime."""

    name: str
    bmv2: str
    p4info: str | None = None

    @model_serializer(mode="wrap")
    def _without_p4info(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}
