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


def test_inspect_shows_the_parameters_of_a_profile() -> None:
    alone = qbed("inspect", str(LABS / "dumbbell")).stdout
    assert "What is run" in alone and "[scheme ecn]" not in alone
    shown = qbed("inspect", str(LABS / "dumbbell"), "--profile", "quick", "--set", "links.default.rate=1 Gbit/s")
    words = [line.split() for line in shown.stdout.splitlines()]
    assert ["threshold", "20", "packets", "[scheme", "ecn]", "20", "30.3", "KB", "242", "us"] in words
    printed = qbed("inspect", str(LABS / "dumbbell"), "--profile", "quick", "--json")
    table = json.loads(printed.stdout)
    assert (printed.returncode, table["combinations"]) == (0, 3)
    ports = next(group for group in table["groups"] if group["name"] == "switch ports")
    target = next(parameter for parameter in ports["parameters"] if parameter["name"] == "target")
    assert target["lines"][0] | {"packets": 0} == {
        "where": "scheme codel", "value": "20 us", "packets": 0, "bytes": 25000.0, "time_ns": 20000.0
    }  # fmt: skip
    wrong = qbed("inspect", str(LABS / "dumbbell"), "--profile", "quik")
    assert wrong.returncode == 2 and "did you mean `quick`" in wrong.stderr


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
