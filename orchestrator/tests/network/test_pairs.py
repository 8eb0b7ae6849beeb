# SPDX-License-Identifier: Apache-2.0
"""Random pairs of senders and receivers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbed.lab.workloads import Flows
from qbed.network.pairs import Pairs, flow_pairs

HOSTS = [f"h{number}" for number in range(1, 9)]


def drawn(pairing: str, seed: str, senders: list[str] = HOSTS, receivers: list[str] = HOSTS) -> Pairs:
    flows = Flows.model_validate({"from": senders, "to": receivers, "pairing": pairing})
    return flow_pairs(flows, HOSTS, seed)


@given(st.text(max_size=20), st.sampled_from(["permutation", "random"]))
def test_every_host_sends_once_and_never_to_itself(seed: str, pairing: str) -> None:
    pairs = drawn(pairing, seed)
    assert [sender for sender, _ in pairs] == HOSTS
    assert all(sender != receiver for sender, receiver in pairs)
    assert pairs == drawn(pairing, seed)


def test_a_permutation_has_each_receiver_once_and_random_pairs_have_not() -> None:
    assert all({b for _, b in drawn("permutation", str(seed))} == set(HOSTS) for seed in range(50))
    assert any(len({b for _, b in drawn("random", str(seed))}) < len(HOSTS) for seed in range(5))


@pytest.mark.parametrize("pairing", ["permutation", "random"])
def test_no_receiver_is_drawn_more_often_than_others(pairing: str) -> None:
    times = Counter(dict(drawn(pairing, str(seed)))["h1"] for seed in range(1400))
    assert set(times) == set(HOSTS) - {"h1"}
    assert max(times.values()) < 1.35 * 200 and min(times.values()) > 0.65 * 200


def test_what_the_seed_draws_is_the_same_on_every_machine() -> None:
    assert drawn("random", "1/0", ["h1", "h2", "h3"]) == [("h1", "h6"), ("h2", "h1"), ("h3", "h4")]


@pytest.mark.parametrize("pairing", ["permutation", "random"])
def test_a_host_alone_is_refused(pairing: str) -> None:
    with pytest.raises(ValueError, match="`h1` has no receiver but itself"):
        drawn(pairing, "1", ["h1"], ["h1"])


def test_a_permutation_of_unequal_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="2 senders and 3 receivers do not pair up"):
        drawn("permutation", "1", ["h1", "h2"], ["h3", "h4", "h5"])
