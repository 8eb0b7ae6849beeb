# SPDX-License-Identifier: Apache-2.0
"""qbed from Python, as far as no cell runs: labs in code, and the messages of mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import qbed
from qbed.errors import LabError
from qbed.network.load import load_lab
from qbed.places import labs_folder
from qbed.plan.compile import compile_lab

FIELDS: dict[str, Any] = {
    "name": "mine",
    "topology": {"star": {"hosts": 3}},
    "links": {"default": {"rate": "1 Gbit/s", "delay": "10 us"}},
    "switches": {"default": {"scheme": "droptail", "buffer": "64 KB"}},
    "hosts": {"default": {"tcp": "cubic", "ecn": "on"}},
    "duration": "100 ms",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("qbed.api.runs.build_changed", lambda say: None)
    return tmp_path / "cache"


def test_a_lab_in_code_is_the_lab_of_a_file(tmp_path: Path, cache: Path) -> None:
    import yaml

    (tmp_path / "lab.yml").write_text(yaml.safe_dump(FIELDS))
    assert qbed.Lab.of(FIELDS).plan() == compile_lab(load_lab(tmp_path))
    assert qbed.Lab.of(**FIELDS) == qbed.Lab.of(FIELDS) != qbed.Lab.of(FIELDS, seed=2)
    assert len(list((cache / "labs").iterdir())) == 2
    assert qbed.load("dumbbell") == qbed.load(labs_folder() / "dumbbell" / "lab.yml")


def test_fields_are_set_by_their_paths() -> None:
    lab = qbed.Lab.of(FIELDS).set({"links.default.rate": "5 Mbit/s"}, duration="1 s").set(seed=7)
    plan = lab.plan()
    assert (plan.links[0].a.rate_bps, plan.duration_ns, plan.seed) == (5_000_000, 10**9, 7)
    assert lab.plan(seed=8).seed == 8 and len(lab.inspect()["nodes"]) == 4


def test_mistakes_have_the_messages_of_files() -> None:
    with pytest.raises(LabError, match=r"topology\.star\.hots: unknown field; did you mean `hosts`"):
        qbed.Lab.of(FIELDS, topology={"star": {"hots": 3}}).plan()
    with pytest.raises(LabError, match="there is no such folder or file, and no such lab; did you mean `dumbbell`"):
        qbed.load("dumbel")
    lab = qbed.Lab.of(FIELDS)
    with pytest.raises(LabError, match=r"links\.default\.rat: unknown field; did you mean `rate`"):
        qbed.run(lab, axes={"links.default.rat": ["1 Gbit/s"]})
    with pytest.raises(LabError, match=r"campaign:3:1: axes"):
        qbed.run(lab, axes=["seed"])
    with pytest.raises(TypeError, match=r"run\(\) has no `axis`; did you mean `axes`"):
        qbed.run(lab, axis={})
    with pytest.raises(TypeError, match=r"expected a lab, `qbed\.load"):
        qbed.run("dumbbell", axes={"seed": [1]})


def test_what_is_not_used_is_not_loaded() -> None:
    script = (
        "import sys, qbed; assert not {'qbed.api', 'pyarrow', 'duckdb'} & set(sys.modules); print(len(dir(qbed)) > 8)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        _ = qbed.runn
