# SPDX-License-Identifier: Apache-2.0
"""qbed from Python, as far as no cell runs: labs in code, and the messages of mistakes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from campaigns import fake_toolchain, write_lab

import qbed
import qbed.api
from qbed.base.errors import LabError, QbedError
from qbed.base.locations import labs_folder
from qbed.campaign.lock import LockError
from qbed.network.load import load_lab
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
    for module in ("runs", "cells"):
        monkeypatch.setattr(f"qbed.api.{module}.build_changed", lambda say: None)
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


def test_what_the_api_has_is_there_by_short_names() -> None:
    assert sorted(qbed.API) == sorted(qbed.api.__all__)
    assert all(getattr(qbed, name) is getattr(qbed.api, name) for name in qbed.API)


def test_labs_are_listed_and_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "incast" in {entry.name for entry in qbed.labs()}
    assert qbed.new("mine", like="incast").plan().lab == "mine"
    with pytest.raises(LabError, match="mine exists already"):
        qbed.new("mine")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A campaign, cells that are made up, a store; returns the lab's folder."""
    monkeypatch.setenv("QBED_TOOLCHAIN", str(fake_toolchain(tmp_path / "tools")))
    monkeypatch.setenv("QBED_STORE", "1 GB")
    monkeypatch.chdir(tmp_path)
    return write_lab(tmp_path / "lab")


def test_shards_are_merged_and_runs_compared(bench: Path) -> None:
    options: dict[str, Any] = {"profile": "quick", "images": False}
    parts = [qbed.run(bench, out=f"part-{i}", shard=(i, 2), **options) for i in (1, 2)]
    assert [[row["cell"] for row in part.cells()] for part in parts] == [[0], [1]]
    merged = qbed.merge(bench, [parts[0], "part-2"], out="whole", **options)
    assert merged.holds and merged.claims["all-complete"].measured == {"flows": 4}
    assert [(row["tcp"], row["status"]) for row in merged.cells()] == [("reno", "complete"), ("cubic", "complete")]
    with pytest.raises(QbedError, match=r"1 cells are in none of the shards \(1\)"):
        qbed.merge(bench, [parts[0]], out="half", **options)
    assert list(merged.differences(qbed.run(bench, out="again", **options))) == []
    other = qbed.run(bench, out="other", settings={"links.default.rate": "2 Gbit/s"}, store=False, **options)
    (name, difference), *more = merged.differences(other)
    assert (name, len(more)) == ("delay=5 us, seed=1, tcp=reno", 1) and difference is not None
    with pytest.raises(TypeError, match=r"merge\(\) has no `sinc`; did you mean `sinks`"):
        qbed.merge(bench, [], sinc=[])


def test_traces_are_locked_and_compared(bench: Path) -> None:
    options: dict[str, Any] = {"profile": "quick", "images": False}
    with pytest.raises(LockError, match="has no traces of the profile `quick`"):
        qbed.run(bench, out="first", lock="compare", **options)
    assert qbed.run(bench, out="first", lock="write", **options).holds
    assert qbed.run(bench, out="first", lock="compare", **options).holds
    lock = bench / "campaign.lock"
    lock.write_text(re.sub(r'(tcp=reno[^"]*": ")[0-9a-f]{4}', r"\g<1>0000", lock.read_text()))
    with pytest.raises(LockError, match=r"tcp=reno.*: its trace is") as other:
        qbed.run(bench, out="first", lock="compare", **options)
    assert "cubic" not in str(other.value)
    for more in ({"settings": {"duration": "1 ms"}}, {"seeds": [5]}, {"on": "containerlab"}):
        with pytest.raises(QbedError, match="without settings, seeds, shard and on"):
            qbed.run(bench, lock="write", **options, **more)


def test_cells_go_by_their_keys_into_the_store(bench: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = qbed.queue(bench, profile="quick")
    assert len(keys) == 2 and [qbed.cell(key).status for key in keys] == ["complete"] * 2
    assert qbed.cell(keys[0]).stored and qbed.queue(bench, profile="quick") == []
    assert {cell.key for cell in qbed.store().cells()} == set(keys) and list(qbed.store().verify()) == []
    assert len(qbed.store().shrink(0)) == 2 and list(qbed.store().cells()) == []
    monkeypatch.setenv("QBED_STORE", "off")
    with pytest.raises(QbedError, match="there is no store"):
        qbed.store()


def test_what_is_not_used_is_not_loaded() -> None:
    script = (
        "import sys, qbed; assert not {'qbed.api', 'pyarrow', 'duckdb'} & set(sys.modules); print(len(dir(qbed)) > 8)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        _ = qbed.runn
