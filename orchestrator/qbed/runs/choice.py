# SPDX-License-Identifier: Apache-2.0
"""Choose the cells of a matrix that a run needs: all, those of its shard, or as many seeds as its precision needs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from qbed.base.errors import QbedError
from qbed.campaign.matrix import Matrix
from qbed.campaign.until import Until, half_width
from qbed.claims.precision import values_of
from qbed.storage.run_folder import RunFolder

Shard = tuple[int, int]
"""The number of a shard, from 1, and the number of shards."""


class ShardError(QbedError):
    """There is no such shard."""

    exit_status = 2


class Choice:
    """The cells that are needed so far; `more` adds cells when these have ended."""

    def __init__(self, matrix: Matrix, run: RunFolder, shard: Shard | None = None) -> None:
        self._matrix, self._run = matrix, run
        self._until: Until | None = matrix.until
        self._seeds = len(matrix.axes[-1].values) if self._until else 1
        which, of = shard or (1, 1)
        self._groups = range(which - 1, len(matrix) // self._seeds, of)
        if not self._groups:
            raise ShardError(f"--shard {which}/{of}: there are only {len(matrix) // self._seeds} parts")
        self._wanted = dict.fromkeys(self._groups, self._until.seeds([]) if self._until else 1)
        self._open = set(self._groups) if self._until else set[int]()

    def __iter__(self) -> Iterator[int]:
        """Generate the numbers of the cells in ascending order."""
        for group in self._groups:
            yield from self._numbers(group)

    def __len__(self) -> int:
        return sum(self._wanted.values())

    def _numbers(self, group: int) -> range:
        return range(group * self._seeds, group * self._seeds + self._wanted[group])

    def _values(self, group: int) -> list[float]:
        assert self._until is not None
        return list(values_of(self._run, self._numbers(group), self._until.of).values())

    def more(self) -> list[int]:
        """The further cells that are needed after the results so far; empty if the choice is complete."""
        found: list[int] = []
        for group in sorted(self._open):
            assert self._until is not None
            before, values = self._numbers(group), self._values(group)
            now = self._until.seeds(values) if len(values) == len(before) else len(before)  # one is broken
            if now == len(before):
                self._open.discard(group)
            self._wanted[group] = now
            found.extend(range(before.stop, self._numbers(group).stop))
        return found

    def lacking(self) -> str | None:
        """A message about means that do not have the requested precision; None if all have it."""
        if self._until is None:
            return None
        found = ((self._values(group), group) for group in self._groups)
        wide = [(half_width(values), group) for values, group in found if not self._until.met(values)]
        if not wide:
            return None
        width, group = max(wide)
        cell = self._matrix.cell(self._numbers(group).start)
        where = ", ".join(f"{name}={value}" for name, value in cell.values.items() if name != "seed") or "all cells"
        others = f", and {len(wide) - 1} more like it" if len(wide) > 1 else ""
        known = f"known to {100 * width:.2g} %, not" if math.isfinite(width) else "not known"
        return (
            f"too few seeds: the mean of {self._until.of} is {known} to"
            f" {100 * self._until.share:.4g} %, after {self._wanted[group]} seeds ({where}{others})"
        )
