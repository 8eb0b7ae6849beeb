# SPDX-License-Identifier: Apache-2.0
"""The table of `make coverage`: lines of tests do not count, and a line of several programs counts once."""

import json
import subprocess
import sys
from pathlib import Path

from qbed.base.locations import checkout

_ROOT = checkout()
assert _ROOT is not None
ROOT: Path = _ROOT
CAPTURE = ROOT / "crates" / "agent" / "src" / "observe" / "capture.rs"


def test_tests_are_not_counted_and_programs_are_merged(tmp_path: Path) -> None:
    files = ("orchestrator/qbed/config/units.py", "/tmp/broken/substrate.py")
    lines = {"executed_lines": [1, 2, 3], "missing_lines": [4]}
    (tmp_path / "python.json").write_text(json.dumps({"files": dict.fromkeys(files, lines)}))
    in_tests = CAPTURE.read_text().splitlines().index("mod tests {") + 2
    testing = CAPTURE.parent.parent / "testing.rs"
    (tmp_path / "rust.lcov").write_text(
        f"SF:{CAPTURE}\nDA:1,0\nDA:2,7\nDA:{in_tests},1\nend_of_record\nSF:{testing}\nDA:1,1\nend_of_record\n"
    )
    units = [
        {"current_working_directory": str(ROOT / "kernel" / "tests"), "files": files}
        for files in (
            [{"file": "../uml/um_xstate.h", "lines": [{"line_number": 8, "count": count} for count in (0, 0)]}],
            [{"file": "../uml/um_xstate.h", "lines": [{"line_number": 8, "count": 3}]}],
            [{"file": "test_xstate.c", "lines": [{"line_number": 8, "count": 3}]}],
        )
    ]
    (tmp_path / "c.json").write_text("\n".join(map(json.dumps, units)))
    argv = [sys.executable, str(ROOT / "tools" / "coverage"), str(tmp_path)]
    table = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    rows = [[*line.rpartition("of ")[0].split(), line.split()[-2]] for line in table.splitlines() if line]
    assert rows == [
        ["qbed.config", "3", "75.0"],
        ["Python,", "all", "3", "75.0"],
        ["crates/agent", "1", "50.0"],
        ["Rust,", "all", "1", "50.0"],
        ["kernel/uml", "1", "100.0"],
        ["C,", "all", "1", "100.0"],
    ]
