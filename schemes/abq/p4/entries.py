# SPDX-License-Identifier: Apache-2.0
"""Table entries of the program abq: thresholds of each port, and the recirculation port of held ACKs."""

from collections.abc import Iterator, Sequence

from qbed.config.units import Amount
from qbed.p4.entry import (
    QUEUE_LENGTH_MAX,
    Entry,
    Port,
    RecirculationPort,
    SettingError,
    SignalFormats,
    Values,
    buffer_packets,
    packets,
)

RECIRCULATION_PORT = 510
ALL = 2**32 - 1
"""More held ACKs than there can be."""
SWITCH_PARAMETERS = {"hold_limit": "limit of what is held"}
ARTICLE = {"x": "buffer", "answer": "ece", "last": "short", "coalesce": False}
"""Parameters that the program implements only as in the article."""


def recirculation_port(ports: Sequence[Values], fastest_bps: int) -> RecirculationPort:
    """The port where ACKs wait, at the rate of the switch's fastest link."""
    held = sum(values["hold_limit"] for values in ports)
    return RecirculationPort(RECIRCULATION_PORT, fastest_bps, Amount(held or 1, "packets"))


def port_entries(port: Port, values: Values, _: SignalFormats) -> Iterator[Entry]:
    """The threshold above which ACKs are held, and the threshold of the ECN marking behind it."""
    if values["above"] not in ("ecn", "droptail"):
        raise SettingError("above", f"in P4 it is `ecn` or `droptail`, got `{values['above']}`")
    for name, only in ARTICLE.items():
        if values[name] != only:
            raise SettingError(name, f"in P4 it is as in the article, which is the default: got `{values[name]}`")
    if values["release"] == "window":
        raise SettingError("release", "in P4 it is `all` or `count`, got `window`")
    key = {"port": port.number}
    count = values["release_count"] if values["release"] == "count" else ALL
    longest = min(buffer_packets(port, values), QUEUE_LENGTH_MAX)
    threshold = packets(values, "threshold", QUEUE_LENGTH_MAX)
    yield Entry("abq", "hold_above", {"packets": threshold, "buffer": longest, "count": count}, key)
    marks = values["above"] == "ecn"
    marking = packets(values, "ecn_threshold", QUEUE_LENGTH_MAX) if marks else QUEUE_LENGTH_MAX
    yield Entry("marking", "mark_above", {"packets": marking}, key)


def switch_entries(values: Values, recirculation: RecirculationPort | None) -> Iterator[Entry]:
    """The recirculation port, and how many ACKs are held there."""
    assert recirculation is not None
    yield Entry("abq_recirculation", "recirculation", {"port": recirculation.port, "limit": values["hold_limit"]})
