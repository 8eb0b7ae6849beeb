# SPDX-License-Identifier: Apache-2.0
"""Print the part of requirements.lock that qbed needs to run, also as a service, without development tools.

.venv/bin/python images/python/runtime_lock.py orchestrator/requirements.lock                     without Kaleido
.venv/bin/python images/python/runtime_lock.py orchestrator/requirements.lock --only kaleido      only that package
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

SEPARATE = {"kaleido"}
"""Packages of a separate image: Kaleido, a browser of 160 MB, only writes figures as files (images/figures)."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def canonical(requirement: str) -> str:
    """The normalised name (PEP 503) at the beginning of a requirement."""
    found = NAME.match(requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def runtime_names(package: str, extra: str) -> set[str]:
    """Everything that the installed `package` requires with an extra, however indirectly; without other extras."""
    found: set[str] = set()
    waiting = [package]
    while waiting:
        try:
            wanted = requires(waiting.pop()) or []
        except PackageNotFoundError:  # of another platform or Python: not installed here
            continue
        names = {
            canonical(line)
            for line in wanted
            if "extra ==" not in line or re.search(rf"extra == ['\"]{extra}['\"]", line)
        }
        waiting.extend(names - found)
        found |= names
    return found


def blocks(lock: str) -> list[str]:
    """The lines of each pinned version in a lock file."""
    starts = [match.start() for match in re.finditer(r"^[A-Za-z0-9]", lock, re.MULTILINE)]
    return [lock[start:end] for start, end in zip(starts, [*starts[1:], len(lock)], strict=True)]


if __name__ == "__main__":
    only = sys.argv[3:] if sys.argv[2:3] == ["--only"] else []
    wanted = set(only) or runtime_names("qbed", "service") - SEPARATE
    pinned = blocks(Path(sys.argv[1]).read_text())
    print("".join(block for block in pinned if canonical(block) in wanted), end="")
