# SPDX-License-Identifier: Apache-2.0
"""Selection of tc's plugins: those of a toolchain are only for the tc that they were built for."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbed.substrates.user_modules import TC, tc_plugins

VERSION = b"tc utility, iproute2-6.1.0\n"


@pytest.fixture
def toolchain(tmp_path: Path) -> Path:
    (tmp_path / TC).mkdir()
    (tmp_path / TC / "version").write_bytes(VERSION)
    return tmp_path


def test_plugins_of_the_toolchain_are_for_one_tc(toolchain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBED_REPOSITORY", "")
    assert tc_plugins(toolchain, VERSION) == toolchain / TC
    assert tc_plugins(toolchain, b"tc utility, iproute2-6.15.0\n") is None


def test_a_wheel_without_a_compiler_has_no_plugins_for_another_tc(
    toolchain: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QBED_REPOSITORY", "")
    monkeypatch.setenv("PATH", str(toolchain))
    monkeypatch.setattr("qbed.substrates.user_modules.checkout", lambda: None)
    assert tc_plugins(toolchain, VERSION) == toolchain / TC
    assert tc_plugins(toolchain, b"another tc") is None
    assert capfd.readouterr() == ("", "")


def test_plugins_of_a_repository_that_cannot_be_built_are_reported(
    toolchain: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kbuild = toolchain / "repository/schemes/mine/kernel/Kbuild"
    kbuild.parent.mkdir(parents=True)
    kbuild.touch()
    (toolchain / "repository/qbed.toml").touch()
    monkeypatch.setenv("QBED_REPOSITORY", str(toolchain / "repository"))
    monkeypatch.setenv("CC", "no-compiler")
    assert tc_plugins(toolchain, VERSION) == toolchain / TC
    messages = capfd.readouterr().err
    assert "there is no no-compiler: install Debian's packages" in messages
    assert "no plugins for tc" in messages and "repository" in messages
