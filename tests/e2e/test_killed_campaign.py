# SPDX-License-Identifier: Apache-2.0
"""A killed campaign resumes with its finished cells (`make test-kills` kills it 200 times)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from e2e.kill_campaign import KilledCampaign

pytestmark = pytest.mark.e2e


def test_a_campaign_resumes_after_twenty_kills(tmp_path: Path) -> None:
    campaign = KilledCampaign(tmp_path, random.Random(14))
    campaign.kill_repeatedly(20)
    assert campaign.kills == 20 and campaign.finished >= 1 and campaign.cells > 0
