# SPDX-License-Identifier: Apache-2.0
"""Property: no query takes more memory or time than its limits, and each failure is one line."""

from __future__ import annotations

import resource
import time

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbed.claims import sql
from qbed.claims.views import connect_empty

LIMIT_S, DUCKDB_BYTES, ADDRESS_BYTES = 1.0, 64 << 20, 256 << 20
counts = st.sampled_from(("0", "1", "1000", "1000000", "100000000", "4000000000", "i", "i * 1000000"))
lists = st.one_of(
    st.builds("range({})".format, counts),
    st.builds("list_resize([1::BIGINT], {})".format, counts),
    st.builds("flatten([range({}), range({})])".format, counts, counts),
)
texts = st.recursive(
    st.sampled_from(("'x'", "'é'", "i::VARCHAR", "''")),
    lambda inner: st.one_of(
        st.builds("repeat({}, {})".format, inner, counts),
        st.builds("lpad({}, least({}, 2000000000)::INTEGER, 'y')".format, inner, counts),
        st.builds("array_to_string(list_transform({}, x -> {}), ',')".format, lists, inner),
        st.builds("replace({}, 'x', {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("printf('%' || {} || 'd', 1)".format, counts),
    ),
    max_leaves=4,
)
values = st.one_of(
    texts,
    st.builds("length({})".format, texts),
    lists,
    st.builds("list_sum({})".format, lists),
    st.builds("list({})".format, texts),
    st.builds("string_agg({}, '')".format, texts),
    st.builds("levenshtein({}, {})".format, texts, texts),
    st.builds("count(DISTINCT {})".format, texts),
    st.builds("median({})".format, texts),
    st.builds("first({} ORDER BY hash(i))".format, texts),
)
sources = st.builds(
    "FROM range({}) t(i){}{}".format,
    st.sampled_from(("1", "3000", "100000000", "list_sum(range(1000000))::BIGINT")),
    st.sampled_from(("", ", range(100000000) u", ", cells")),
    st.sampled_from(("", " ORDER BY hash(i)", " LIMIT length(repeat('x', 100000000))")),
)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "LIMIT_S", LIMIT_S)
    monkeypatch.setattr(sql, "MEMORY_BYTES", DUCKDB_BYTES)
    monkeypatch.setattr(sql, "ADDRESS_BYTES", ADDRESS_BYTES)


def largest_kb() -> int:
    """The most memory that this process or one of its children has had, those of other tests included."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


@pytest.mark.usefixtures("limits")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(value=values, source=sources)
def test_a_query_stays_within_its_limits(value: str, source: str) -> None:
    """A child's memory counts from its parent's at the fork."""
    text = f"SELECT {value} AS holds {source}"
    with connect_empty({"seed": "int"}) as connection:
        before, begun = largest_kb(), time.monotonic()
        for query in (lambda: sql.columns(connection, text), lambda: sql.first_rows(connection, text, 2)):
            try:
                query()
            except duckdb.Error as error:
                message = sql.one_line(error)
                assert message
                assert "\n" not in message
                assert "Error: Failed to allocate" not in message
        grown = largest_kb() - before
    assert grown << 10 < ADDRESS_BYTES, text
    assert time.monotonic() - begun < 2 * LIMIT_S + 20, text
