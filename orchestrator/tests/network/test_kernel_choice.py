# SPDX-License-Identifier: Apache-2.0
"""The field `kernel`: a series, or a folder of patches by the hash of their content."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_labs import plan_of, write_patches

from qbed.base.errors import LabError
from qbed.network.kernels import KernelFolderError, patched_kernel
from qbed.plan.model import Plan


def message_of(folder: Path, kernel: str) -> str:
    with pytest.raises(LabError) as caught:
        plan_of(folder, kernel)
    (message,) = caught.value.messages
    return message


@pytest.fixture
def patches(tmp_path: Path) -> Path:
    return write_patches(tmp_path)


@pytest.mark.parametrize("written", ["7.2", '"7.2"'])
def test_a_series_may_be_written_as_a_number(tmp_path: Path, written: str) -> None:
    plan = plan_of(tmp_path, written)
    assert plan.kernel == "7.2" and '"kernel": "7.2"' in plan.dumps()


def test_a_plan_names_its_patches_by_their_content_and_not_by_their_place(tmp_path: Path, patches: Path) -> None:
    plan = plan_of(tmp_path, "./my-patches")
    assert plan.kernel is not None and plan.kernel.startswith("6.12+")
    assert plan.kernel_folder == str(patches)
    assert str(tmp_path) not in plan.dumps() and Plan.loads(plan.dumps()).dumps() == plan.dumps()
    patches.rename(tmp_path / "renamed")
    assert plan_of(tmp_path, "./renamed").dumps() == plan.dumps()


def test_the_name_of_a_kernel_covers_patches_and_options_and_nothing_else(patches: Path) -> None:
    names = [patched_kernel(patches).name]
    (patches / "README").write_text("not applied")
    (patches / ".0001-one.patch").write_text("an editor's")
    assert patched_kernel(patches).name == names[0]
    (patches / "0001-one.patch").write_text("another")
    names.append(patched_kernel(patches).name)
    (patches / "0001-one.patch").rename(patches / "0002-one.patch")
    names.append(patched_kernel(patches).name)
    (patches / "config.fragment").write_text("CONFIG_TCP_CONG_NV=y\n")
    names.append(patched_kernel(patches).name)
    assert len(set(names)) == 4


def test_a_folder_with_the_name_of_a_series_is_for_that_series(tmp_path: Path, patches: Path) -> None:
    patches.rename(tmp_path / "7.2")
    assert patched_kernel(tmp_path / "7.2").name.startswith("7.2+")


def test_a_source_tree_is_a_kernel_of_its_makefiles_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    tree = tmp_path / "my-tree"
    (tree / "arch" / "um").mkdir(parents=True)
    (tree / "Kconfig").touch()
    (tree / "Makefile").write_text("VERSION = 7\nPATCHLEVEL = 2\nSUBLEVEL = 9\n")
    first = plan_of(tmp_path, "./my-tree")
    assert first.kernel is not None and first.kernel.startswith("7.2+")
    (tree / "Kconfig").write_text("another")
    assert plan_of(tmp_path, "./my-tree").kernel != first.kernel
    (tree / "Makefile").write_text("VERSION = 5\nPATCHLEVEL = 4\n")
    assert message_of(tmp_path, "./my-tree").endswith(
        "of Linux 5.4; expected one of 6.12, 7.2, which qbed has patches for"
    )


def test_an_unknown_kernel_has_one_message_with_its_place(tmp_path: Path) -> None:
    assert message_of(tmp_path, "7.3").endswith(
        "lab.yml:5:9: kernel: there is no kernel series `7.3`; did you mean `7.2`?"
    )
    assert message_of(tmp_path, "my-patches").endswith(
        "kernel: expected a kernel series such as `6.12` or a folder such as `./my-patches`, got `my-patches`"
    )
    assert "./none is no folder" in message_of(tmp_path, "./none").replace(f"{tmp_path}/none", "./none")
    (tmp_path / "empty").mkdir()
    assert message_of(tmp_path, "./empty").endswith("empty has no *.patch file and is no source tree of Linux")


def test_patches_outside_of_the_labs_folder_are_not_read(tmp_path: Path, patches: Path) -> None:
    (tmp_path / "lab").mkdir()
    assert "leads out of the folder" in message_of(tmp_path / "lab", "../my-patches")
    (patches / "0002-link.patch").symlink_to("/etc/passwd")
    assert "leads out of the folder" in message_of(tmp_path, "./my-patches")
    with pytest.raises(KernelFolderError, match="leads out"):
        patched_kernel(patches)
