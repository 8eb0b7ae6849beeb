# SPDX-License-Identifier: Apache-2.0
"""A campaign that is killed goes on where it was (`make test-kills` does it 200 times)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from e2e.kills import Victim

pytestmark = pytest.mark.e2e


def test_twenty_kills_at_random_instants(tmp_path: Path) -> None:
    victim = Victim(tmp_path, random.Random(14))
    victim.suffer(20)
    assert victim.kills == 20 and victim.finished >= 1 and victim.cells > 0
