# SPDX-License-Identifier: Apache-2.0
"""The parameters of its kernel's parts that a lab file may set, and what each takes.

They are a kernel's own, not a node's: in virtual time all hosts share them. So it is a list, as sysctls are; another is
added here by its name, if the kernel lets it be written at run time (`/sys/module/NAME/parameters`).
"""

from qbed.base.errors import nearest

_SWITCH, _COUNT = (0, 1), (0, 2**31 - 1)

PARAMETERS: dict[str, tuple[int, int]] = {
    "tcp_cubic/beta": (1, 1023),
    "tcp_cubic/fast_convergence": _SWITCH,
    "tcp_cubic/hystart": _SWITCH,
    "tcp_cubic/hystart_ack_delta_us": _COUNT,
    "tcp_cubic/hystart_detect": (1, 3),
    "tcp_cubic/hystart_low_window": _COUNT,
    "tcp_cubic/initial_ssthresh": _COUNT,
    "tcp_cubic/tcp_friendliness": _SWITCH,
    "tcp_dctcp/dctcp_alpha_on_init": (0, 1024),
}
"""PART/PARAMETER: the least and the largest value."""


def parameter(name: str) -> str:
    """Its name. ValueError if a lab cannot set it."""
    if name not in PARAMETERS:
        raise ValueError(f"no parameter that a lab can set is called so{nearest(name, PARAMETERS)}")
    return name


def in_bounds(values: dict[str, int]) -> dict[str, int]:
    """Parameters as they are. ValueError for a value that one does not take."""
    for name, value in values.items():
        smallest, largest = PARAMETERS[name]
        if not smallest <= value <= largest:
            raise ValueError(f"`{name}`: expected {smallest} to {largest}, got `{value}`")
    return values
