# SPDX-License-Identifier: Apache-2.0
"""Filters of the roles and playbooks. The roles' argument specs define all variables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

COLLECTION = Path(__file__).resolve().parents[2]


def options_of(collection: Path) -> dict[str, dict[str, Any]]:
    """Return each role's variables from its argument spec."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(collection.glob("roles/*/meta/argument_specs.yml")):
        specs = yaml.safe_load(path.read_text())["argument_specs"]
        found[path.parent.parent.name] = specs["main"]["options"]
    return found


def unknown_variables(given: Iterable[str]) -> list[str]:
    """Return a message for each variable with the prefix of a role that no role has."""
    specs = options_of(COLLECTION)
    known = [name for options in specs.values() for name in options]
    messages = []
    for name in sorted(given):
        role = name.partition("_")[0]
        if role in specs and name not in known:
            nearest = difflib.get_close_matches(name, known, 1)
            hint = f"is it {nearest[0]}?" if nearest else f"the role {role} knows {', '.join(sorted(specs[role]))}"
            messages.append(f"{name}: no role has this variable; {hint}")
    return messages


def containerlab_version_of(output: str) -> str:
    """The version in the output of `containerlab version`; `0` if there is none."""
    found = re.search(r"version: *(\d[\w.]*)", output)
    return found[1] if found else "0"


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"unknown_variables": unknown_variables, "containerlab_version_of": containerlab_version_of}
