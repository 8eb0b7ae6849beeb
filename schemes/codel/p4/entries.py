# SPDX-License-Identifier: Apache-2.0
"""Table entries of the program codel: the control law's parameters of each port."""

from collections.abc import Iterator

from qbed.p4.entry import Entry, Port, SignalFormats, Values, microseconds


def port_entries(port: Port, values: Values, _: SignalFormats) -> Iterator[Entry]:
    """CoDel's target and interval, and whether it marks instead of dropping."""
    times = {"target_us": microseconds(values, "target"), "interval_us": microseconds(values, "interval")}
    yield Entry("codel", "law", {**times, "ecn": int(values["ecn"])}, {"port": port.number})
