# SPDX-License-Identifier: Apache-2.0
"""C code of schemes from scheme.yml: what netlink brings and shows, what is counted, and tc's words for it.

    python -m qbed.schemes.generate kernel FOLDER      FOLDER/NAME/{KIND_scheme.h, KIND_netlink.h}, a folder a scheme
    python -m qbed.schemes.generate tc FOLDER          FOLDER/q_KIND.c

`kernel` also gathers what the module qrate is made of beside its own files: FOLDER/qrate has every controller
(schemes/SCHEME/host/*.h), its parameters (NAME_controller.h) and the list of them all (qrate_controllers.h). A
congestion control has its module parameters in FOLDER/NAME/NAME_parameters.h, and the structure of its statistics in
FOLDER/NAME/NAME_stats.h, from congestion/NAME/congestion.yml.

It runs whenever modules, plugins or their tests are built, so that nothing can be stale. Algorithms are not generated.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from qbed.base.errors import QbedError
from qbed.base.locations import schemes_folders
from qbed.config.units import Amount
from qbed.schemes.congestion import CongestionControl, congestion_controls
from qbed.schemes.declaration import Controller, Scheme, Statistic, controllers, registry
from qbed.schemes.encoding import Field, kernel_value
from qbed.schemes.parameter import Parameter

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    autoescape=False,  # C
)
_TC = {
    "amount": ("SCHEME_AMOUNT", "{ BYTES | PACKETSp }"),
    "bytes": ("SCHEME_SIZE", "BYTES"),
    "packets": ("SCHEME_NUMBER", "PACKETS"),
    "number": ("SCHEME_NUMBER", "NUMBER"),
    "duration": ("SCHEME_TIME", "TIME"),
    "rate": ("SCHEME_RATE", "RATE"),
    "fraction": ("SCHEME_FRACTION", "FRACTION"),
    "flag": ("SCHEME_FLAG", "{ on | off }"),
    "choice": ("SCHEME_CHOICE", ""),
}
"""By the type of a parameter: the kind of option that it is for tc, and what stands for its value in the usage."""


Variables = dict[str, Any]
"""Variables of a template."""


@dataclass(frozen=True)
class _Attribute:
    """A netlink attribute: a parameter, or an amount in one of its two units."""

    parameter: Parameter
    place: Field
    unit: str

    def value(self, declared: object, otherwise: int) -> int:
        """Return the declared value as the kernel counts it; `otherwise` if none is declared in this unit."""
        parsed = None if declared is None else self.parameter.parse(declared)
        if parsed is None or (isinstance(parsed, Amount) and parsed.unit != self.unit):
            return otherwise
        return kernel_value(parsed, self.place)

    def variables(self, kind: str, prefix: str) -> Variables:
        """For the templates."""
        parameter, place = self.parameter, self.place
        field = parameter.kernel_name(self.unit)
        amount = parameter.type == "amount"
        top = 2 ** (8 * place.size) - 1
        smallest = self.value(parameter.min, int(amount and parameter.min is not None))
        largest = self.value(parameter.max, _largest(place).get(parameter.type, top))
        absent = self.value(parameter.default if place.absent is None else place.absent, 0)
        return {
            "name": parameter.name,
            "field": field,
            "help": _comment(parameter.help),
            "type": place.type,
            "size": place.size,
            "attribute": f"{prefix}_{field}".upper(),
            "number": place.number,
            "amount": amount,
            "bounded": (smallest, largest) != (0, top),
            "min": smallest,
            "max": largest,
            "absent": f"{kind.upper()}_NO_BOUND" if amount else absent,
            "choices": [re.sub(r"\W", "_", word).upper() for word in place.choices],
            "power_of_two": parameter.power_of_two,
            "fixed": parameter.fixed,
        }


def _largest(place: Field) -> dict[str, int]:
    """By type, the largest number that a parameter without a bound can be."""
    return {"flag": 1, "fraction": place.scale or 1, "choice": len(place.choices) - 1}


def _comment(text: str) -> str:
    """Text that may stand in a comment of C."""
    return " ".join(text.replace("*/", "* /").split())


def _attributes(parameters: Sequence[Parameter], declaration: str) -> Iterator[_Attribute]:
    for parameter in parameters:
        places = {"bytes": parameter.bytes, "packets": parameter.packets}
        if parameter.type != "amount":
            places = {parameter.kernel_unit: parameter.attribute}
        for unit, place in places.items():
            if place is None:
                continue
            if place.number is None or place.type[0] != "u" or (parameter.type == "amount" and place.type != "u32"):
                raise QbedError(
                    f"{declaration}: parameter `{parameter.name}`: expected an attribute with a"
                    " `number` and an unsigned `type`, of an amount u32: no code can be generated for it"
                )
            yield _Attribute(parameter, place, unit)


def _option(parameter: Parameter) -> Variables:
    """A parameter as an option of tc, which calls the buffer `limit` as it does other qdiscs'."""
    places = [place for place in (parameter.attribute, parameter.bytes, parameter.packets) if place is not None]
    unit = kernel_value(10**6, places[0]) if parameter.type == "duration" else places[0].scale or 1
    kind, value = _TC[parameter.type]
    choices = places[0].choices
    return {
        "word": "limit" if parameter.name == "buffer" else parameter.name,
        "required": parameter.name == "buffer",
        "value": value or f"{{ {' | '.join(choices)} }}",
        "kind": kind,
        "bytes": places[0].size,
        "number": places[0].number,
        "packets": parameter.packets.number if parameter.packets is not None else 0,
        "scale": unit,
        "choices": choices,
    }


def _shared(kind: str, prefix: str, parameters: Sequence[Parameter], declaration: str) -> Variables:
    """Return the template variables that a qdisc and a controller share."""
    attributes = [attribute.variables(kind, prefix) for attribute in _attributes(parameters, declaration)]
    numbers = [entry["number"] for entry in attributes]
    if len(set(numbers)) < len(numbers):
        raise QbedError(f"{declaration}: two parameters have one attribute: {numbers}")
    return {
        "kind": kind,
        "upper": kind.upper(),
        "prefix": prefix,
        "declaration": declaration,
        "parameters": attributes,
        "ordered": [],
        "last": max(numbers),
    }


def _variables(scheme: Scheme) -> Variables:
    kind, declaration = scheme.qdisc.kind, f"schemes/{scheme.name}/scheme.yml"
    if not isinstance(kind, str) or scheme.qdisc.layout != "attributes":
        raise QbedError(f"{declaration}: qdisc: a module of one's own has one kind, and attributes")
    parameters = (*scheme.parameters, *scheme.qdisc.tc)
    shared = _shared(kind, f"TCA_{kind.upper()}", parameters, declaration)
    attributes = shared["parameters"]
    names = {entry["name"] for entry in attributes}
    wide = any(entry["type"] == "u64" for entry in attributes)
    return {
        **shared,
        "name": scheme.name,
        "pad": shared["last"] + 1 if wide else None,
        "needed": [entry for entry in attributes if entry["name"] == "buffer" and entry["amount"]],
        "statistics": [_statistic(statistic) for statistic in scheme.statistics],
        "options": [_option(p) for p in parameters if p.name in names],
    }


def _controller(controller: Controller) -> Variables:
    name = controller.name
    shared = _shared(name, f"{name.upper()}_A", controller.parameters, controller.declaration)
    fields = {entry["name"]: entry for entry in shared["parameters"]}
    ordered = [(fields[low], fields[high]) for low, high in controller.ordered_pairs()]
    return {**shared, "scheme": controller.scheme, "inputs": controller.inputs, "ordered": ordered}


def _congestion(declared: CongestionControl) -> Variables:
    places = ((p, p.attribute) for p in declared.parameters if p.attribute is not None)
    attributes = [_Attribute(parameter, place, parameter.kernel_unit) for parameter, place in places]
    return {
        "name": declared.name,
        "upper": declared.name.upper(),
        "parameters": [attribute.variables(declared.name, "") for attribute in attributes],
        "statistics": [_statistic(statistic) for statistic in declared.statistics],
    }


def _statistic(statistic: Statistic) -> Variables:
    return {
        "field": statistic.field,
        "type": statistic.type,
        "size": statistic.size,
        "help": _comment(f"{statistic.unit}: {statistic.help}"),
    }


def _render(template: str, variables: Variables) -> str:
    return _TEMPLATES.get_template(f"{template}.j2").render(variables)


def _host_side(folder: Path | None) -> dict[str, str]:
    """Return the files of the module qrate: every controller, its parameters, and a list of all."""
    headers = (path for place in ((folder,) if folder else schemes_folders()) for path in place.glob("*/host/*.h"))
    files = {f"qrate/{path.name}": path.read_text() for path in sorted(headers)}
    found = [_controller(controller) for controller in controllers(folder).values()]
    for variables in found:
        files[f"qrate/{variables['kind']}_controller.h"] = _render("controller.h", variables)
    for name in ("controllers.h", "qrate_controllers.h"):
        files[f"qrate/{name}"] = _render(name, {"controllers": found})
    return files


def generated(what: str, folder: Path | None = None) -> dict[str, str]:
    """The files, by their paths, of every scheme that has a module of its own; `what` is `kernel` or `tc`. Without
    `folder` also those of congestion controls.
    """
    files = _host_side(folder) if what == "kernel" else {}
    for scheme in registry(folder).values():
        if scheme.qdisc.module is None:
            continue
        variables = _variables(scheme)
        kind = variables["kind"]
        names = {f"{scheme.name}/{kind}_scheme.h": "scheme.h", f"{scheme.name}/{kind}_netlink.h": "netlink.h"}
        for name, template in (names if what == "kernel" else {f"q_{kind}.c": "tc.c"}).items():
            files[name] = _render(template, variables)
    for declared in congestion_controls().values() if what == "kernel" and folder is None else ():
        variables, prefix = _congestion(declared), f"{declared.name}/{declared.name}"
        files[f"{prefix}_parameters.h"] = _render("parameters.h", variables)
        if declared.statistics:
            files[f"{prefix}_stats.h"] = _render("stats.h", variables)
    return files


def main(what: str, folder: str) -> None:
    for name, text in generated(what).items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except QbedError as error:
        sys.exit(str(error))
