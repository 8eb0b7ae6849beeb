# SPDX-License-Identifier: Apache-2.0
"""Table entries of the program rpm: CoDel's parameters of each port, and the registers that all ports share."""

from collections.abc import Iterator

from qbed.p4.entry import (
    Entry,
    Port,
    RecirculationPort,
    SettingError,
    SignalFormats,
    Values,
    microseconds,
)

REGISTERS_MAX = 1 << 16
TIMEOUT_US_MAX = (1 << 48) - 1
SWITCH_PARAMETERS = dict.fromkeys(("registers", "reverse_timeout", "per_port"), "registers")


def port_entries(port: Port, values: Values, _: SignalFormats) -> Iterator[Entry]:
    """CoDel's target and interval."""
    times = {"target_us": microseconds(values, "target"), "interval_us": microseconds(values, "interval")}
    yield Entry("codel", "law", times, {"port": port.number})


def switch_entries(values: Values, _: RecirculationPort | None) -> Iterator[Entry]:
    """The number of registers, whether each port has its own, and when the reverse path's entry expires."""
    count = values["registers"]
    if count > REGISTERS_MAX:
        text = f"in P4 there are at most {REGISTERS_MAX} (a flow's is found by CRC-16), got `{count}`"
        raise SettingError("registers", text)
    timeout = min(microseconds(values, "reverse_timeout"), TIMEOUT_US_MAX)
    arguments = {"mask": count - 1, "reverse_timeout_us": timeout, "per_port": int(values["per_port"])}
    yield Entry("rpm", "registers", arguments)
