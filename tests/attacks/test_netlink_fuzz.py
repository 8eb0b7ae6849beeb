# SPDX-License-Identifier: Apache-2.0
"""A short run of the fuzzer tests/fuzz/netlink.py: malformed netlink messages do not harm the guest's kernel."""

from __future__ import annotations

from pathlib import Path

from fuzz import netlink


def test_malformed_netlink_messages_cause_no_kernel_warning(tmp_path: Path) -> None:
    outcomes, found = netlink.fuzz(0, 1, tmp_path)
    assert found == []
    assert outcomes["sent"] >= 1500 and outcomes["accepted"] > 100 and outcomes["refused"] > 500, outcomes
