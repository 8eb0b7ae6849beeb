# SPDX-License-Identifier: Apache-2.0
"""Gather the shards of a campaign, which several machines ran, into one run folder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from qbed.base.json_files import Row
from qbed.runs.choice import Choice
from qbed.runs.executor import WALL_TIMES
from qbed.storage.checksums import DamagedError
from qbed.storage.identity import StoreError, read_any_identity
from qbed.storage.run_folder import MUST_MATCH, TOOLCHAIN, Current, RunFolder, differing_fields

MAX_NAMED = 10


class MissingCellsError(StoreError):
    """The shards do not have all cells."""

    exit_status = 1


def check_shards(shards: Sequence[RunFolder], identity: Row, current: Current | None) -> None:
    """Raise `StoreError` if a shard is no run folder, or belongs to another campaign.

    `current`: the toolchain of a shard may differ in what its cells do not load.
    """
    for shard in shards:
        fields = differing_fields(read_any_identity(shard.path), identity)
        if fields == [TOOLCHAIN] and current is not None and not shard.obsolete(current):
            continue
        if fields:
            different = " and ".join(MUST_MATCH[field] for field in fields)
            raise StoreError(f"{shard.path} is a shard of another campaign: {different} differ")


def gather(run: RunFolder, shards: Sequence[RunFolder], choice: Choice) -> None:
    """Copy the cells from the shards; `StoreError` if one is damaged or missing."""
    wanted, missing = list(choice), list[int]()
    while wanted:
        missing += [number for number in wanted if not _adopt(run, shards, number)]
        wanted = choice.more()
    if missing:
        named = ", ".join(map(str, islice(missing, MAX_NAMED))) + (", ..." if len(missing) > MAX_NAMED else "")
        raise MissingCellsError(
            f"{len(missing)} cells are in none of the shards ({named}): the command of their shard continues it"
        )
    _times(run, shards)


def _adopt(run: RunFolder, shards: Sequence[RunFolder], number: int) -> bool:
    """Copy an undamaged cell, a finished one rather than a failed one; `DamagedError` if all copies are damaged."""
    damaged: list[DamagedError] = []
    for shard in shards:
        try:
            run.adopt(number, shard)
        except DamagedError as error:
            damaged.append(error)
    found = run.record(number) is not None
    if damaged and not found:
        raise damaged[0]
    return found


def _times(run: RunFolder, shards: Sequence[RunFolder]) -> None:
    with (run.cells / WALL_TIMES).open("w") as out:
        for shard in shards:
            if (shard.cells / WALL_TIMES).exists():
                with (shard.cells / WALL_TIMES).open() as lines:
                    out.writelines(lines)
