# SPDX-License-Identifier: Apache-2.0
"""Caveats: which cells have one, and which claims they touch."""

from __future__ import annotations

import duckdb
import pytest

from qbed.campaign.claim import Claim
from qbed.claims.caveats import Caveats, find_caveats
from qbed.claims.views import connect_empty

MS = 1_000_000
WHOLE = (
    "a mean includes time without active flows, 60 % of the run in all cells;"
    " `observe.until` and `queue_windows` leave it out"
)


def found(
    *cells: tuple[str, str, int | None], windows: tuple[tuple[str, int, int], ...] = (), programs: bool = False
) -> Caveats:
    """Caveats of cells of 100 ms: scheme, bottleneck, and when the only flow ends (it begins at 0)."""
    with connect_empty({"scheme": "str", "seed": "int"}) as connection:
        views = ("cells", "queues", "flows", "windows", "programs")
        for view in views:
            connection.execute(f"CREATE OR REPLACE TABLE t_{view} AS SELECT * FROM {view}")
        for view in views:
            connection.execute(f"DROP VIEW {view}")
            connection.execute(f"ALTER TABLE t_{view} RENAME TO {view}")
        for cell, (scheme, bottleneck, end_ms) in enumerate(cells):
            insert(connection, "cells", cell=cell, scheme=scheme, seed=1, duration_ns=100 * MS, bottleneck=bottleneck)
            role = "host" if bottleneck.startswith("h") else "switch"
            insert(connection, "queues", cell=cell, port=bottleneck, role=role)
            end_ns = None if end_ms is None else end_ms * MS
            insert(connection, "flows", cell=cell, flow=0, start_ns=0, end_ns=end_ns)
            for span, begin, end in windows:
                insert(connection, "windows", cell=cell, span=span, from_ns=begin * MS, until_ns=end * MS)
            if programs:
                insert(connection, "programs", cell=cell)
        return find_caveats(connection, ["scheme", "seed"], {"late": "SELECT seed, mean_packets AS m FROM queues"})


def insert(connection: duckdb.DuckDBPyConnection, table: str, **values: object) -> None:
    columns, marks = ", ".join(values), ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", [*values.values()])


def claim(measure: str, source: str = "cells") -> Claim:
    return Claim.model_validate({"name": "c", "measure": measure, "from": source, "bound": "> 0"})


def test_means_of_queues_over_a_run_with_idle_time() -> None:
    caveats = found(("ecn", "s1>s2", 40), ("codel", "s1>s2", 40))
    assert caveats.of_claim(claim("avg(mean_packets)", "queues")) == [WHOLE]
    assert caveats.of_claim(claim("avg(m)", "late")) == [WHOLE], "by a view of the campaign"
    assert caveats.of_claim(claim("avg(packet_ns)", "queue_series")) == [WHOLE]
    assert caveats.of_claim(claim("avg(packet_ns)", "queue_series WHERE time_ns < 4e7")) == []
    assert caveats.of_claim(claim("max(max_packets)", "queues")) == [], "no mean"
    assert caveats.of_claim(claim("avg(goodput_bps)")) == [], "goodput is over the time of the flows"


def test_a_flow_until_the_end_or_a_program_leaves_no_idle_time() -> None:
    assert found(("ecn", "s1>s2", None)).of_claim(claim("avg(mean_packets)", "queues")) == []
    assert found(("ecn", "s1>s2", 95)).of_claim(claim("avg(mean_packets)", "queues")) == []
    assert found(("ecn", "s1>s2", 40), programs=True).of_claim(claim("avg(mean_packets)", "queues")) == []


def test_a_window_has_the_idle_time_within_it() -> None:
    caveats = found(("ecn", "s1>s2", 40), windows=(("busy", 0, 40), ("long", 0, 80)))
    assert caveats.of_claim(claim("avg(mean_packets)", "queue_windows WHERE span = 'busy'")) == []
    expected = "a mean includes time without active flows, 50 % of the window `long` in all cells"
    assert caveats.of_claim(claim("avg(mean_packets)", "queue_windows WHERE span = 'long'")) == [expected]
    assert caveats.of_claim(claim("avg(mean_packets)", "queue_windows")) == [expected]


@pytest.mark.parametrize(
    ("cells", "where"),
    [
        ([("ecn", "h1>s1", 99)], "(h1>s1) in all cells"),
        ([("ecn", "s1>s2", 99), ("codel", "h1>s1", 99), ("codel", "h2>s1", 99)],
         "(h1>s1 and 1 more) in the cells with scheme codel"),
        ([("ecn", "s1>s2", 99), ("ecn", "h1>s1", 99)], "(h1>s1) in 1 of 2 cells, first in cell 1"),
    ],
)  # fmt: skip
def test_a_bottleneck_in_a_host_touches_every_claim(cells: list[tuple[str, str, int | None]], where: str) -> None:
    assert found(*cells).of_claim(claim("avg(goodput_bps)")) == [f"packets waited most in a host's own queue {where}"]
    assert found(("ecn", "s1>s2", 99)).of_claim(claim("avg(goodput_bps)")) == []
