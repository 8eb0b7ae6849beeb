# SPDX-License-Identifier: Apache-2.0
"""The traces of a campaign's cells: `campaign.lock` beside `campaign.yml`, committed with it.

A trace is the hash of all that a guest recorded of its packets, flows and routes. In virtual time it is the same on
every machine, so the file shows whether and where a change to qbed, a scheme or a lab changed behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qbed.base.errors import QbedError
from qbed.base.json_files import read_json, write_json

VERSION = 1
NEXT_STEP = "To see the first difference: run the lock's commit with --out BEFORE, then `qbed diff BEFORE THIS_RUN`."
"""The hint for traces that differ."""
_NO_PROFILE = ""
"""The name of a run without a profile."""


class LockError(QbedError):
    """The lock is missing or cannot be read, or cells have other traces."""


@dataclass(frozen=True)
class Kernel:
    """Kernel of the guests: its series, such as `6.12`, and its version, such as `6.12.117-1~deb12u1`."""

    series: str
    version: str


@dataclass
class Lock:
    """The traces of a campaign: by profile, kernel series, and what a cell is called (`scheme=rpm, seed=1`)."""

    path: Path
    traces: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    kernels: dict[str, dict[str, str]] = field(default_factory=dict)
    """By profile and series: the version that the traces are of (`6.12.117-1~deb12u1`). The next may do otherwise."""

    @classmethod
    def of(cls, campaign: Path) -> Lock:
        """That of a campaign file; empty if there is none yet."""
        path = campaign.with_suffix(".lock")
        if not path.exists():
            return cls(path)
        try:
            value = read_json(path)
        except (OSError, ValueError):
            value = None
        valid = isinstance(value, dict) and value.get("version") == VERSION and _is_of_traces(value.get("traces"))
        if value is None or not valid or not _is_of_traces(value.get("kernels", {}), 2):
            raise LockError(
                f"{path} is no lock of version {VERSION}; `qbed run --lock` writes it anew where it is deleted"
            )
        return cls(path, value["traces"], value.get("kernels", {}))

    def differences(
        self, profile: str | None, kernel: Kernel, found: Mapping[str, str | None], *, part: bool = False
    ) -> Iterator[str]:
        """Messages for cells with other traces, in order; `LockError` without a lock.

        `part`: `found` has only some of the campaign's cells.
        """
        series = kernel.series
        known = self.traces.get(profile or _NO_PROFILE, {}).get(series)
        if known is None:
            what = f"the profile `{profile}`" if profile else "the campaign without a profile"
            raise LockError(f"{self.path} has no traces of {what} on kernel {series}: `qbed run --lock` records them")
        locked = self.kernels.get(profile or _NO_PROFILE, {}).get(series, kernel.version)
        suspect = f"; it is of kernel {locked}, and this is {kernel.version}" if locked != kernel.version else ""
        for cell, trace in found.items():
            if cell not in known:
                yield f"cell ({cell}) is not in {self.path}"
            elif trace != known[cell]:
                text = f"{self.path}: its trace is {_short(trace)}, not {_short(known[cell])}"
                yield f"cell ({cell}) differs from {text}{suspect}"
        for cell in sorted(known.keys() - found.keys()) if not part else ():
            yield f"cell ({cell}) of {self.path} is not in the campaign any more"

    def record(self, profile: str | None, kernel: Kernel, found: Mapping[str, str]) -> None:
        """Replace the recorded traces of a profile."""
        self.traces.setdefault(profile or _NO_PROFILE, {})[kernel.series] = dict(found)
        self.kernels.setdefault(profile or _NO_PROFILE, {})[kernel.series] = kernel.version
        write_json(self.path, {"version": VERSION, "traces": self.traces, "kernels": self.kernels})


def _short(trace: str | None) -> str:
    return "nothing" if trace is None else trace[:12]


def _is_of_traces(value: object, depth: int = 3) -> bool:
    if depth == 0:
        return isinstance(value, str)
    return isinstance(value, dict) and all(_is_of_traces(item, depth - 1) for item in value.values())
