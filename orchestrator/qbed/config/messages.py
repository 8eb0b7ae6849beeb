# SPDX-License-Identifier: Apache-2.0
"""Conversion of pydantic's validation errors to messages with file, line, column, field, the expected value and the
nearest valid name.
"""

from collections.abc import Collection

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from qbed.base.errors import nearest
from qbed.base.json_files import Schema
from qbed.config.source import FieldPath, Source
from qbed.config.units import shown

MAX_ERRORS = 100
_KINDS = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "fields (`name: value`)",
    "model_type": "fields (`name: value`)",
    "model_attributes_type": "fields (`name: value`)",
    "bool_type": "`true` or `false`",
    "bool_parsing": "`true` or `false`",
}
_OTHER_NAMES = {
    **dict.fromkeys(("cca", "cc", "ccalg", "congestion", "congestion_control", "tcp_congestion_control"), "tcp"),
    **dict.fromkeys(("bandwidth", "bw", "capacity", "speed", "datarate"), "rate"),
    **dict.fromkeys(("latency", "propagation", "propagation_delay"), "delay"),
    **dict.fromkeys(("aqm", "discipline", "queue_discipline"), "scheme"),
    **dict.fromkeys(("queue_size", "queue_limit", "limit"), "buffer"),
    **{f"{axis}{word}": f"{axis}_title" for axis in "xyz" for word in ("_label", "label", "title", "_axis")},
}
"""Fields by the names that other tools have for them."""
_MAX_REPEATED = 40
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def explain(error: ValidationError, source: Source, schema: Schema) -> list[str]:
    """Return one message for each invalid field, in the file's order."""
    found: dict[FieldPath, tuple[tuple[int, int], str]] = {}
    for details in error.errors(include_url=False)[:MAX_ERRORS]:
        path = _path(details, source.values)
        text = _text(details, path, schema)
        at_key = details["type"] == "extra_forbidden"
        message = source.message(path, text, at_key=at_key)
        if path not in found:
            position = source.keys.get(path) or next(
                (source.positions[path[:n]] for n in range(len(path), -1, -1) if path[:n] in source.positions), (0, 0)
            )
            found[path] = (position, message)
    return [message for _, message in sorted(found.values(), key=lambda entry: entry[0])]


def _path(details: ErrorDetails, values: object) -> FieldPath:
    """Return the field's path in the file: pydantic's location without the names of its types."""
    path: list[str | int] = []
    location = details["loc"]
    for index, part in enumerate(location):
        last = index == len(location) - 1
        inside = dict(enumerate(values)) if isinstance(values, list) else values
        if isinstance(inside, dict) and part in inside:
            values = inside[part]
        elif not (last and details["type"] == "missing"):
            continue
        path.append(part)
    return tuple(path)


def _text(details: ErrorDetails, path: FieldPath, schema: Schema) -> str:
    kind, value = details["type"], details["input"]
    context = details.get("ctx") or {}
    if kind == "extra_forbidden":
        return "unknown field" + field_hint(str(path[-1]) if path else "", fields_at(schema, path[:-1]))
    if kind == "missing":
        return "this field is missing"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"expected {context['expected'].replace(chr(39), '`')}, got {shown(value)}"
    if kind in _KINDS:
        return f"expected {_KINDS[kind]}, got {shown(value)}{_form_hint(_KINDS[kind], value)}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"expected {words} {context[name]}, got {shown(value)}"
    if kind == "string_pattern_mismatch":
        return f"expected text that matches {context['pattern']}, got {shown(value)}"
    if kind in ("too_short", "too_long"):
        words, bound = ("at least", "min_length") if kind == "too_short" else ("at most", "max_length")
        return f"expected {words} {context[bound]} entries, got {context['actual_length']}"
    return details["msg"][:1].lower() + details["msg"][1:] + f", got {shown(value)}"


def field_hint(name: str, fields: Collection[str]) -> str:
    """Return the field that has another name elsewhere, or else the nearest one."""
    other = _OTHER_NAMES.get(name.lower().replace("-", "_"))
    return f"; did you mean `{other}`?" if other in fields else nearest(name, fields)


def _form_hint(expected: str, value: object) -> str:
    """Return how to write a list instead of fields, and fields instead of a list."""
    if expected == "a list" and isinstance(value, dict) and value:
        return f"; write `- {next(iter(value))}: ...`, each entry with `- `"
    if expected == "a list" and isinstance(value, str | int | float):
        return f"; write `[{value}]`" if len(str(value)) <= _MAX_REPEATED else ""
    if expected.startswith("fields") and isinstance(value, list) and value and isinstance(value[0], dict) and value[0]:
        return f"; write `{next(iter(value[0]))}: ...` without `- `"
    return ""


def fields_at(schema: Schema, path: FieldPath) -> list[str]:
    """Return the names of the fields that the JSON Schema allows at a path."""
    places = _alternatives(schema, schema)
    for part in path:
        places = [inner for place in places for inner in _step(schema, place, part)]
    return sorted({name for place in places for name in place.get("properties", {})})


def _step(schema: Schema, place: Schema, part: str | int) -> list[Schema]:
    if isinstance(part, int):
        inner = place.get("items")
    else:
        inner = place.get("properties", {}).get(part) or place.get("additionalProperties")
    return _alternatives(schema, inner) if isinstance(inner, dict) else []


def _alternatives(schema: Schema, place: Schema) -> list[Schema]:
    """Return a schema node with its references and alternatives resolved."""
    if "$ref" in place:
        return _alternatives(schema, schema["$defs"][place["$ref"].rpartition("/")[2]])
    found = [place] if "properties" in place or "items" in place or "additionalProperties" in place else []
    for inner in (*place.get("anyOf", ()), *place.get("allOf", ())):
        found += _alternatives(schema, inner)
    return found
