# SPDX-License-Identifier: Apache-2.0
"""Checks of `congestion`: parameters of congestion controls, which are folders of `congestion/`."""

from qbed.base.errors import nearest
from qbed.network.resolve import ResolvedLab
from qbed.schemes.congestion import LINUX_CONTROLS, congestion_controls, declaration_of


def controls_in_use(lab: ResolvedLab) -> set[str | None]:
    """The congestion controls of hosts, of workloads and of events; None for a host without a setting."""
    found: set[str | None] = {settings.get("tcp") for settings in lab.hosts.values()}
    contents = (workload.content for workload in lab.lab.workload)
    found |= {getattr(c, "tcp", None) for c in contents if getattr(c, "transport", None) != "rate"}
    return found | {event.tcp for event in lab.lab.events}


def check_congestion(lab: ResolvedLab) -> None:
    """Check the names and values, and record the parameters of controls that the lab does not use."""
    problems, declared = lab.problems, congestion_controls()
    used = {owner.name for owner in map(declaration_of, controls_in_use(lab)) if owner is not None}
    for name, values in lab.lab.congestion.items():
        if name not in declared:
            problems.error(("congestion", name), _unknown(name), at_key=True)
            continue
        control = declared[name]
        for parameter, value in values.items():
            path = ("congestion", name, parameter)
            try:
                control.parse(parameter, value)
            except ValueError as error:
                problems.error(path, str(error), at_key=parameter not in control.by_name)
                continue
            if name in used:
                problems.read(path)
            else:
                text = f"no flow uses `{name}`: not used; expected `tcp: {name}` of a host, a workload or an event"
                problems.not_read(path, text)


def _unknown(name: str) -> str:
    owner = declaration_of(name)
    if owner is not None:
        return f"`{name}` is a variant of `{owner.name}` and shares its parameters; expected `{owner.name}`"
    if name in LINUX_CONTROLS:
        return f"`{name}` is Linux's, without parameters here; expected `kernel_parameters`"
    return f"no folder of congestion/ is called `{name}`{nearest(name, congestion_controls())}"
