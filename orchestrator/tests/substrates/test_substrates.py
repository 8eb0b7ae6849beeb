# SPDX-License-Identifier: Apache-2.0
"""Discovery of substrates, broken substrates, and the toolchain of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qbed import substrates
from qbed.base.json_files import write_sealed
from qbed.live.samples import find, stream
from qbed.storage.checksums import cell_record
from qbed.storage.identity import RanOn, StoreError, ran_on
from qbed.substrates import SessionError, SubstrateError, names, substrate
from qbed.substrates.toolchain import Manifest, Toolchain
from qbed.substrates.virtual import substrate as virtual
from qbed.substrates.virtual.checks import TRIVIAL


def test_the_default_comes_first_and_a_wrong_name_gets_the_nearest() -> None:
    assert names() == ["virtual", "containerlab"]
    with pytest.raises(SubstrateError, match="no substrate virtul; did you mean `virtual`"):
        substrate("virtul")


def test_a_pace_is_one_of_three_names() -> None:
    assert [substrates.parse_pace(name) for name in ("fast", "real", "manual")] == list(substrates.PACES)
    with pytest.raises(ValueError, match="expected fast, real or manual, not rael; did you mean `real`"):
        substrates.parse_pace("rael")


def test_a_broken_substrate_does_not_affect_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "__init__.py").write_text('NAME = "broken"\n')
    (tmp_path / "broken" / "substrate.py").write_text("import no_such_module\n")
    monkeypatch.setattr(substrates, "__path__", [*substrates.__path__, str(tmp_path)])
    substrates._packages.cache_clear()
    try:
        assert [substrate.name for substrate in substrates.substrates()] == ["virtual", "containerlab"]
        with pytest.raises(SubstrateError, match=r"broken cannot be used: ModuleNotFoundError: .*no_such_module"):
            substrate("broken")
    finally:
        substrates._packages.cache_clear()


def test_a_run_keeps_the_toolchain_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([Toolchain(tmp_path / name, Manifest(), {}) for name in ("first", "second")])
    monkeypatch.setattr(virtual, "find_toolchain", lambda: next(found))
    substrate = virtual.VirtualSubstrate()
    assert substrate._tools is substrate._tools and substrate._tools.folder.name == "first"


@pytest.mark.parametrize(
    "value", ["null", "5", '"virtual"', '{"name": "virtual"}', '{"name": "x", "dilation": "much"}']
)
def test_a_run_folder_whose_substrate_is_none_is_damaged(tmp_path: Path, value: str) -> None:
    write_sealed(tmp_path / "campaign.json", {"substrate": json.loads(value)})
    with pytest.raises(StoreError, match="its substrate has no name and dilation"):
        ran_on(tmp_path)


def test_a_run_folder_names_its_substrate(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"it has no readable campaign\.json"):
        ran_on(tmp_path)
    write_sealed(tmp_path / "campaign.json", {"substrate": {"name": "virtual", "dilation": 1}})
    assert ran_on(tmp_path) == RanOn("virtual", 1)


def test_a_cell_whose_nodes_never_began_has_no_samples(tmp_path: Path) -> None:
    work = tmp_path / "run" / "cells" / "000000" / "work"
    work.mkdir(parents=True)
    write_sealed(tmp_path / "run" / "campaign.json", {"substrate": {"name": "containerlab", "dilation": 1}})
    (work / "plan.json").write_text(TRIVIAL.dumps())
    (work.parent / "cell.json").write_bytes(cell_record(work.parent, {"cell": 0}))
    with pytest.raises(SessionError, match="its nodes have not begun"):
        next(stream(find(str(tmp_path / "run")), follow=False))
