# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas with the docstrings of attributes as descriptions.

Pydantic would read them from the sources when a class is made (`use_attribute_docstrings`). That takes a sixth of the
time in which a command starts, and only schemas and generated pages need them.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any, get_args

from pydantic import BaseModel, RootModel

from qbed.base.json_files import Schema


def json_schema(model: type[BaseModel]) -> Schema:
    """The JSON Schema of a model, by its fields' aliases."""
    schema = model.model_json_schema()
    definitions = {model.__name__: schema, **schema.get("$defs", {})}
    for part in dict.fromkeys(_parts(model, set())):
        long_name = f"{part.__module__}.{part.__qualname__}".replace(".", "__")  # where several have the short one
        properties = definitions.get(part.__name__, definitions.get(long_name, {})).get("properties", {})
        for name, text in _attributes(part).items():
            if name in properties:
                properties[name] = dict(sorted(({"description": text} | properties[name]).items()))
    return schema


def _parts(annotation: Any, known: set[type]) -> Iterator[type]:
    """The models and dataclasses of an annotation, and those of their fields."""
    for argument in get_args(annotation):
        yield from _parts(argument, known)
    if not isinstance(annotation, type) or annotation in known:
        return
    known.add(annotation)
    if issubclass(annotation, BaseModel):
        fields = annotation.model_fields
    elif is_dataclass(annotation):
        fields = getattr(annotation, "__pydantic_fields__", {})
    else:
        return
    yield annotation
    for field in fields.values():
        for part in (field.annotation, *field.metadata):
            yield from _parts(part, known)


def _attributes(model: type) -> dict[str, str]:
    """The docstring of each field, by its alias."""
    fields = getattr(model, "__pydantic_fields__", {})
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base not in (BaseModel, RootModel, object):
            found |= _docstrings(sys.modules[base.__module__]).get(base.__qualname__, {})
    return {fields[name].alias or name: text for name, text in found.items() if name in fields}


@cache
def _docstrings(module: ModuleType) -> dict[str, dict[str, str]]:
    """The docstrings of the attributes of each class of a module."""
    classes = (node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef))
    return {node.name: dict(_described(node.body)) for node in classes}


def _described(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                yield name, inspect.cleandoc(docstring)
