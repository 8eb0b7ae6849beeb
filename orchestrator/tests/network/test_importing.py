# SPDX-License-Identifier: Apache-2.0
"""Arbitrary Containerlab files: a lab, or a `LabError`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from qbed.base.errors import LabError
from qbed.config.source import parse
from qbed.network.importing import import_topology
from qbed.network.load import lab_from_source

WORDS = st.sampled_from(["a", "b", "linux", "a:eth1", "b:eth1", "name", "kind", "group", "node", "host:eth0", "x", ""])
SCALARS = st.none() | st.booleans() | st.integers(-2, 10**20) | st.floats(allow_nan=True) | WORDS
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.integers(), inner, max_size=3)
)
"""Any value that YAML can have in place of a field."""


def optional(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """A strategy, or in one of some cases anything else."""
    return st.integers(0, 9).flatmap(lambda number: ANYTHING if number == 0 else strategy)


NODE = optional(st.fixed_dictionaries({}, optional={"kind": optional(WORDS), "group": optional(WORDS)}))
LINK = optional(
    st.fixed_dictionaries(
        {"endpoints": optional(st.lists(optional(st.sampled_from(["a:eth1", "b:eth1", "c:eth0"])), max_size=3))},
        optional={"mtu": ANYTHING, "type": ANYTHING},
    )
)
TOPOLOGY = st.fixed_dictionaries(
    {"nodes": optional(st.fixed_dictionaries({"a": NODE, "b": NODE}, optional={"c": NODE, 1: NODE}))},
    optional={
        "links": optional(st.lists(LINK, max_size=4)),
        "kinds": optional(st.dictionaries(WORDS, ANYTHING, max_size=2)),
        "defaults": optional(NODE),
        "groups": optional(st.dictionaries(WORDS, NODE, max_size=2)),
    },
)
FILE = optional(st.fixed_dictionaries({"topology": optional(TOPOLOGY)}, optional={"name": ANYTHING}))


@settings(max_examples=300, deadline=None)
@given(FILE)
def test_any_file_is_a_lab_or_an_error(content: object) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.clab.yml"
        path.write_text(yaml.safe_dump(content))
        try:
            text = import_topology(path)
        except LabError as error:
            assert all(message.startswith((str(path), "the lab of ")) for message in error.messages), error.messages
            return
        lab_from_source(parse(text, "lab.yml", Path(folder)))


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        ("{nodes: {a: linux, b: {}}, links: [{endpoints: [a:1, b:1]}]}", "expected a mapping, got `linux`"),
        ("{nodes: {a: {}, b: {}}, groups: 5, links: [{endpoints: [a:1, b:1]}]}", "expected a mapping, got `5`"),
        ("{nodes: {a: {}, b: {}}, links: {endpoints: [a:1, b:1]}}", "expected a list of links"),
        ("[]", "expected a mapping, got `[]`"),
    ],
)
def test_a_field_of_another_type_is_refused(tmp_path: Path, topology: str, message: str) -> None:
    file = tmp_path / "x.clab.yml"
    file.write_text(f"name: x\ntopology: {topology}\n")
    with pytest.raises(LabError) as refused:
        import_topology(file)
    assert message in str(refused.value) and str(refused.value).startswith(f"{file}:")
