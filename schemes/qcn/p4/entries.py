# SPDX-License-Identifier: Apache-2.0
"""Table entries of the program qcn: the parameters of each port, as kernel/qcn_algorithm.h uses them."""

from collections.abc import Iterator, Sequence

from qbed.config.units import Amount
from qbed.p4.entry import Entry, Port, RecirculationPort, SettingError, SignalFormats, Values

RECIRCULATION_PORT = 510
RECIRCULATION_BUFFER = Amount(1000, "packets")
FEEDBACK_SESSION = 1
"""The clone session that copies a sampled packet to the recirculation port, where it becomes feedback."""
FRACTION_ONE = 10**9
"""The denominator of scheme.yml's fractions."""
U32_MAX = (1 << 32) - 1


def recirculation_port(_ports: Sequence[Values], _fastest_bps: int) -> RecirculationPort:
    """The port that returns feedback to ingress, without delay."""
    return RecirculationPort(RECIRCULATION_PORT, None, RECIRCULATION_BUFFER)


def clone_sessions(recirculation: RecirculationPort) -> dict[int, list[int]]:
    """The session of feedback."""
    return {FEEDBACK_SESSION: [recirculation.port]}


def port_entries(port: Port, values: Values, _: SignalFormats) -> Iterator[Entry]:
    """The port's settings; probabilities are multiples of 2^-32."""
    minimum, maximum, reflect = (
        round(values[name] * FRACTION_ONE) for name in ("min_sampling", "max_sampling", "reflect")
    )
    if minimum > maximum:
        raise SettingError("min_sampling", "it is more than `max_sampling`")
    full = values["full_scale"] or (1 + 2 * values["weight"]) * values["equilibrium"]
    levels = (1 << values["bits"]) - 1
    step = -(-(reflect << 32) // (FRACTION_ONE * levels))
    buffer: Amount = values["buffer"]
    settings = {
        "buffer": min(buffer.value, U32_MAX) if buffer.unit == "packets" else U32_MAX,
        "equilibrium": values["equilibrium"],
        "weight": values["weight"],
        "full_scale": full,
        "inverse_scale": (1 << 48) // full,
        "bits": values["bits"],
        "min_sampling": min((minimum << 32) // FRACTION_ONE, U32_MAX),
        "sample_step": ((maximum - minimum) << 48) // (FRACTION_ONE * full),
        "reflect": 0 if values["biased"] else min((reflect << 32) // FRACTION_ONE, U32_MAX),
        "reflect_step": min(step, U32_MAX) if values["biased"] else 0,
        "between_samples": int(values["between_samples"]),
        "capped": int(values["capped"]),
    }
    yield Entry("qcn", "settings", settings, {"port": port.number})
