# SPDX-License-Identifier: Apache-2.0
"""The memory of rpm's registers: README.md has a table of what the compiled program and the kernel's C have.

.venv/bin/python schemes/rpm/tests/test_rpm_memory.py    writes the table
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SCHEME = Path(__file__).parents[1]
ROOT = SCHEME.parents[1]
README = SCHEME / "README.md"
BEGIN, END = "<!-- test_rpm_memory.py: table -->\n", "<!-- end of the table -->\n"
FLOWS = 65536
PORTS = 512
PARTS = {
    "rpm_pending": "decisions (R_C of Algorithm 1)",
    "rpm_holder": "signature of the flow",
    "rpm_reverse_time": "time of its last acknowledgement",
    "rpm_pending_port": "port of the decisions",
    "rpm_closing": "FIN was seen",
}
"""The program's register arrays of one place for each flow and one for each port."""


def bits_in_p4() -> dict[str, int]:
    """The width of each register array of the compiled program that has a place for each flow."""
    program = json.loads((SCHEME / "p4" / "rpm.json").read_text())
    arrays = {one["name"]: one for one in program["register_arrays"] if one["size"] > PORTS}
    assert {one["size"] for one in arrays.values()} == {FLOWS + PORTS}
    return {name: one["bitwidth"] for name, one in arrays.items()}


def bytes_in_kernel() -> int:
    """The size of `struct rpm_register` on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        generate = [sys.executable, "-m", "qbed.schemes.generate", "kernel", f"{folder}/generated"]
        subprocess.run(generate, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        source = """
            #include "rpm_algorithm.h"
            #include <stdio.h>
            int main(void) { printf("%zu", sizeof(struct rpm_register)); }
        """
        include = [f"{folder}/generated", f"{folder}/generated/rpm", SCHEME / "kernel", ROOT / "kernel" / "include"]
        include += [ROOT / "kernel" / "tests", ROOT / "kernel" / "include" / "uapi"]
        flags = [f"-I{one}" for one in include]
        command = ["cc", "-std=gnu11", *flags, "-include", "unit.h", "-x", "c", "-", "-o", f"{folder}/size"]
        subprocess.run(command, input=source, text=True, check=True)
        return int(subprocess.run([f"{folder}/size"], capture_output=True, text=True, check=True).stdout)


def row(name: str, bits: int, places: int) -> str:
    return f"| {name} | {bits} | {places:,} | {bits * places / 8 / 1024:,.1f} |\n"


def table() -> str:
    widths = bits_in_p4()
    assert set(widths) == set(PARTS)
    total, kernel = sum(widths.values()), 8 * bytes_in_kernel()
    return "".join(
        [
            "| registers | bits a place | places | KiB |\n|---|---:|---:|---:|\n",
            row("one bit a flow, as in section III.C", 1, FLOWS),
            row("Algorithm 1's counter alone", widths["rpm_pending"], FLOWS),
            *(row(f"P4: {text}", widths[name], FLOWS) for name, text in PARTS.items()),
            row("P4: all of a flow, `counter: count` and `bit` alike", total, FLOWS),
            row("P4: all of a port, `per_port`", total, PORTS),
            row("kernel: a flow", kernel, FLOWS),
            row("kernel: a port, `per_port`", kernel, PORTS),
        ]
    )


def written(text: str) -> str:
    """The README with its table replaced by the present one."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


def test_the_table_of_the_readme_is_current() -> None:
    text = README.read_text()
    assert written(text) == text, "run schemes/rpm/tests/test_rpm_memory.py"


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
