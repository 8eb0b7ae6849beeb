# SPDX-License-Identifier: Apache-2.0
"""Sources that changed after the set-up are noticed, by a scratch checkout with the real `tools/sources`."""

import fcntl
import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from qbed.substrates import rebuild
from qbed.substrates.build_lock import build_lock
from qbed.substrates.rebuild import build_changed, changed_sources
from qbed.substrates.toolchain import ToolchainError

ROOT = Path(__file__).parents[3]
ECN = Path("schemes/ecn/kernel/sch_ecn.c")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's sources, and a record of them as `make setup` leaves it."""
    root, place = tmp_path / "checkout", tmp_path / "setup"
    for name in ("kernel", "schemes", "congestion", "crates"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("target", "*.o", "__pycache__"))
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy2(ROOT / name, root / name)
    (root / "tools").mkdir()
    shutil.copy2(ROOT / "tools" / "sources", root / "tools")
    place.mkdir()
    command: list[str | Path] = [root / "tools" / "sources", "--record"]
    (place / "sources").write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    monkeypatch.delenv("QBED_TOOLCHAIN", raising=False)
    monkeypatch.setattr(rebuild, "checkout", lambda: root)
    monkeypatch.setattr(rebuild, "setup_folder", lambda: place)
    return root


def test_two_checkouts_share_a_cache_and_each_gets_its_crate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources of one age, the only property that cargo compares."""
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))

    def run(name: str) -> str:
        command: list[str | Path] = [tmp_path / name / "tools" / "cargo", "run", "--quiet", "--offline"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    for name in ("one", "other"):
        checkout = tmp_path / name
        (checkout / "tools").mkdir(parents=True)
        for tool in ("cargo", "rustc"):
            shutil.copy2(ROOT / "tools" / tool, checkout / "tools")
        (checkout / "src").mkdir()
        (checkout / "Cargo.toml").write_text('[package]\nname = "twin"\nedition = "2021"\n\n[workspace]\n')
        (checkout / "src" / "main.rs").write_text(f'fn main() {{ println!("{name}") }}\n')
        for file in (checkout / "Cargo.toml", checkout / "src" / "main.rs"):
            os.utime(file, (1_000_000_000, 1_000_000_000))
    assert [run(name) for name in ("one", "other", "one")] == ["one\n", "other\n", "one\n"]


def set_up(scratch: Path, script: str) -> None:
    tool = scratch / "tools" / "setup"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def test_unchanged_sources_are_only_looked_at(scratch: Path) -> None:
    (scratch / "tools" / "sources").unlink()  # it is not read
    assert changed_sources() == []


@pytest.mark.parametrize(
    "name",
    [
        "schemes/ecn/kernel/sch_ecn.c",
        "kernel/modules/qlink/datapath.c",
        "kernel/config.fragment",
        "crates/agent/src/main.rs",
    ],
)
def test_a_change_is_noticed(scratch: Path, name: str) -> None:
    with (scratch / name).open("a") as file:
        file.write("/* another line */\n")
    assert changed_sources() == [name]


def test_a_change_of_the_same_size_is_noticed(scratch: Path) -> None:
    text = (scratch / ECN).read_text()
    (scratch / ECN).write_text(text.replace("Copyright", "copyright").replace("static", "STATIC", 1))
    assert changed_sources() == [str(ECN)]


def test_new_and_lost_sources_are_noticed(scratch: Path) -> None:
    (scratch / "schemes" / "mine" / "kernel").mkdir(parents=True)
    (scratch / "schemes" / "mine" / "kernel" / "sch_mine.c").write_text("/* mine */\n")
    (scratch / "crates" / "agent" / "src" / "transport" / "cbr.rs").unlink()
    (scratch / "schemes" / "README.md").write_text("no source\n")
    assert changed_sources() == ["crates/agent/src/transport/cbr.rs", "schemes/mine/kernel/sch_mine.c"]


def test_the_same_content_at_another_time_is_no_change(scratch: Path) -> None:
    os.utime(scratch / ECN)
    (scratch / "schemes" / ".swap").touch()
    (scratch / "schemes" / "ecn" / "kernel" / ".sch_ecn.c.swp").touch()
    assert changed_sources() == []
    (scratch / "tools" / "sources").unlink()
    assert changed_sources() == []  # and the record has the new times


@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "no-text", "old"])
def test_a_damaged_record_hides_no_change(scratch: Path, damage: str) -> None:
    record = scratch.parent / "setup" / "sources"
    content = record.read_bytes()
    place = content.index(f" {ECN}\n".encode())
    lines = content[: content.index(b"# sha256")]
    damaged = {
        "cut": content[: place + 1],
        "empty": b"",
        "flip": content[: place + 1] + b"t" + content[place + 2 :],
        "no-text": content[: place + 1] + b"\xff" + content[place + 2 :],
        "old": lines,
    }
    (scratch / ECN).write_text("")
    record.write_bytes(damaged[damage])
    assert str(ECN) in changed_sources()


def test_a_record_without_a_checksum_gets_one(scratch: Path) -> None:
    record = scratch.parent / "setup" / "sources"
    content = record.read_bytes()
    record.write_bytes(content[: content.index(b"# sha256")])
    assert changed_sources() == [] and record.read_bytes() == content


def test_a_record_that_is_no_file_is_named(scratch: Path) -> None:
    record = scratch.parent / "setup" / "sources"
    record.unlink()
    record.mkdir()
    with pytest.raises(ToolchainError, match=r"sources cannot be read: it is a folder; run `make setup`$"):
        changed_sources()


def test_what_was_built_elsewhere_has_nothing_to_compare(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (scratch / ECN).write_text("")
    assert changed_sources() == [str(ECN)]
    monkeypatch.setenv("QBED_TOOLCHAIN", "/somewhere")
    assert changed_sources() == []
    monkeypatch.delenv("QBED_TOOLCHAIN")
    (scratch.parent / "setup" / "sources").unlink()
    assert changed_sources() == []


def test_it_is_built_again_once(scratch: Path) -> None:
    (scratch / ECN).write_text("")
    record = scratch.parent / "setup" / "sources"
    set_up(scratch, f'[ "$*" = --build ] && echo x >>built && "$(dirname "$0")/sources" --record >{record}')
    messages: list[str] = []
    checkout_folder = Path.cwd()
    os.chdir(scratch)
    try:
        build_changed(messages.append)
        build_changed(messages.append)
    finally:
        os.chdir(checkout_folder)
    assert messages == ["schemes/ecn/kernel/sch_ecn.c changed after the set-up: building again"]
    assert (scratch / "built").read_text() == "x\n"


def test_what_cannot_be_built_is_refused(scratch: Path) -> None:
    (scratch / ECN).write_text("")
    set_up(scratch, "exit 1")
    with pytest.raises(
        ToolchainError, match=r"^schemes/ecn/kernel/sch_ecn.c changed after the set-up, .*: run `make setup`"
    ):
        build_changed(lambda _: None)


def test_a_process_that_waits_for_a_build_says_so_at_once(scratch: Path) -> None:
    (scratch / ECN).write_text("")
    record = scratch.parent / "setup" / "sources"
    set_up(scratch, f'"$(dirname "$0")/sources" --record >{record}')
    messages: list[str] = []
    with ExitStack() as other:
        # A lock belongs to a descriptor, so this process can be the other one, too.
        other.enter_context(build_lock(record.with_name("building"), "building the agent", pytest.fail))

        def report(text: str) -> None:
            messages.append(text)
            other.close()

        build_changed(report)
    waiting, building = messages
    expected = rf"waiting for process {os.getpid()}, which is building the agent since \d\d:\d\d:\d\d"
    assert re.fullmatch(expected, waiting), waiting
    assert building == "schemes/ecn/kernel/sch_ecn.c changed after the set-up: building again"


def test_a_script_that_waits_for_a_build_says_so_at_once(tmp_path: Path) -> None:
    script = f'. {ROOT}/tools/build-lock && build_lock {tmp_path}/lock "building $0" && echo locked && read -r _'

    def start(name: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(["bash", "-euc", script, name], stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    with start("one") as one:
        assert one.stdout is not None and one.stdout.readline() == "locked\n"
        with start("two") as two:
            assert two.stderr is not None
            expected = rf"waiting for process {one.pid}, which is building one since \d\d:\d\d:\d\d\n"
            assert re.fullmatch(expected, two.stderr.readline())
            assert one.communicate("\n", timeout=60) == ("", "") and two.communicate("\n", timeout=60)[0] == "locked\n"
    assert (tmp_path / "lock").read_text().startswith(f"{two.pid} ")


def test_an_owner_that_has_not_written_its_line_is_unknown(tmp_path: Path) -> None:
    messages: list[str] = []
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def report(text: str) -> None:
            messages.append(text)
            other.close()

        with build_lock(tmp_path / "lock", "building", report):
            pass
    assert messages == [f"waiting for another process, which has locked {tmp_path / 'lock'}"]
