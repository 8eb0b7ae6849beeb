#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes radio.trace: the rate of a radio link, modelled by two sine waves and a handover.

rate(t) = 10 Mbit/s * exp(0.8 sin(2 pi t / 2.3 s) + 0.4 sin(2 pi t / 0.31 s)), every 20 ms, divided by 50 from
3.0 to 3.2 s. The trace is synthetic: the waves produce fades of one second and of a tenth of a second.
"""

import math
from pathlib import Path

STEP_MS, LENGTH_MS = 20, 4000
HANDOVER_MS = range(3000, 3200)


def rate_kbps(at_ms: int) -> int:
    slow, fast = (math.sin(2 * math.pi * at_ms / period_ms) for period_ms in (2300, 310))
    rate = 10_000 * math.exp(0.8 * slow + 0.4 * fast)
    return round(rate / 50 if at_ms in HANDOVER_MS else rate)


def text() -> str:
    lines = [f"{at_ms} ms {rate_kbps(at_ms)} kbit/s\n" for at_ms in range(0, LENGTH_MS, STEP_MS)]
    return "# SPDX-License-Identifier: Apache-2.0\n# Written by trace.py.\n" + "".join(lines)


if __name__ == "__main__":
    Path(__file__).with_name("radio.trace").write_text(text())
