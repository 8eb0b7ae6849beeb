# SPDX-License-Identifier: Apache-2.0
"""Write the tables of variables in README.md from the roles' argument specs: python playbooks/reference.py"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
COLLECTION = HERE / "collections/ansible_collections/qbed/lab"
BEGIN, END = "<!-- variables: make generate -->\n", "<!-- end of variables -->\n"
ORDER = ("prepare", "machine", "docker", "containerlab", "toolchain", "lab", "campaign", "collect")


def tables() -> str:
    """Each role with its variables, in the order in which they are used."""
    found = {path.parent.parent.name: path for path in COLLECTION.glob("roles/*/meta/argument_specs.yml")}
    parts = []
    for role in sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        spec = yaml.safe_load(found[role].read_text())["argument_specs"]["main"]
        rows = ["| variable | type | default | meaning |", "|---|---|---|---|"]
        rows += [_row(name, option) for name, option in spec["options"].items()]
        description = textwrap.fill(spec["description"], 120, break_on_hyphens=False)
        parts.append(f"### {role}\n\n{description}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _row(name: str, option: dict[str, Any]) -> str:
    kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
    if "choices" in option:
        kind = " or ".join(f"`{choice}`" for choice in option["choices"])
    default = "**required**" if option.get("required") else f"`{_plain(option['default'])}`"
    return f"| `{name}` | {kind} | {default} | {option['description']} |".replace(" || ", " ")


def _plain(value: object) -> str:
    """A value in the form of an inventory."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("\n...\n").strip()
    return (str(value) if isinstance(value, str) and value else text).replace("|", "\\|")


def with_tables(readme: str) -> str:
    """Return the README with current tables."""
    before, rest = readme.split(BEGIN)
    return before + BEGIN + "\n" + tables() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    readme = HERE / "README.md"
    readme.write_text(with_tables(readme.read_text()))
    sys.exit()
