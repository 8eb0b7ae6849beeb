# SPDX-License-Identifier: Apache-2.0
"""How long the end of a run waits for points that are not sent yet."""

from qbed.config.units import parse_duration
from qbed.live.sinks import SinkError

FLUSH_TIMEOUT = "QBED_FLUSH_TIMEOUT"
FLUSH_S = 30.0


def parse_flush_timeout(text: str | None) -> float:
    """Convert `30s` to seconds; None: the default. `SinkError`."""
    if text is None:
        return FLUSH_S
    try:
        return parse_duration("0 s" if text.strip() == "0" else text) / 1e9
    except ValueError:
        raise SinkError(f"--flush-timeout: expected a duration such as `30s`, got `{text[:60]}`") from None
