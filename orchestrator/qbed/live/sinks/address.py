# SPDX-License-Identifier: Apache-2.0
"""The kinds of sinks, by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qbed.live.sinks import Sink
from qbed.live.sinks.influx import Influx
from qbed.live.sinks.ndjson import File


@dataclass(frozen=True)
class Address:
    """A sink that can be made anew in another process."""

    kind: str
    where: str

    @classmethod
    def named(cls, name: str) -> Address:
        """The address of a sink with this name (`Sink.name`)."""
        return cls("influx" if name.startswith(("http://", "https://")) else "ndjson", name)

    def make(self) -> Sink:
        """`SinkError` if there is none."""
        return Influx(self.where) if self.kind == "influx" else File(Path(self.where))
