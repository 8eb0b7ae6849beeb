# SPDX-License-Identifier: Apache-2.0
"""Example plans for the agent's tests, made from the plan's JSON Schema, and plans of labs (crates/agent/tests/plans).

In `every-field.json` each field of each part occurs set and unset, and with each of its alternatives. The agent reads
only its types: names and indices in it mean nothing. `parts.json` lists a place of each part, with the fields without
which the part is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from qbed.base.json_files import Json, Schema
from qbed.campaign.file import load_campaign
from qbed.campaign.matrix import build_matrix
from qbed.config.source import parse
from qbed.network.load import lab_from_source, load_cell, read_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.plan.reference import schema

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "crates" / "agent" / "tests" / "plans"
LABS = ("dumbbell", "mobile", "programs", "queries", "step-response", "young-flows")
DISTRIBUTIONS = """\
name: distributions
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s}}
switches: {default: {scheme: abq}, s1>h3: {qdisc: fq_codel limit 100}}
workload:
  - arrivals: {size: {published: web-search}, load: 0.5}
  - requests: {clients: h1, servers: h2, request: {uniform: [100 B, 1 KB]}, response: 5 KB, think: {exponential: 1 ms}}
  - requests: {clients: h1, servers: h3, request: 1 KB, response: {pareto: {mean: 5 KB, shape: 1.2, max: 9 KB}}}
  - onoff: {from: h1, to: h2, on: {pareto: {mean: 1 ms, shape: 1.5}}, off: {uniform: [0 us, 2 ms]}}
  - udp: {from: h2, to: h3, rate: 10 Mbit/s, size: 10 KB}
duration: 100 ms
"""
EVERY_FIELD, REQUIRED_FIELDS, PARTS = "every-field.json", "required-fields.json", "parts.json"


def files() -> dict[str, str]:
    """The content of each file by its name."""
    root = schema()
    complete, *_ = _instances(root, root)
    assert isinstance(complete, dict)
    every = {name: _instances(inner, root)[-1] for name, inner in root["properties"].items()}
    required = {name: value for name, value in complete.items() if name in root["required"]}
    found = {f"{lab}.json": _lab(lab) for lab in LABS}
    found["distributions.json"] = compile_lab(lab_from_source(parse(DISTRIBUTIONS))).dumps()
    found |= {
        name: Plan.model_validate(document).dumps()
        for name, document in ((EVERY_FIELD, every), (REQUIRED_FIELDS, required))
    }
    lines = ",\n ".join(json.dumps(place) for place in _places(found, root))
    return found | {PARTS: f"[\n {lines}\n]\n"}


def _lab(name: str) -> str:
    """The plan of the first cell of a lab's quick profile."""
    folder = ROOT / "labs" / name
    cell = build_matrix(load_campaign(folder / "campaign.yml")[0], "quick").cell(0)
    return compile_lab(load_cell(read_lab(folder / "lab.yml"), dict(cell.settings)), cell.seed).dumps()


def _instances(place: Schema, root: Schema) -> list[Json]:
    """Values for a place of the schema; the first of an object has all fields, the last of a list all alternatives."""
    if "$ref" in place:
        return _instances(root["$defs"][place["$ref"].rpartition("/")[2]], root)
    if "properties" in place:
        return list(_objects(place, root))
    if alternatives := place.get("anyOf") or place.get("oneOf"):
        return [value for alternative in alternatives for value in _instances(alternative, root)]
    if isinstance(place.get("additionalProperties"), dict):
        return [{"name": value} for value in _instances(place["additionalProperties"], root)]
    if "items" in place:
        values = _instances(place["items"], root)
        return [values[:1], values]
    if "prefixItems" in place:
        return [[_instances(schema, root)[0] for schema in place["prefixItems"]]]
    if "const" in place or "enum" in place or "examples" in place:
        return [place["const"]] if "const" in place else list(place.get("enum") or place["examples"])
    values_of: dict[str, list[Json]] = {
        "integer": [1], "number": [0.5], "string": ["text"], "boolean": [True, False], "null": [None]
    }  # fmt: skip
    return values_of[place["type"]]


def _objects(place: Schema, root: Schema) -> Iterator[Json]:
    """Objects that differ in one field: another value of it, or none if it is optional."""
    values = {name: _instances(inner, root) for name, inner in place["properties"].items()}
    choices = [set(option["required"]) for option in place.get("oneOf", ())]
    for chosen in choices or [set[str]()]:
        excluded = set[str]().union(*choices) - chosen
        complete = {name: found[0] for name, found in values.items() if name not in excluded}
        yield dict(complete)
        for name in complete:
            yield from (complete | {name: value} for value in values[name][1:])
            if name not in place.get("required", ()) and name not in chosen:
                yield {other: value for other, value in complete.items() if other != name}


def _places(plans: dict[str, str], root: Schema) -> Iterator[dict[str, Json]]:
    """The first place of each part: in a plan of a lab if there is one. A field that may be null may be missing."""
    places: dict[str, tuple[str, str]] = {}
    for name, text in plans.items():
        for part, pointer in _parts(json.loads(text), root, "", root):
            places.setdefault(part, (name, pointer))
    assert places.keys() == {"", *(name for name, place in root["$defs"].items() if "properties" in place)}
    for part, (name, pointer) in sorted(places.items()):
        place = root["$defs"][part] if part else root
        fields = place["properties"]
        required = [field for field in place.get("required", ()) if None not in _instances(fields[field], root)]
        yield {"part": part or "Plan", "plan": name, "at": pointer, "required": [*required]}


def _parts(value: Json, place: Schema, pointer: str, root: Schema) -> Iterator[tuple[str, str]]:
    """Every part below a place, by the name of its definition, with its JSON pointer."""
    part = ""
    if "$ref" in place:
        part = place["$ref"].rpartition("/")[2]
        place = root["$defs"][part]
    if isinstance(value, dict) and "properties" in place:
        if _is(value, place):
            yield part, pointer
            for name, inner in value.items():
                yield from _parts(inner, place["properties"][name], f"{pointer}/{name}", root)
        return
    for option in (*place.get("anyOf", ()), *place.get("oneOf", ())):
        yield from _parts(value, option, pointer, root)
    if isinstance(value, list) and "items" in place:
        for index, inner in enumerate(value):
            yield from _parts(inner, place["items"], f"{pointer}/{index}", root)
    if isinstance(value, dict) and isinstance(place.get("additionalProperties"), dict):
        for name, inner in value.items():
            yield from _parts(inner, place["additionalProperties"], f"{pointer}/{name}", root)


def _is(value: dict[str, Json], place: Schema) -> bool:
    """Whether an object is of this part, of several alternatives."""
    constants = {name: schema["const"] for name, schema in place["properties"].items() if "const" in schema}
    has_fields = set(place.get("required", ())) <= value.keys() <= place["properties"].keys()
    return has_fields and all(value.get(name, constant) == constant for name, constant in constants.items())


def fields_of(text: str) -> Iterator[tuple[str, set[str]]]:
    """The names of the fields of each part in a plan."""
    plan = json.loads(text)
    for part, pointer in _parts(plan, schema(), "", schema()):
        value = plan
        for step in pointer.split("/")[1:]:
            value = value[int(step) if isinstance(value, list) else step]
        yield part or "Plan", set(value)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
