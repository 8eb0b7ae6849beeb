# SPDX-License-Identifier: Apache-2.0
"""Table entries of the program ecn: the threshold of each port."""

from collections.abc import Iterator

from qbed.p4.entry import QUEUE_LENGTH_MAX, Entry, Port, SignalFormats, Values, packets


def port_entries(port: Port, values: Values, _: SignalFormats) -> Iterator[Entry]:
    """The threshold above which packets are marked."""
    threshold = packets(values, "threshold", QUEUE_LENGTH_MAX)
    yield Entry("marking", "mark_above", {"packets": threshold}, {"port": port.number})
