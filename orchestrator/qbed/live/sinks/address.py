# SPDX-License-Identifier: Apache-2.0
"""The kinds of sinks, by name. They are loaded with the first sink: most runs have none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qbed.live.sinks import Sink


@dataclass(frozen=True)
class Address:
    """A sink that can be made anew in another process."""

    kind: str
    where: str

    @classmethod
    def named(cls, name: str) -> Address:
        """The address of a sink with this name (`Sink.name`)."""
        from qbed.live.sinks.otlp import PATH

        if not name.startswith(("http://", "https://")):
            return cls("ndjson", name)
        return cls("otlp" if name.endswith(PATH) else "influx", name)

    def make(self) -> Sink:
        """`SinkError` if there is none."""
        from qbed.live.sinks.influx import Influx
        from qbed.live.sinks.ndjson import File
        from qbed.live.sinks.otlp import Otlp

        if self.kind == "influx":
            return Influx(self.where)
        return Otlp(self.where) if self.kind == "otlp" else File(Path(self.where))


def addresses_of(influx: str | None, otlp: str | None, ndjson: Path | None = None) -> list[Address]:
    """The sinks that a command or an environment names."""
    named = {"influx": influx, "otlp": otlp, "ndjson": str(ndjson.absolute()) if ndjson else None}
    return [Address(kind, where) for kind, where in named.items() if where]
