# SPDX-License-Identifier: Apache-2.0
"""The commands about lab files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from campaigns import write_manifest

from qbed import __version__

LABS = Path(__file__).parents[3] / "labs"


def qbed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "qbed", *arguments], capture_output=True, text=True, check=False)


def test_compile_prints_a_plan() -> None:
    result = qbed("compile", str(LABS / "dumbbell"), "--set", "links.default.rate=1 Gbit/s", "--seed", "7")
    plan = json.loads(result.stdout)
    assert (result.returncode, plan["seed"], plan["links"][0]["a"]["rate_bps"]) == (0, 7, 10**9)


def test_inspect_shows_tables_and_json() -> None:
    assert "s1:eth2" in qbed("inspect", str(LABS / "dumbbell")).stdout
    data = json.loads(qbed("inspect", str(LABS / "dumbbell"), "--json").stdout)
    assert data["queues"][1]["parameters"] == "buffer 128 KB"


def test_version_names_what_results_depend_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBED_TOOLCHAIN", str(tmp_path))
    assert qbed("--version").stdout == f"qbed {__version__}, no kernel yet: make setup\n"
    for name in ("linux", "qbed-agent", "modules/qlink.ko", "modules/qtap.ko", "modules/qgate.ko"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    write_manifest(tmp_path, kernel_version="6.1.2", kernel_hash="abc", frr_version="8")
    assert qbed("--version").stdout == f"qbed {__version__}, kernel 6.1.2 (abc), FRR 8\n"


def test_mistakes_have_status_2_and_no_traceback() -> None:
    result = qbed("compile", str(LABS / "dumbbell"), "--set", "links.default.rate=10")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ") and "expected a rate such as `10 Gbit/s`, got `10`" in result.stderr
    assert qbed("compile", "/nonexistent").returncode == 2
