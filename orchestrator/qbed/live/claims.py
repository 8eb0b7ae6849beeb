# SPDX-License-Identifier: Apache-2.0
"""The claims of a run as points: their verdicts, and their measures with the bounds."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from qbed.base.json_files import Row
from qbed.live.points import Origin, Points, same_time


def claim_points(verdicts: list[Row], origin: Origin) -> Iterator[Points]:
    """The claims of a run: 1 for one that holds, 0 for another; `as_expected` is 0 if the results exclude the expected
    verdict. Each measure has its average over seeds, its 95 % confidence interval, and the finite ends of its bound.
    """
    run = {name: origin.tags[name] for name in ("campaign", "run")}
    tags = [run | {"claim": str(verdict["name"])} for verdict in verdicts]
    fields = {
        "holds": pa.array([int(verdict["verdict"] == "holds") for verdict in verdicts], pa.int64()),
        "as_expected": pa.array([int(not verdict["contradicted"]) for verdict in verdicts], pa.int64()),
        "verdict": pa.array([str(verdict["verdict"]) for verdict in verdicts], pa.string()),
        "sentence": pa.array([str(verdict["paper"]) for verdict in verdicts], pa.string()),
    }
    yield same_time("claim", tags, fields, origin)
    measures = [
        (tag | {"measure": _label(estimate)}, estimate)
        for tag, verdict in zip(tags, verdicts, strict=True)
        for estimate in verdict.get("estimates", ())
    ]
    if measures:
        estimates = [estimate for _, estimate in measures]
        numbers = {
            name: pa.array([estimate.get(name) for estimate in estimates], pa.float64())
            for name in ("point_estimate", "low", "high", "lower_bound", "upper_bound")
        }
        fields = {
            "seeds": pa.array([estimate["seeds"] for estimate in estimates], pa.int64()),
            **numbers,
            "bound": pa.array([estimate.get("bound") for estimate in estimates], pa.string()),
        }
        yield same_time("measure", [tag for tag, _ in measures], fields, origin)


def _label(estimate: Row) -> str:
    """The measure's name with the values of its group."""
    group = ", ".join(f"{name} {value}" for name, value in estimate.get("group", {}).items())
    return f"{estimate['name']} ({group})" if group else str(estimate["name"])
