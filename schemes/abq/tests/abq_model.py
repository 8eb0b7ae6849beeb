# SPDX-License-Identifier: Apache-2.0
"""A second implementation of ABQ from the paper, with the choices of schemes/abq/README.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

COUNTED: tuple[str, ...] = (
    *("holds", "releases", "released", "released_with_ece", "overflow", "overtaken", "held_packet_ns", "max_held"),
    *("entries_us", "entries_cs", "entries_lcs"),
)


@dataclass
class Model:
    """A port with ABQ. Lengths are in packets or in bytes; `mtu` is a full frame in that unit."""

    threshold: int
    limit: int
    mtu: int
    hold_limit: int = 1000
    count: int | None = None
    """ACKs that one release lets go while the port stays congested; None: all."""

    state: str = "US"
    x: int = 0
    held: list[Any] = field(default_factory=list)
    released: list[tuple[Any, int, bool]] = field(default_factory=list)
    """Every acknowledgement in the order of its departure, with the time and whether ECE was set."""
    statistics: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    _held_since: int = 0

    def run(self, steps: Iterable[tuple[int, str, Any]]) -> None:
        """Process steps in order: (time, "queue", length), (time, "ack", packet) or (time, "segment", other packet).

        The first two fields of a packet identify its connection: destination and ports.
        """
        step = {"queue": self._queue, "ack": self._ack, "segment": self._segment}
        for time, kind, value in steps:
            step[kind](time, value)

    def finish(self, time: int) -> dict[str, int]:
        """Return the statistics at `time`."""
        self._integrate(time)
        return self.statistics

    def _enter(self, state: str) -> None:
        if state != self.state:
            self.statistics[f"entries_{state.lower()}"] += 1
        self.state = state

    def _queue(self, time: int, length: int) -> None:
        if length > self.threshold:
            if self.state != "CS":
                self.x = max(0, min(self.limit - self.threshold, self.threshold))
            self._enter("CS")
        elif self.state != "US" and length <= self.x:
            while self.x and length <= self.x:
                self.x //= 2
                if self.x < 4 * self.mtu:
                    self.x = 0
            self._enter("LCS" if self.x else "US")
            self._integrate(time)
            leaving = self.held[: None if self.state == "US" else self.count]
            self.released += [(ack, time, True) for ack in leaving]
            self.statistics["releases"] += 1
            self.statistics["released"] += len(leaving)
            self.statistics["released_with_ece"] += len(leaving)
            self.held = self.held[len(leaving) :]

    def _ack(self, time: int, ack: Any) -> None:
        if self.state == "US":
            self.released.append((ack, time, False))
            return
        self._integrate(time)
        if len(self.held) == self.hold_limit:
            self.released.append((self.held.pop(0), time, True))
            self.statistics["overflow"] += 1
            self.statistics["released_with_ece"] += 1
        self.held.append(ack)
        self.statistics["holds"] += 1
        self.statistics["max_held"] = max(self.statistics["max_held"], len(self.held))

    def _segment(self, time: int, segment: Any) -> None:
        taken = [ack for ack in self.held if ack[:2] == segment[:2]]
        self._integrate(time)
        self.released += [(ack, time, True) for ack in taken]
        self.held = [ack for ack in self.held if ack[:2] != segment[:2]]
        self.statistics["overtaken"] += len(taken)
        self.statistics["released_with_ece"] += len(taken)

    def _integrate(self, time: int) -> None:
        self.statistics["held_packet_ns"] += len(self.held) * (time - self._held_since)
        self._held_since = time
