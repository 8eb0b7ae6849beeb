# SPDX-License-Identifier: Apache-2.0
"""Every lab's last campaign, and what came of its claims under the versions of qbed that have run it."""

from __future__ import annotations

from contextlib import suppress

from qbed.base.json_files import Row, read_json
from qbed.campaign.matrix import fingerprint
from qbed.service.jobs import RUN, Jobs
from qbed.storage.identity import IDENTITY

MAX_JOBS, MAX_RUNS = 1_000, 20


def entries(jobs: Jobs) -> list[Row]:
    """By lab and profile, the last one first: its newest campaign that finished, and each claim's verdicts and numbers
    from the newest to the oldest, as far as they changed or the version did.
    """
    found: dict[tuple[str, str | None], Row] = {}
    for row in jobs.newest(MAX_JOBS, state="finished"):
        shown = _run(jobs, row)
        if shown is None:
            continue
        key = (row["name"], row["request"]["profile"])
        entry = found.setdefault(key, {"lab": key[0], "profile": key[1], "claims": {}, **shown[0]})
        for claim in shown[1]:
            history = entry["claims"].setdefault(claim["name"], [])
            if len(history) < MAX_RUNS:
                history.append(claim | shown[0])
    for entry in found.values():
        entry["claims"] = {name: _changes(history) for name, history in entry["claims"].items()}
    return list(found.values())


def _run(jobs: Jobs, row: Row) -> tuple[Row, list[Row]] | None:
    """A campaign that finished: which version ran it, and its claims."""
    place = jobs.place(row["id"]) / RUN
    with suppress(OSError, ValueError, KeyError, TypeError):
        provenance = read_json(place / "meta.json")["provenance"]
        tools = fingerprint(read_json(place / IDENTITY)["toolchain"])[:8]
        about = {"job": row["id"], "ended": row["ended"], "qbed": provenance["qbed"], "toolchain": tools}
        fields = ("name", "paper", "expect", "verdict", "contradicted", "measured")
        return about, [{field: claim[field] for field in fields} for claim in read_json(place / "claims.json")]
    return None


def _changes(history: list[Row]) -> list[Row]:
    """The newest of each group of equal neighbours (version, verdict, numbers)."""
    same = ("qbed", "toolchain", "verdict", "measured")
    before = [None, *history]
    return [verdict for verdict, last in zip(history, before, strict=False)
            if last is None or any(verdict[field] != last[field] for field in same)]  # fmt: skip
