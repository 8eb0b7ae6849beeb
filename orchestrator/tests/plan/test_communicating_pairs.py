# SPDX-License-Identifier: Apache-2.0
"""Pairs of hosts that communicate."""

import pytest

from qbed.config.source import parse
from qbed.network.load import lab_from_source
from qbed.plan.communicating_pairs import communicating_pairs
from qbed.plan.compile import compile_lab

LAB = """
name: small
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
duration: 10 ms
"""


@pytest.mark.parametrize(
    ("workload", "pairs"),
    [
        ("flows: {pairs: [[h1, h2], [h1, h2], [h3, h1]], size: 1 MB}", {("h1", "h2"), ("h3", "h1")}),
        ("requests: {clients: [h1, h2], servers: [h2, h3], request: 1 KB, response: 2 KB}",
         {("h1", "h2"), ("h1", "h3"), ("h2", "h3")}),
    ],
)  # fmt: skip
def test_pairs_of_a_workload(workload: str, pairs: set[tuple[str, str]]) -> None:
    plan = compile_lab(lab_from_source(parse(f"{LAB}workload: [{{{workload}}}]", "lab.yml")))
    found = [(plan.nodes[a].name, plan.nodes[b].name) for a, b in communicating_pairs(plan)]
    assert set(found) == pairs and len(found) == len(pairs)
