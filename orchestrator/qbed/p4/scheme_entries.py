# SPDX-License-Identifier: Apache-2.0
"""Table entries that carry a scheme's parameters to its P4 program, made by `schemes/NAME/p4/entries.py`.

That module has any of these functions and constants; a scheme without it has a program without parameters:

    port_entries(port, values, formats) -> Iterable[Entry]         entries of one port
    SWITCH_PARAMETERS: Mapping[str, str]                         parameters that all ports share, named in messages
    switch_entries(values, recirculation) -> Iterable[Entry]     entries of the switch, from one port's values
    recirculation_port(ports, fastest_bps) -> RecirculationPort  the port without a link that the program needs
    clone_sessions(recirculation) -> dict[int, list[int]]        ports by clone session
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from qbed.base.errors import QbedError
from qbed.base.locations import scheme_folder
from qbed.p4.entry import Entry, Port, RecirculationPort, SettingError, SignalFormats, Values


def _module(scheme: str) -> ModuleType | None:
    """The scheme's `p4/entries.py`; None if there is none."""
    path = scheme_folder(scheme) / "p4" / "entries.py"
    return _load(path) if scheme and path.is_file() else None


@cache
def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"qbed_scheme_{path.parts[-3]}_entries", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise QbedError(f"{path}: {type(error).__name__}: {error}") from error
    return module


def port_entries(scheme: str, port: Port, values: Values, formats: SignalFormats = ()) -> Iterator[Entry]:
    """Entries of a port with these parameters. `SettingError` if the program cannot take one."""
    if function := getattr(_module(scheme), "port_entries", None):
        yield from function(port, values, formats)


def switch_entries(scheme: str, ports: Iterable[Values], recirculation: RecirculationPort | None) -> Iterator[Entry]:
    """Entries of the switch, from the parameters of all its ports. `SettingError` if shared ones differ."""
    module = _module(scheme)
    if module is None or not hasattr(module, "switch_entries"):
        return
    first: Values | None = None
    for values in ports:
        first = first or values
        for name, word in module.SWITCH_PARAMETERS.items():
            if values[name] != first[name]:
                raise SettingError(name, f"in P4 a switch has the same {word} for all its ports")
    if first is not None:
        yield from module.switch_entries(first, recirculation)


def recirculation_port(scheme: str, ports: Sequence[Values], fastest_bps: int) -> RecirculationPort | None:
    """The recirculation port that the scheme's program needs; None if it needs none."""
    function = getattr(_module(scheme), "recirculation_port", None)
    port: RecirculationPort | None = function(ports, fastest_bps) if function else None
    return port


def clone_sessions(scheme: str, recirculation: RecirculationPort | None) -> dict[int, list[int]]:
    """The ports of each clone session of the scheme's program."""
    function = getattr(_module(scheme), "clone_sessions", None)
    sessions: dict[int, list[int]] = function(recirculation) if function and recirculation is not None else {}
    return sessions
