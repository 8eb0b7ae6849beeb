# SPDX-License-Identifier: Apache-2.0
"""P4 programs and controllers of switches: `kind`, `program` and `controller` under `switches`.

`kind` can be an axis: with `bmv2` a switch runs the P4 program of its scheme, with `linux` the scheme's qdisc. Settings
that only the other kind uses have no effect: `qbed.network.load` refuses them, unless an override chose the kind.
"""

from collections import Counter
from dataclasses import dataclass, field

from qbed.base.files import MIB, read_text
from qbed.config.layers import Layer, text_of
from qbed.config.problems import Problems
from qbed.config.reach import ReachError, lab_program
from qbed.config.source import FieldPath
from qbed.config.units import Amount
from qbed.lab.settings import RecirculationSettings, SwitchSettings
from qbed.p4.entry import Entry, RecirculationPort, SettingError
from qbed.p4.sources import Program, ProgramError, Table, load, scheme_program, with_programs
from qbed.schemes.declaration import default_scheme

_DEFAULT_RECIRCULATION = RecirculationPort(510, None, Amount(1000, "packets"))
_LARGEST_SCRIPT = MIB
FORWARDING = {
    "ipv4_routes": Table(("destination",), {"route": ("first", "count", "shift_by")}),
    "ipv6_routes": Table(("destination",), {"route": ("first", "count", "shift_by")}),
    "next_hops": Table(("hop",), {"send": ("port", "source", "destination")}),
}
"""The forwarding tables that the plan fills (docs/p4.md)."""


USER_FIELDS = ("tables", "initial", "clones", "groups")
"""Fields for the tables of a user-supplied program."""
SWITCH_FIELDS = ("kind", "program", "recirculation", "controller", "engine", *USER_FIELDS)
"""Fields that apply to the switch, not to a port."""


def check_port(settings: SwitchSettings, path: FieldPath, problems: Problems) -> None:
    """Refuse fields of the switch among the settings of a port."""
    switch = str(path[-1]).partition(">")[0]
    for name in SWITCH_FIELDS:
        if getattr(settings, name) is not None:
            problems.error((*path, name), f"applies to the switch, not to a port: expected it under `{switch}`")


class Programs:
    """Loads switches' programs, each once."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self._read: dict[str, Program | None] = {}
        self._named: dict[str, str] = {}

    def of(self, settings: Layer) -> Program | None:
        """Return the program of a switch with these settings; None if it has none, or after an error, which is added to
        `problems`.
        """
        kind, path = settings.get("kind", ("bmv2" if "program" in settings else "linux", ()))
        for name, (value, field_path) in settings.items():
            if kind == "linux" and name in SWITCH_FIELDS[1:] and value != "off":
                text = "the switch runs no program in P4 (`kind: bmv2`): not used; expected it beside `kind: bmv2`"
                self.problems.not_read(field_path, text)
            elif name in SWITCH_FIELDS and name != "recirculation":
                self.problems.read(field_path)
        if kind == "linux":
            return None
        if "program" in settings:
            name, path = text_of(settings, "program"), settings["program"][1]
        else:
            name = text_of(settings, "scheme", default_scheme())
        if name not in self._read:
            self._read[name] = self._load(name, path)
        program = self._read[name]
        if program is not None and program.scheme is not None:
            for name in (name for name in USER_FIELDS if name in settings):
                text = f"the program of `{program.scheme}` takes its entries from the parameters: expected another"
                self.problems.error(settings[name][1], f"{text} (`program: ./mine.p4`)")
        return program

    def _load(self, name: str, path: FieldPath) -> Program | None:
        try:
            if "/" in name or name.endswith(".p4"):
                program = load(lab_program(self.problems.source.folder, name))
                check_forwarding(program)
            else:
                program = self._of_scheme(name)
        except (ProgramError, ReachError) as error:
            self.problems.error(path, str(error))
            return None
        other = self._named.setdefault(program.name, name)
        if other != name:
            self.problems.error(path, f"`{other}` is a program of the same name: expected another for one of them")
        return program

    def _of_scheme(self, name: str) -> Program:
        known = with_programs()
        if name in known:
            return scheme_program(name)
        listed = ", ".join(f"`{scheme}`" for scheme in known)
        raise ProgramError(f"no scheme `{name}` has a program in P4; expected one of {listed}, or a path: `./mine.p4`")


@dataclass(frozen=True)
class Script:
    """A switch's controller: a script beside the lab file, by its name there, that begins with `#!`."""

    name: str
    text: str = field(repr=False)


def controller(settings: Layer, program: Program | None, problems: Problems) -> Script | None:
    """Return the controller of a switch with these settings; None if it has none, or after an error."""
    name, path = text_of(settings, "controller", "off"), settings.get("controller", ("off", ()))[1]
    if name == "off" or program is None:
        return None
    try:
        place = lab_program(problems.source.folder, name)
        text = read_text(place, _LARGEST_SCRIPT)
    except ReachError as error:
        problems.error(path, str(error))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        problems.error(path, f"{name}: cannot read it: {reason}")
    else:
        if text.startswith("#!"):
            return Script(place.name, text)
        problems.error(path, f"{name} is no script: expected `#!/usr/bin/env python3`, or another, as its first line")
    return None


def check_forwarding(program: Program) -> None:
    """Check that the program has all forwarding tables of docs/p4.md with their keys and actions, or none.
    ProgramError.
    """
    found = {name: program.tables[name] for name in FORWARDING if name in program.tables}
    if not found:
        return  # the program does not use the plan's routes
    for name, expected in FORWARDING.items():
        if name not in found:
            raise ProgramError(f"the program has a table `{next(iter(found))}` but no `{name}` (docs/p4.md)")
        ((action, parameters),) = expected.actions.items()
        if found[name].keys != expected.keys or found[name].actions.get(action) != parameters:
            shown = f"the key `{expected.keys[0]}` and the action `{action}({', '.join(parameters)})`"
            raise ProgramError(f"the program's table `{name}` is not docs/p4.md's: expected {shown}")


def check_sizes(program: Program, entries: list[Entry]) -> None:
    """Check that the tables have room for the entries from a scheme's parameters. SettingError."""
    counts = Counter(entry.table for entry in entries)
    for table in program.info.tables:
        if counts[table.name] > table.size:
            text = f"its ports need {counts[table.name]} entries in the program's table `{table.alias}`"
            raise SettingError("scheme", f"{text}, which has room for {table.size}")


def forwards(program: Program) -> bool:
    """Whether the program has the forwarding tables that the plan fills."""
    return FORWARDING.keys() <= program.tables.keys()


def queue_under_program(program: Program, given: Layer, named: bool, problems: Problems) -> Layer:
    """Return queue settings where a P4 program does the marking: the scheme is the program's. `named`: the file names
    the program.
    """
    scheme = program.scheme or default_scheme()
    if "qdisc" in given:
        problems.error(given["qdisc"][1], "a switch that runs a program has plain queues: expected `buffer`")
    if "scheme" in given and given["scheme"][0] != scheme:
        name, path = given["scheme"]
        if named:
            problems.not_read(path, f"the switch runs the program `{program.name}`: not used; expected `program` alone")
        else:
            problems.error(path, f"the switch runs one program, that of `{scheme}`; its ports cannot have `{name}`")
    field_path = given["scheme"][1] if given.get("scheme", ("", ()))[0] == scheme else ()
    return {name: value for name, value in given.items() if name != "qdisc"} | {"scheme": (scheme, field_path)}


def recirculation_of(
    given: Layer, default: RecirculationPort | None, links: int, program: Program, problems: Problems
) -> RecirculationPort | None:
    """Return a switch's recirculation port: the file's settings over the program's defaults."""
    setting = given.get("recirculation")
    if setting is not None and default is None:
        if program.scheme is not None:
            text = f"the program of `{program.scheme}` does not recirculate: `recirculation` is not used; expected none"
            problems.not_read(setting[1], text)
            return None
        default = _DEFAULT_RECIRCULATION
    if default is None:
        return None
    settings = setting[0].given() if setting is not None and isinstance(setting[0], RecirculationSettings) else {}
    if setting is not None:
        problems.read(setting[1])
    port = settings.get("port", default.port)
    if port < links:
        text = f"the switch's {links} links have the ports 0 to {links - 1}: expected another than {port}"
        problems.error((*setting[1], "port") if setting is not None else ("topology",), text)
    return RecirculationPort(port, settings.get("rate", default.rate_bps), settings.get("buffer", default.buffer))
