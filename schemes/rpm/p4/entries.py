# SPDX-License-Identifier: Apache-2.0
"""Table entries of the program rpm: the law of each port, and the registers that all ports share."""

from collections.abc import Iterator

from qbed.config.units import Amount
from qbed.p4.entry import (
    QUEUE_LENGTH_MAX,
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
SWITCH_PARAMETERS = dict.fromkeys(("registers", "reverse_timeout", "per_port", "counter"), "registers")
ONE = 10**12
"""The denominator of the probabilities."""


def port_entries(port: Port, values: Values, _: SignalFormats) -> Iterator[Entry]:
    """The law at egress, or at ingress for those that decide at enqueue."""
    key = {"port": port.number}
    if values["decides"] in ("codel", "codel-tofino"):
        times = {"target_us": microseconds(values, "target"), "interval_us": microseconds(values, "interval")}
        yield Entry("codel", "law" if values["decides"] == "codel" else "tofino_law", times, key)
        yield Entry("decides", "at_egress", {}, key)
        return
    yield Entry("codel", "at_ingress", {}, key)
    buffer: Amount = values["buffer"]
    limit = {"buffer": min(buffer.value, QUEUE_LENGTH_MAX) if buffer.unit == "packets" else QUEUE_LENGTH_MAX}
    yield Entry("decides", values["decides"], limit | _law(values), key)


def _law(values: Values) -> dict[str, int]:
    """The parameters of a law that decides at enqueue; RED's slope is a probability for each packet of the average."""
    if values["decides"] == "red":
        minimum, maximum = values["min"], values["max"]
        slope = round(values["probability"] * ONE) // (maximum - minimum) if maximum > minimum else 0
        return {"min": minimum, "max": maximum, "slope": slope, "wlog": values["wlog"]}
    if values["decides"] == "step":
        return {"threshold": values["threshold"]}
    return {"threshold": values["threshold"], "eta": round(values["eta"] * ONE)}


def switch_entries(values: Values, _: RecirculationPort | None) -> Iterator[Entry]:
    """The number of registers, their kind, and when the reverse path's entry expires."""
    count = values["registers"]
    if count > REGISTERS_MAX:
        text = f"in P4 there are at most {REGISTERS_MAX} (a flow's is found by CRC-16), got `{count}`"
        raise SettingError("registers", text)
    timeout = min(microseconds(values, "reverse_timeout"), TIMEOUT_US_MAX)
    arguments = {"mask": count - 1, "reverse_timeout_us": timeout, "per_port": int(values["per_port"])}
    yield Entry("rpm", "bits" if values["counter"] == "bit" else "registers", arguments)
