# SPDX-License-Identifier: Apache-2.0
"""The commands for a lab that is up, and what each does on both substrates: `python lab_commands.py` writes the table
of docs/interactive.md, tests/containers/test_lab_commands.py runs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "interactive.md"
BEGIN, END = "<!-- Written by tests/qbed_testing/lab_commands.py -->\n", "<!-- End of the written part. -->\n"
NO_VIRTUAL_TIME = "its time passes by itself"
SUBSTRATES = ("virtual", "containerlab")


@dataclass(frozen=True)
class Command:
    """A command, run in the order of `COMMANDS` on a lab with the hosts h1 and h2 and the switch s1."""

    shown: str
    """As in the table, and the arguments of `qbed` after it; LAB is the lab's name."""
    prints: str
    """A part of its output."""
    stdin: str = ""
    at_terminal: bool = False
    refused: str | None = None
    """A part of the message in containers, where the command is refused."""


COMMANDS = (
    Command("ps", "LAB"),
    Command("exec LAB h1 -- ping -c 1 h2", " 0% packet loss"),
    Command("exec LAB h1 -i -- cat", "from a pipe", stdin="from a pipe\n"),
    Command("exec LAB h1 -t -- tty", "/dev/", at_terminal=True),
    Command("exec LAB h2 -d -- sleep 1000", "started"),
    Command("ps LAB", "sleep 1000"),
    Command("kill LAB 1", ""),
    Command("shell LAB h1", "42", stdin="echo $((40 + 2))\n"),
    Command("set LAB h1-s1 delay=5ms", "h1-s1"),
    Command("set LAB --undo", ""),
    Command("capture LAB s1>h2 --out FILE", ""),
    Command("samples LAB", '"sample": "queue"'),
    Command("inspect LAB.yml", "h1-s1"),
    Command("advance LAB 10ms", "", refused=NO_VIRTUAL_TIME),
    Command("pace LAB real", "", refused=NO_VIRTUAL_TIME),
    Command("down LAB", "is down"),
)


def table() -> str:
    lines = ["| command | virtual time | containers |", "|---|---|---|"]
    for command in COMMANDS:
        containers = "works" if command.refused is None else f"refused: {command.refused}"
        lines.append(f"| `qbed {command.shown}` | works | {containers} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the table of today."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
