# SPDX-License-Identifier: Apache-2.0
"""Find settings of a campaign without effect: values of an axis that give the same plan, and settings that no cell
uses.

Every combination of the axes' values is compiled once, with the first seed. Only the hash of a plan is kept: values are
compared by look-ups and not in pairs. `MAX_PLANS` and `MAX_BYTES` limit the work.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from qbed.base.errors import LabError
from qbed.campaign.matrix import Axis, Cell, Matrix
from qbed.campaign.overlaps import leaves, within
from qbed.config.messages import MAX_ERRORS
from qbed.config.source import FieldPath, Source
from qbed.network.load import load_cell
from qbed.network.resolve import ResolvedLab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan

MAX_PLANS, MAX_BYTES = 4000, 48 << 20
_QUIET_S, _EVERY_S = 2.0, 10.0
Digits = tuple[int, ...]
"""A combination: the number of each axis' value, without the seed."""


@dataclass(frozen=True)
class PlanDigest:
    """The hash of a combination's plan, and a message for each unused override."""

    plan: str
    unread: Mapping[FieldPath, str] = field(default_factory=dict)
    conditional: frozenset[FieldPath] = frozenset()
    """Unused overrides that have an effect with another value of another setting."""


class Plans:
    """Compiles the plans of a lab under several settings."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known: dict[str, PlanDigest] = {}

    def make(self, cell: Cell) -> tuple[ResolvedLab, Plan, str]:
        """The lab, its plan and the plan's text; `LabError`."""
        loaded = load_cell(self._source, dict(cell.settings))
        cell.check(loaded.source.values)
        plan = compile_lab(loaded, cell.seed)
        text = plan.dumps()
        unread = {path: why for path, why in loaded.unread.items() if loaded.source.is_override(path)}
        self._known[self._key(cell)] = PlanDigest(
            hashlib.sha256(text.encode()).hexdigest(),
            {path: loaded.source.message(path, why.text) for path, why in unread.items()},
            frozenset(path for path, why in unread.items() if why.conditional),
        )
        return loaded, plan, text

    def digest(self, cell: Cell) -> PlanDigest:
        """The digest of a cell's plan; cells with the same settings are compiled once."""
        if self._key(cell) not in self._known:
            self.make(cell)
        return self._known[self._key(cell)]

    @staticmethod
    def _key(cell: Cell) -> str:
        return json.dumps([cell.seed, dict(cell.settings)], sort_keys=True, default=str)


@dataclass
class Survey:
    """The compiled combinations. `sample`: called with each in which at most one axis has not its first value.
    `compiled`: called with each. `progress`: called with a line of progress.
    """

    matrix: Matrix
    plans: Plans
    sample: Callable[[ResolvedLab, Plan, str], None]
    progress: Callable[[str], None] | None = None
    compiled: Callable[[Digits, ResolvedLab, Plan], None] = lambda digits, lab, plan: None
    digests: dict[Digits, PlanDigest] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Compile all combinations, or as many as the limits allow; mistakes go to `errors`."""
        total, size = self.matrix.combinations, 0
        reported_s = time.monotonic() + _QUIET_S - _EVERY_S
        for number, digits in enumerate(self.matrix.combined()):
            samples = sum(digit > 0 for digit in digits) <= 1
            if not samples and (number >= MAX_PLANS or size >= MAX_BYTES or len(self.errors) >= MAX_ERRORS):
                return
            if self.progress is not None and time.monotonic() - reported_s >= _EVERY_S:
                self.progress(f"checking the campaign: {number} of {total} combinations of its axes' values")
                reported_s = time.monotonic()
            cell = self.matrix.at(digits)
            try:
                loaded, plan, text = self.plans.make(cell)
            except LabError as error:
                self.errors.extend(message for message in error.messages if message not in self.errors)
                continue
            size += len(text)
            self.digests[digits] = self.plans.digest(cell)
            self.compiled(digits, loaded, plan)
            if samples:
                self.sample(loaded, plan, text)

    @property
    def is_complete(self) -> bool:
        """Whether all combinations were compiled."""
        return len(self.digests) == self.matrix.combinations

    # --- values that give the same plan ---

    def equal_everywhere(self, place: int) -> Iterator[tuple[int, int]]:
        """Pairs of an axis' values that give the same plan beside all values of the others."""
        count = len(self.matrix.axes[place].values)
        beside = defaultdict[Digits, dict[int, str]](dict)
        for digits, digest in self.digests.items():
            beside[digits[:place] + digits[place + 1 :]][digits[place]] = digest.plan
        groups = [list(range(count))]
        for plans in (plans for plans in beside.values() if len(plans) == count):
            split = [defaultdict[str, list[int]](list) for _ in groups]
            for group, parts in zip(groups, split, strict=True):
                for value in group:
                    parts[plans[value]].append(value)
            groups = [part for parts in split for part in parts.values() if len(part) > 1]
        for first, *others in groups:
            yield from ((first, equal) for equal in others)

    def equal_in_combinations(self, place: int) -> Iterator[tuple[int, int, Digits]]:
        """Pairs of values of an axis of values that give the same plan in some combination, once each, with the first
        such combination. Not where what the axis sets is for another scheme, controller or kind.
        """
        axis, seen, found = self.matrix.axes[place], dict[tuple[Digits, str], Digits](), set[tuple[int, int]]()
        for digits, digest in self.digests.items():
            previous = seen.setdefault((digits[:place] + digits[place + 1 :], digest.plan), digits)
            pair = (previous[place], digits[place])
            if previous is digits or pair in found:
                continue
            if not all(self._is_for_others(axis, self.digests[place]) for place in (previous, digits)):
                found.add(pair)
                yield *pair, digits

    @staticmethod
    def _is_for_others(axis: Axis, digest: PlanDigest) -> bool:
        return axis.field is not None and any(within(axis.field, path) for path in digest.conditional)

    def shown(self, digits: Digits, place: int) -> str:
        """The values of all other axes that have several: `scheme=ecn, delay=5 us`."""
        axes = zip(self.matrix.axes, digits, strict=False)
        parts = [
            f"{axis.name}={axis.values[digit]}"
            for number, (axis, digit) in enumerate(axes)
            if number != place and len(axis.values) > 1
        ]
        return ", ".join(parts)

    # --- settings that nothing reads ---

    def never_used(self) -> Iterator[tuple[str, str]]:
        """Settings that are unused in all cells that have them: their origin (`axis`, `set`, `--set`) and a message.

        Empty if combinations were left out, because these might use them.
        """
        if not self.is_complete:
            return
        read, unread = set[tuple[str, int, int, FieldPath]](), dict[tuple[str, int, int, FieldPath], str]()
        given = {
            (place, digit): list(leaves(settings))
            for place, axis in enumerate(self.matrix.axes)
            for digit, settings in enumerate(axis.settings)
        }
        everywhere = [("set", path) for path in leaves(self.matrix.common)]
        everywhere += [("--set", path) for path in leaves(self.matrix.fixed)]
        for digits, digest in self.digests.items():
            keys = [("axis", *at, path) for at in enumerate(digits) for path in given[at]]
            keys += [(origin, 0, 0, path) for origin, path in everywhere]
            for key in keys:
                why = next((digest.unread[path] for path in digest.unread if within(key[-1], path)), None)
                if why is None:
                    read.add(key)
                else:
                    unread.setdefault(key, why)
        yield from dict.fromkeys((key[0], why) for key, why in unread.items() if key not in read)
