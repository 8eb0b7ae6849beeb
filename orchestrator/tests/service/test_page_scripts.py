# SPDX-License-Identifier: Apache-2.0
"""The live page's scripts: tests of their logic in Node (`page/*.test.js`), and what the service sends of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from qbed.service import page
from qbed.service.page import assets

TESTS = Path(__file__).parent / "page"
FOLDER = Path(page.__file__).parent


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node here")
def test_the_logic_of_the_page() -> None:
    files = sorted(str(path) for path in TESTS.glob("*.test.js"))
    found = subprocess.run(["node", "--test", *files], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stdout + found.stderr
    assert int(re.search(r"^# pass (\d+)$", found.stdout, re.MULTILINE)[1]) >= 20  # type: ignore[index]


def test_every_imported_file_is_served_and_nothing_else() -> None:
    served = assets()
    named = {"/", "/page/main.js"}
    for path, (content, kind) in served.items():
        if kind.startswith("text/javascript") and path != "/page/uPlot.js":
            named |= {f"/page/{name}" for name in re.findall(r"from '\./([^']+\.js)'", content.decode())}
        if path == "/":
            named |= set(re.findall(r'"(/page/[^"]+)"', content.decode()))
    assert named == served.keys()


def test_the_page_names_no_other_host() -> None:
    for path, (content, _) in assets().items():
        if "uPlot" not in path:
            assert not re.search(rb"https?://(?!www\.w3\.org/)", content), path


def test_scripts_are_short() -> None:
    assert all(len(path.read_text().splitlines()) <= 320 for path in FOLDER.glob("*.js"))
