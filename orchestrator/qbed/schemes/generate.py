# SPDX-License-Identifier: Apache-2.0
"""C code of schemes from scheme.yml: what netlink brings and shows, what is counted, and tc's words for it.

    python -m qbed.schemes.generate kernel FOLDER      FOLDER/NAME/{KIND_scheme.h, KIND_netlink.h}, a folder a scheme
    python -m qbed.schemes.generate tc FOLDER          FOLDER/q_KIND.c

It runs whenever modules, plugins or their tests are built, so that nothing can be stale. Algorithms are not generated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from qbed.errors import QbedError
from qbed.language.units import Amount
from qbed.schemes.declaration import Parameter, Scheme, Statistic, registry
from qbed.schemes.encoding import Field, kernel_value

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    autoescape=False,  # C
)
_SUFFIXES = {"bytes": "bytes", "packets": "packets", "rate": "bps"}
_TC = {
    "amount": ("SCHEME_AMOUNT", "{ BYTES | PACKETSp }"),
    "bytes": ("SCHEME_SIZE", "BYTES"),
    "packets": ("SCHEME_NUMBER", "PACKETS"),
    "number": ("SCHEME_NUMBER", "NUMBER"),
    "duration": ("SCHEME_TIME", "TIME"),
    "rate": ("SCHEME_RATE", "RATE"),
    "fraction": ("SCHEME_FRACTION", "FRACTION"),
    "flag": ("SCHEME_FLAG", "{ on | off }"),
}
"""By the type of a parameter: the kind of option that it is for tc, and what stands for its value in the usage."""


@dataclass(frozen=True)
class _Attribute:
    """A netlink attribute: a parameter, or an amount in one of its two units."""

    parameter: Parameter
    place: Field
    unit: str

    def value(self, said: object, otherwise: int) -> int:
        """What the declaration says, as the kernel counts it; `otherwise` if it says nothing in this unit."""
        parsed = None if said is None else self.parameter.parse(said)
        if parsed is None or (isinstance(parsed, Amount) and parsed.unit != self.unit):
            return otherwise
        return kernel_value(parsed, self.place)

    def variables(self, kind: str) -> dict[str, Any]:
        """For the templates."""
        parameter, place = self.parameter, self.place
        name = parameter.name
        field = name if not self.unit or name.endswith(f"_{self.unit}") else f"{name}_{self.unit}"
        amount = parameter.type == "amount"
        top = 2 ** (8 * place.size) - 1
        least = self.value(parameter.min, int(amount and parameter.min is not None))
        most = self.value(parameter.max, {"flag": 1, "fraction": place.one or 1}.get(parameter.type, top))
        absent = self.value(parameter.default if place.absent is None else place.absent, 0)
        return {
            "name": name,
            "field": field,
            "help": _comment(parameter.help),
            "type": place.type,
            "attribute": f"TCA_{kind}_{field}".upper(),
            "number": place.number,
            "amount": amount,
            "bounded": (least, most) != (0, top),
            "min": least,
            "max": most,
            "absent": f"{kind.upper()}_NO_BOUND" if amount else absent,
            "power_of_two": parameter.power_of_two,
            "fixed": parameter.fixed,
        }


def _comment(text: str) -> str:
    """Text that may stand in a comment of C."""
    return " ".join(text.replace("*/", "* /").split())


def _attributes(scheme: Scheme) -> Iterator[_Attribute]:
    for parameter in (*scheme.parameters, *scheme.qdisc.tc):
        places = {"bytes": parameter.bytes, "packets": parameter.packets}
        if parameter.type != "amount":
            unit: str = parameter.attribute.unit if parameter.attribute and parameter.type == "duration" else ""
            places = {_SUFFIXES.get(parameter.type, unit): parameter.attribute}
        for unit, place in places.items():
            if place is None:
                continue
            if place.number is None or place.type[0] != "u" or (parameter.type == "amount" and place.type != "u32"):
                raise QbedError(
                    f"schemes/{scheme.name}/scheme.yml: parameter `{parameter.name}`: expected an attribute with a"
                    " `number` and an unsigned `type`, of an amount u32: no code can be generated for it"
                )
            yield _Attribute(parameter, place, unit)


def _option(parameter: Parameter) -> dict[str, Any]:
    """A parameter as an option of tc, which calls the buffer `limit` as it does other qdiscs'."""
    places = [place for place in (parameter.attribute, parameter.bytes, parameter.packets) if place is not None]
    one = {"fraction": places[0].one or 1, "duration": kernel_value(10**6, places[0])}.get(parameter.type, 1)
    kind, value = _TC[parameter.type]
    return {
        "word": "limit" if parameter.name == "buffer" else parameter.name,
        "required": parameter.name == "buffer",
        "value": value,
        "kind": kind,
        "bytes": places[0].size,
        "number": places[0].number,
        "packets": parameter.packets.number if parameter.packets is not None else 0,
        "one": one,
    }


def _variables(scheme: Scheme) -> dict[str, Any]:
    kind = scheme.qdisc.kind
    if not isinstance(kind, str) or scheme.qdisc.layout != "attributes":
        raise QbedError(f"schemes/{scheme.name}/scheme.yml: qdisc: a module of one's own has one kind, and attributes")
    attributes = [attribute.variables(kind) for attribute in _attributes(scheme)]
    numbers = [entry["number"] for entry in attributes]
    if len(set(numbers)) < len(numbers):
        raise QbedError(f"schemes/{scheme.name}/scheme.yml: two parameters have one attribute: {numbers}")
    names = {entry["name"] for entry in attributes}
    wide = any(entry["type"] == "u64" for entry in attributes)
    return {
        "name": scheme.name,
        "kind": kind,
        "upper": kind.upper(),
        "parameters": attributes,
        "last": max(numbers),
        "pad": max(numbers) + 1 if wide else None,
        "needed": [entry for entry in attributes if entry["name"] == "buffer" and entry["amount"]],
        "statistics": [_statistic(statistic) for statistic in scheme.statistics],
        "options": [_option(p) for p in (*scheme.parameters, *scheme.qdisc.tc) if p.name in names],
    }


def _statistic(statistic: Statistic) -> dict[str, Any]:
    name = statistic.name
    return {
        "field": f"{name}_ns" if statistic.unit == "ns" and not name.endswith("_ns") else name,
        "type": statistic.type,
        "size": statistic.size,
        "help": _comment(f"{statistic.unit}: {statistic.help}"),
    }


def generated(what: str, folder: Path | None = None) -> dict[str, str]:
    """The files, by their paths, of every scheme that has a module of its own; `what` is `kernel` or `tc`."""
    files = {}
    for scheme in registry(folder).values():
        if scheme.qdisc.module is None:
            continue
        variables = _variables(scheme)
        kind = variables["kind"]
        names = {f"{scheme.name}/{kind}_scheme.h": "scheme.h.j2", f"{scheme.name}/{kind}_netlink.h": "netlink.h.j2"}
        for name, template in (names if what == "kernel" else {f"q_{kind}.c": "tc.c.j2"}).items():
            files[name] = _TEMPLATES.get_template(template).render(variables)
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
