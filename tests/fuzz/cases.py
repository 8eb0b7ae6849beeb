# SPDX-License-Identifier: Apache-2.0
"""Cases for the fuzzers: mutated files of labs/, and files generated from the lab schema.

A case is a folder's files by their names.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from qbed.config.source import parse
from qbed.lab.reference import schema

ROOT = Path(__file__).parents[2]
Case = dict[str, str]
Draw = Any
Place = tuple[Any, Any]
"""A container and a key or an index in it."""

REAL: dict[str, Any] = {
    path.relative_to(ROOT / "labs").as_posix(): parse(path.read_text()).values
    for path in sorted((ROOT / "labs").glob("*/*.yml"))
}
LABS = {name: tree for name, tree in REAL.items() if name.endswith("/lab.yml")}
LARGE = ("datacenter/", "scale/")
CAMPAIGNS = {name: tree for name, tree in REAL.items() if name not in LABS}

SCHEMA = schema()
DIGITS = "9" * 400
WORDS = (
    "", " ", "x", "x" * 5000, "on", "~", "h1", "s1", "h*", "*", "?", "[", "[]", "]", "**", "[!a]*", "h1..h3",
    "h3..h1", "h1..h999999", "h1..", "..", "h1>s1", "h*>*", ">", ">>", "default", "h1-s1", "hosts", "lab.yml", ".",
    "..", "/", "/dev/zero", "/etc/passwd", "../lab.yml", "a\0b", "\u202e", "\x1b[31m", "[/x]", "[bold]", "{{x}}",
    "<script>", "'", '"', ";", "--", "%s", "🂡" * 50, DIGITS, f"{DIGITS} s", f"{DIGITS} %", f"0.{DIGITS}", "1e99 s",
    "1e99 Gbit/s", "1e99 GB", "-1 us", "0 s", "0 B", "1 ns", "1 bit/s", "1 B", "1 packet", "65535 packets",
    "9223372036854775807 ns", "9223372036 s", "9 GB", "100 Tbit/s", "100 %", "0 %", "1e-5", "nan", "inf", "summary",
    "every packet", "unlimited", "before", "auto", "host", "qbed", "cubic", "droptail", "codel", "abq", "rpm", "ecn",
    "fq_codel limit 100", "tbf rate 1mbit burst 1 latency 1", "hosts.default.tcp", "workload[0]", "workload[99]",
    "links.default.rate", 'hosts."h1".tcp', "seed", "name", "topology", "topology.star.hosts", "SELECT 1",
    "SELECT true AS holds", "SELECT", "1 = 1", "x; y",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 3, 4, 7, 10, 64, 255, 256, 1000, 1024, 16384, 65535, 100_000, 2**31, 2**32 - 1, 2**32, 2**53, 10**17,
    -(10**17), 0.0, -0.0, 0.5, 1.0, 1.5, 1e-300, 1e300, 1e999,
)  # fmt: skip
UNITS = ("ns", "us", "ms", "s", "B", "KB", "MB", "packets", "Mbit/s", "Gbit/s", "%")
LEAVES = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(NUMBERS),
    st.sampled_from([None, True, False]),
    st.integers(0, 50),
    st.text(max_size=20),
    st.builds("{} {}".format, st.integers(0, 5000), st.sampled_from(UNITS)),
)  # fmt: skip


def _nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value] if depth % 2 else {"a": value}
    return value


VALUES = st.one_of(
    LEAVES,
    LEAVES,
    st.lists(LEAVES, max_size=4),
    st.dictionaries(st.sampled_from(WORDS), LEAVES, max_size=3),
    st.builds(lambda value, count: [value] * count, LEAVES, st.sampled_from([1, 10, 100, 1000])),
    st.builds(_nested, st.sampled_from([2, 3, 40, 41, 63, 64, 65, 66, 200])),
)


def _places(tree: Any, found: list[Place] | None = None) -> list[Place]:
    found = [] if found is None else found
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            found.append((tree, key))
            _places(tree[key], found)
    return found


def _every_value(trees: dict[str, Any]) -> list[Any]:
    return [container[key] for tree in trees.values() for container, key in _places(tree)]


PARTS = _every_value(REAL)
BY_NAME = {
    name: [container[key] for tree in REAL.values() for container, key in _places(tree) if key == name]
    for name in {key for tree in REAL.values() for container, key in _places(tree) if isinstance(container, dict)}
}
HOW = (*["near"] * 12, "value", "value", "value", "part", "remove", "rename", "add", "repeat")
FACTORS = (0, 0.001, 0.1, 0.5, 0.9, 1.1, 2, 10, 100, 1000, 1_000_000, 10**12)
_NUMBER = re.compile(r"[0-9]{1,18}")
NAMES = sorted({key for tree in REAL.values() for container, key in _places(tree) if isinstance(container, dict)})


def _pick(draw: Draw, values: Sequence[Any]) -> Any:
    """Draw one of a sequence's values. `st.sampled_from` reads the sequence for each draw."""
    return values[draw(st.integers(0, len(values) - 1))]


def _near(draw: Draw, key: Any, value: Any) -> Any:
    """A plausible value for a key: a value of the same key elsewhere, or the old value with its numbers scaled."""
    values = BY_NAME.get(key, [])
    if values and draw(st.booleans()):
        return copy.deepcopy(_pick(draw, values))
    factor = _pick(draw, FACTORS)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return type(value)(value * factor)
    if isinstance(value, str):
        return _NUMBER.sub(lambda found: str(int(int(found[0]) * factor)), value)
    return value


def _change(draw: Draw, tree: Any) -> None:
    """Change one part of a tree, in place."""
    places = _places(tree)
    if not places:
        return
    container, key = _pick(draw, places)
    how = _pick(draw, HOW)
    if how == "near":
        container[key] = _near(draw, key, container[key])
    elif how == "value":
        container[key] = draw(VALUES)
    elif how == "part":
        container[key] = copy.deepcopy(_pick(draw, PARTS))
    elif how == "remove":
        del container[key]
    elif isinstance(container, dict):
        other = _pick(draw, (*NAMES, *WORDS))
        container[other] = container.pop(key) if how == "rename" else draw(VALUES)
    else:
        container.extend([container[key]] * _pick(draw, (1, 2, 10, 300)))


FRAGMENTS = (
    "", "\n", "\t", ":", "- ", "? ", "&a ", "*a", "<<: *a\n", "<<: [*a, *a]\n", "!!binary ", "!!set", "%", "---\n",
    "...\n", "{", "}", "[", "]", "'", '"', "|", ">", "#", "\0", "\ufeff", "\x85", "\ud800", "`", "@", "!<x>",
    "[" * 100, "- " * 100,
)  # fmt: skip


def _corrupt(draw: Draw, text: str) -> str:
    """Replace a part of a text by a fragment, or insert the fragment."""
    at: int = draw(st.integers(0, len(text)))
    length: int = draw(st.integers(0, 30))
    fragment: str = draw(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=8)))
    return text[:at] + fragment + text[at + (0 if draw(st.booleans()) else length) :]


def _write(draw: Draw, tree: Any) -> str:
    text = json.dumps(tree) if draw(st.booleans()) else yaml.dump(tree, Dumper=yaml.CSafeDumper, allow_unicode=True)
    for _ in range(_pick(draw, (*[0] * 12, 1, 2))):
        text = _corrupt(draw, text)
    return text


def _conforming(draw: Draw, node: dict[str, Any], depth: int = 0) -> Any:
    """Generate a value that the lab schema mostly allows."""
    if "$ref" in node:
        return _conforming(draw, SCHEMA["$defs"][node["$ref"].rpartition("/")[2]], depth)
    if "anyOf" in node:
        return _conforming(draw, _pick(draw, node["anyOf"]), depth)
    if "allOf" in node:
        return _conforming(draw, node["allOf"][0], depth)
    for keyword in ("enum", "examples"):
        if keyword in node and draw(st.integers(0, 4)):
            return _pick(draw, node[keyword])
    if "const" in node:
        return node["const"]
    kind = node.get("type")
    if kind == "object":
        return _object(draw, node, depth)
    if kind == "array":
        items = node.get("items", {})
        low = node.get("minItems", 0)
        return [_conforming(draw, items, depth + 1) for _ in range(draw(st.integers(low, max(low, 2))))]
    if kind in ("integer", "number"):
        return draw(
            st.one_of(st.integers(node.get("minimum", 0), min(node.get("maximum", 50), 50)), st.sampled_from(NUMBERS))
        )
    return draw(LEAVES)


def _object(draw: Draw, node: dict[str, Any], depth: int) -> dict[str, Any]:
    known = node.get("properties", {})
    found = {}
    if node.get("maxProperties") == 1 and known:
        chosen = [_pick(draw, sorted(known))]
    else:
        optional = [name for name in known if name not in node.get("required", ())]
        few = draw(st.lists(st.sampled_from(optional), max_size=3, unique=True)) if optional else []
        chosen = [*node.get("required", ()), *few]
    for name in chosen:
        found[name] = _conforming(draw, known[name], depth + 1)
    more = node.get("additionalProperties")
    if isinstance(more, dict) and draw(st.integers(0, 3)):
        found["default"] = _conforming(draw, more, depth + 1)
        if not draw(st.integers(0, 2)):
            found[_pick(draw, WORDS)] = _conforming(draw, more, depth + 1)
    return found


@st.composite
def labs(draw: Draw) -> Case:
    """Generate a lab file, mostly a valid one."""
    if draw(st.integers(0, 3)):
        name = _pick(draw, sorted(LABS))
        tree: Any = copy.deepcopy(LABS[name])
        rarely = 100 if name.startswith(LARGE) else 3
        if draw(st.integers(1, rarely)) < rarely:  # a large topology takes longer and covers no more code
            tree["topology"] = {"dumbbell": {"left": 4, "right": 4}}
    else:
        tree = _conforming(draw, SCHEMA)
    for _ in range(draw(st.integers(0, 4))):
        _change(draw, tree)
    return {"lab.yml": _write(draw, tree)}


@st.composite
def campaigns(draw: Draw) -> Case:
    """Generate a campaign file and its lab file."""
    name = _pick(draw, sorted(CAMPAIGNS))
    tree, lab = copy.deepcopy(REAL[name]), copy.deepcopy(REAL[f"{name.partition('/')[0]}/lab.yml"])
    if name.startswith(LARGE) or draw(st.integers(0, 9)):  # each value of an axis compiles the lab
        lab = {**copy.deepcopy(LABS["dumbbell/lab.yml"]), "name": "small"}
    for _ in range(draw(st.integers(1, 4))):
        _change(draw, tree)
    if not draw(st.integers(0, 4)):
        _change(draw, lab)
    return {"campaign.yml": _write(draw, tree), "lab.yml": json.dumps(lab)}


CONTAINERLAB: tuple[dict[str, Any], ...] = (
    {
        "name": "three",
        "mgmt": {"network": "mgmt", "ipv4-subnet": "172.20.20.0/24"},
        "topology": {
            "defaults": {"kind": "linux", "image": "alpine:3"},
            "kinds": {"linux": {"image": "alpine:3"}, "nokia_srlinux": {"type": "ixrd2"}},
            "groups": {"leaf": {"kind": "nokia_srlinux"}},
            "nodes": {
                "h1": {"exec": ["ip addr add 10.0.0.1/24 dev eth1"], "env": {"A": "1"}},
                "h2": {"labels": {"graph-level": 1}, "binds": ["a:/b:ro"]},
                "s1": {"group": "leaf", "ports": ["80:80"], "startup-delay": 5},
            },
            "links": [
                {"endpoints": ["h1:eth1", "s1:e1-1"], "mtu": 1500},
                {"endpoints": ["h2:eth1", "s1:e1-2"], "vars": {"rate": "10 Gbit/s"}},
            ],
        },
    },
    {
        "name": "brief",
        "prefix": "",
        "topology": {
            "nodes": {"a": {"kind": "linux"}, "b": {"kind": "linux"}, "br": {"kind": "bridge"}},
            "links": [
                {"type": "veth", "endpoints": [{"node": "a", "interface": "eth1"}, {"node": "b", "interface": "eth1"}]},
                {"endpoints": ["a:eth2", "br:eth1"]},
                {"endpoints": ["b:eth2", "br:eth2"]},
            ],
        },
    },
)


@st.composite
def containerlab(draw: Draw) -> Case:
    """Generate a topology file of Containerlab, mostly a valid one."""
    tree: Any = copy.deepcopy(_pick(draw, CONTAINERLAB))
    for _ in range(draw(st.integers(0, 4))):
        _change(draw, tree)
    return {"lab.clab.yml": _write(draw, tree)}


SQL_TOKENS = (
    "SELECT", "FROM", "WHERE", "flows", "cells", "queues", "queue_series", "tcp_info", "all_cells", "convergence",
    "*", "1", "true", "NULL", "AS holds", "AS x", "AS y", ",", "(", ")", "count(*)", "avg(fct_ns)", "jain_index(",
    "interval_95(", "GROUP BY ALL", "ORDER BY 1", "JOIN cells USING (cell)", "UNION ALL", "WITH a AS (", "HAVING",
    "LIMIT 1", "OVER ()", "seed", "cell", "status", "= 'complete'", "/ 0", "::VARCHAR", "::STRUCT(a INT)", "[1]",
    "{'a': 1}", "range(1000000000)", "repeat('x', 1000000000)", "list_transform([1], x -> x)", "'\\'", '"', "--",
    "/*", "*/", ";", "$1", "?", ":a", "\0", "read_text('/etc/passwd')", "COPY", "ATTACH 'x'", "INSTALL httpfs",
    "PRAGMA", "SET", "CREATE TABLE x AS", "DESCRIBE", "EXPLAIN", "VALUES (1)", "PIVOT flows ON cell",
    "SUMMARIZE flows", "FROM flows", "UNPIVOT", "generate_series(1, 9999999999)", "INTERVAL 1 DAY",
    "'infinity'::DATE", "1e308 * 10", "170141183460469231731687303715884105727 + 1", "nan", "unnest([1, 2])",
    "getenv('HOME')", "current_setting('threads')",
)  # fmt: skip


SQL = {
    name: [part[key] for part, key in _places(tree) if isinstance(part[key], str) and "SELECT" in part[key]]
    or ["SELECT 1"]
    for name, tree in CAMPAIGNS.items()
}


@st.composite
def sqls(draw: Draw) -> Case:
    """Generate the SQL of a claim, a figure, a figure's condition and a view from mutated queries of labs/."""
    name = _pick(draw, sorted(CAMPAIGNS))
    texts, real = [], SQL[name]
    for _ in range(3):
        text = draw(st.one_of(st.sampled_from(real), st.lists(st.sampled_from(SQL_TOKENS), max_size=10).map(" ".join)))
        for _ in range(draw(st.integers(0, 2))):
            words = text.split(" ")
            at = draw(st.integers(0, len(words)))
            words[at : at + draw(st.integers(0, 3))] = draw(st.lists(st.sampled_from(SQL_TOKENS), max_size=3))
            text = " ".join(words)
        texts.append(text)
    view, claim, where = texts
    queries = {"campaign": name, "view": view, "claim": claim, "figure": claim, "where": where}
    return {"sql.json": json.dumps(queries)}
