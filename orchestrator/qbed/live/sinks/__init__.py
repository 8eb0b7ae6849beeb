# SPDX-License-Identifier: Apache-2.0
"""Sinks of samples while a lab runs. The run folder has them as Parquet in any case; a sink is one more reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from qbed.base.errors import QbedError

if TYPE_CHECKING:
    from qbed.live.points import Points


class SinkError(QbedError):
    """There is no such sink, or what it was given it cannot take."""

    exit_status = 2


class NotTakenError(QbedError):
    """Points were not taken; the same may be sent again. `wait_s`: not before."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class Sink(Protocol):
    """A destination of points."""

    @property
    def name(self) -> str:
        """The sink's name for users, without secrets. The delivery log of a run records it."""

    def open(self, size: int | None) -> None:
        """Before the first points; `size`: what `write` returned last, None if it never did. Raises `SinkError`."""

    def encode(self, points: Points) -> bytes:
        """Equal points are equal bytes."""

    def write(self, body: bytes) -> int:
        """Returns when they are kept there: how much that sink has now, if it counts. Raises `NotTakenError`."""
