# SPDX-License-Identifier: Apache-2.0
"""The generators."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbed.lab.topology import NAME, Network, TopologyError, generators

SIZES: dict[str, dict[str, st.SearchStrategy[int]]] = {
    "star": {"hosts": st.integers(2, 40)},
    "dumbbell": {"left": st.integers(1, 9), "right": st.integers(1, 9)},
    "parking-lot": {"switches": st.integers(2, 9), "hosts": st.integers(1, 4)},
    "clos": {"hosts": st.integers(1, 4), "racks": st.integers(1, 9), "spines": st.integers(1, 4)},
}


def build(name: str, **fields: Any) -> Network:
    module = generators()[name]
    network: Network = module.build(module.Settings(**fields))
    return network


def sizes(name: str, **fields: Any) -> tuple[int, int]:
    module = generators()[name]
    found: tuple[int, int] = module.size(module.Settings(**fields))
    return found


def connected(network: Network) -> bool:
    reached, before = {next(iter(network.nodes))}, 0
    while len(reached) > before:
        before = len(reached)
        for link in network.links:
            if link.a in reached or link.b in reached:
                reached |= {link.a, link.b}
    return reached == set(network.nodes)


def test_generators_are_the_modules() -> None:
    assert set(generators()) == {*SIZES, "explicit"}


@pytest.mark.parametrize("name", SIZES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_networks_are_connected_with_good_names(name: str, data: st.DataObject) -> None:
    fields = {field: data.draw(size) for field, size in SIZES[name].items()}
    network = build(name, **fields)
    assert sizes(name, **fields) == (len(network.nodes), len(network.links))
    assert connected(network)
    assert all(NAME.fullmatch(node) for node in network.nodes)
    assert len({link.name for link in network.links}) == len(network.links)
    assert {link.layer for link in network.links} <= set(generators()[name].LAYERS)
    degree = [sum(host in (link.a, link.b) for link in network.links) for host in network.hosts]
    assert set(degree) == {1}


def test_clos_with_pods_is_a_fat_tree() -> None:
    network = build("clos", hosts=2, racks=4, leaves=2, pods=2, spines=4)
    assert sizes("clos", hosts=2, racks=4, leaves=2, pods=2, spines=4) == (len(network.nodes), len(network.links))
    layers = [link.layer for link in network.links]
    assert (layers.count("hosts"), layers.count("racks"), layers.count("leaves")) == (8, 8, 16)
    assert ("rack1", "leaf3") not in {(link.a, link.b) for link in network.links}
    assert connected(network)


@pytest.mark.parametrize(
    ("fields", "field"), [({"racks": 3, "pods": 2, "leaves": 1}, ("racks",)), ({"racks": 4, "pods": 2}, ("pods",))]
)
def test_clos_that_does_not_divide(fields: dict[str, int], field: tuple[str]) -> None:
    with pytest.raises(TopologyError) as error:
        build("clos", hosts=1, spines=1, **fields)
    assert error.value.field == field


def test_explicit_nodes_and_links_are_counted_without_their_names() -> None:
    fields = {
        "nodes": {"h1..h9": "host", "a": "switch", "b": "switch"},
        "links": [{"ends": ["h1..h4", "a"]}, {"ends": ["b", "h5..h9"]}, {"ends": ["a", "b"]}],
    }
    network = build("explicit", **fields)
    assert sizes("explicit", **fields) == (len(network.nodes), len(network.links)) == (11, 10)
    with pytest.raises(TopologyError):
        sizes("explicit", nodes={"h9..h1": "host"}, links=[])
