# SPDX-License-Identifier: Apache-2.0
"""Programs as workload: each entry of a lab's `programs`."""

import re
import shlex
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from qbed.config.strict import Strict
from qbed.config.units import DURATIONS, Duration, parse_duration, pattern
from qbed.lab.workloads import Hosts

BEFORE = "before"
BUILT_IN = ("node", "number", "seed")
"""Names in braces that `run` may use besides `arguments`."""
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_BRACES = re.compile(rf"\{{\{{|\}}\}}|\{{({_NAME})\}}")


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"expected words as in a shell: {str(error).lower()}") from None
    given = value if isinstance(value, list) else []
    words = [str(word) for word in given if isinstance(word, str | int | float) and not isinstance(word, bool)]
    if not words or not words[0] or words[0].endswith("/") or len(words) < len(given):
        raise ValueError("expected a program and its arguments: `iperf3 -c h3`, or a list of words")
    if any("\0" in word for word in words):
        raise ValueError("expected words without the character NUL")
    return words


def _start(value: object) -> int | str:
    try:
        return BEFORE if value == BEFORE else parse_duration(value)
    except ValueError:
        raise ValueError(f"expected `{BEFORE}` or a duration such as `5 us`, got `{value}`") from None


Words = Annotated[
    list[str],
    BeforeValidator(_words),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
Start = Annotated[
    int | str,
    PlainValidator(_start),
    WithJsonSchema({"anyOf": [{"enum": [BEFORE]}, {"type": "string", "pattern": pattern(DURATIONS)}]}),
]
Argument = Annotated[str | int | float, Field(union_mode="left_to_right")]


class Program(Strict):
    """A program that runs on nodes of the lab as part of its workload (docs/workloads.md)."""

    on: Hosts
    """Hosts or switches on which the program is started, one instance on each."""
    run: Words
    """The program and its arguments, as a list or as text. Text is split by the quoting rules of a shell, but no shell
    runs. The program is one of the machine (`iperf3 -c h3`), or a file beside the lab file that begins with `#!`
    (`./sender.py`). `{NAME}` is replaced by the value in `arguments`, `{node}` by the node's name,
    `{number}` by the node's position in `on` from 0, `{seed}` by the run's seed, and `{{` by a brace.
    """
    arguments: dict[Annotated[str, Field(pattern=f"^{_NAME}$")], Argument] = Field(default_factory=dict)
    """Values of `{NAME}` in `run`. A campaign's axis can set them (`programs[0].arguments.rate`)."""
    files: list[str] = Field(default_factory=list)
    """Files or folders beside the lab file that are copied to the program's working directory."""
    environment: dict[Annotated[str, Field(pattern=f"^{_NAME}$")], str] = Field(default_factory=dict)
    """Environment variables of the program."""
    label: str | None = None
    """Name of the program in the results. The default is the name of its file."""
    start: Start = 0
    """Start of the program, as time after the lab's epoch. `before`: 1 s before the epoch, for servers."""
    stop: Duration | None = None
    """Time of SIGTERM. SIGKILL follows 1 s later. Without `stop`, a program that still runs at the lab's end is killed,
    and its buffered output is lost.
    """
    output: Literal["text", "json", "key=value"] = "text"
    """Format of the output: `json` (one document, or one on each line) and `key=value` (pairs on a line) become rows of
    the table `program_records`.
    """
    status: Literal["zero", "any"] = "zero"
    """Accepted exit status if the program ends by itself. `zero`: the cell fails with any other status."""

    @property
    def name(self) -> str:
        """The name of the program in the results."""
        return self.label or self.run[0].rpartition("/")[2]

    @property
    def is_beside_lab(self) -> bool:
        """Whether the program is a file beside the lab file."""
        return "/" in self.run[0] and not self.run[0].startswith("/")


def unknown_names(program: Program) -> list[str]:
    """Return the names in braces in `run` that are not defined."""
    known = {*program.arguments, *BUILT_IN}
    found = (match[1] for word in program.run for match in _BRACES.finditer(word) if match[1])
    return [name for name in dict.fromkeys(found) if name not in known]


def unread_arguments(program: Program) -> list[str]:
    """Return the arguments that `run` does not use."""
    named = {match[1] for word in program.run for match in _BRACES.finditer(word)}
    return [name for name in program.arguments if name not in named]


def filled(program: Program, built_in: dict[str, str]) -> list[str]:
    """Return the words of `run` on one node."""
    values = built_in | {name: str(value) for name, value in program.arguments.items()}

    def replace(match: re.Match[str]) -> str:
        return values[match[1]] if match[1] else match[0][0]

    return [_BRACES.sub(replace, word) for word in program.run]
