# SPDX-License-Identifier: Apache-2.0
"""The parts of a divided lab as tables, for `qbed inspect --parts`."""

from rich.table import Table

from qbed.base.json_files import Row
from qbed.config.units import format_duration
from qbed.plan.model import Plan
from qbed.plan.parts import NEVER_NS, cut_links, distances_ns, loads

SHORT_NS = 1_000
"""Parts with less time than that to run ahead wait for each other more than they compute."""
UNEVEN = 1.25
"""The heaviest part's load over the mean above which the others wait for it noticeably."""


def summary(plan: Plan) -> Row:
    """The parts of a plan: nodes, loads, cut links, look-ahead and warnings."""
    cut, distances, shares = cut_links(plan), distances_ns(plan), loads(plan)
    parts: list[Row] = [
        {
            "part": part,
            "nodes": plan.parts.count(part),
            "hosts": sum(of == part and node.kind == "host" for of, node in zip(plan.parts, plan.nodes, strict=True)),
            "load": share,
            "cut_links": sum(part in (plan.parts[plan.links[i].a.node], plan.parts[plan.links[i].b.node]) for i in cut),
            "lookahead_ns": min(
                (row[part] for other, row in enumerate(distances) if other != part and row[part] < NEVER_NS),
                default=None,
            ),
        }
        for part, share in enumerate(shares)
    ]
    least = min((part["lookahead_ns"] for part in parts if part["lookahead_ns"] is not None), default=None)
    warnings = []
    if least is not None and least < SHORT_NS:
        text = (
            f"a cut link has a delay of {format_duration(least)}: parts that wait for each other so often gain nothing"
        )
        warnings.append(text)
    if (worst := max(shares) * len(shares)) > UNEVEN:
        heaviest = shares.index(max(shares))
        warnings.append(f"part {heaviest} has {worst:.1f} times its share of the load, and the others wait for it")
    return {"parts": parts, "links": [plan.links[index].name for index in cut], "warnings": warnings}


def table(plan: Plan) -> Table:
    """One row a part."""
    shown = Table("part", "nodes", "hosts", "expected load", "cut links", "look-ahead", title=f"Parts of {plan.lab}")
    for part in summary(plan)["parts"]:
        ahead = part["lookahead_ns"]
        shown.add_row(
            *(str(part[name]) for name in ("part", "nodes", "hosts")),
            f"{part['load']:.0%}",
            str(part["cut_links"]),
            "-" if ahead is None else format_duration(ahead),
        )
    return shown
