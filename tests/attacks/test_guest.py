# SPDX-License-Identifier: Apache-2.0
"""Root in a guest, and even code in its kernel, gets no file of the user's that the run did not give it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from qbed.base.locations import checkout
from qbed.substrates import CellError, Limits
from qbed.substrates.toolchain import Toolchain, find_toolchain
from qbed.substrates.virtual.cell import VirtualCell
from qbed.substrates.virtual.confinement import (
    FILTERED,
    SIGNALS,
    landlock_version,
    public_settings,
)
from qbed.substrates.virtual.guest import boot
from qbed.substrates.virtual.quota import EVERY_S, Quota

from cells import Live, plan_of

LAB = """
name: attack
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 10 us}}
duration: 10 ms
"""
HOSTILE = Path(__file__).parent / "hostile"
CALLS = {"socket", "chmod", "memory", "uring"}
"""What only series that confine their system calls refuse."""

needs_landlock = pytest.mark.skipif(not landlock_version(), reason="this machine's kernel has no Landlock")


@contextmanager
def lab(folder: Path) -> Iterator[Live]:
    """A lab that is up, with its cell in `folder`."""
    plan = plan_of(folder, LAB)
    with boot(find_toolchain(), folder, plan, "lab") as guest:
        live = Live(guest)
        live.ready()
        yield live


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the user's, beside the cells' folders."""
    path = tmp_path_factory.mktemp("home") / "secret"
    path.write_text("mine\n")
    return path


def shell(live: Live, script: str) -> tuple[int, str]:
    return live.run("h1", "sh", "-c", script)


def test_there_is_one_mount_that_can_be_written_to(tmp_path: Path) -> None:
    with lab(tmp_path) as live:
        assert shell(live, "echo fine >/mnt/own && cat /mnt/own") == (0, "fine\n")
        for source in (".", "./", "./.", "guest", f"{tmp_path}"):
            status, output = shell(live, f"mkdir -p /tmp/m && mount -t hostfs none /tmp/m -o {source}")
            if not status:
                status, output = shell(live, "echo x >/tmp/m/evil; mount -o remount,rw /tmp/m; echo x >/tmp/m/evil")
                assert status and "Read-only" in output, (source, output)
                shell(live, "umount /tmp/m")
        status, _ = shell(live, "umount -l /mnt && mount -t hostfs none /mnt -o .")
        assert status, "mounted for writing once more"
    assert not list(tmp_path.rglob("evil"))


def test_a_folder_swapped_for_a_link_leads_nowhere(tmp_path: Path, secret: Path) -> None:
    """A link that somebody else puts there, below a folder that the guest still has open."""
    target = secret.parent
    with lab(tmp_path) as live:
        assert shell(live, "mkdir /mnt/d; (cd /mnt/d; sleep 0.5; echo x >evil; cat secret; rm secret) &")[0] == 0
        (tmp_path / "d").rmdir()
        (tmp_path / "d").symlink_to(target)
        _, output = shell(live, "sleep 1; cd /mnt; ls d/; cat d/secret; echo x >d/evil; mkdir d/more; ls -l d")
    assert "mine" not in output
    assert sorted(path.name for path in target.iterdir()) == ["secret"] and secret.read_text() == "mine\n"


@pytest.mark.parametrize(
    "attack",
    [
        "ln -s /etc/passwd /mnt/lure",
        "mkfifo /mnt/fifo",
        "mknod /mnt/device c 1 3",
        "mv /mnt/guest/qbed-agent /mnt/out/",
    ],
)
def test_only_files_and_folders_are_made(tmp_path: Path, attack: str) -> None:
    """What reads a guest's results would follow a link, and wait at a FIFO."""
    with lab(tmp_path) as live:
        before = set(tmp_path.rglob("*"))
        assert shell(live, attack)[0] != 0
        assert shell(live, "touch /mnt/program && chmod 6755 /mnt/program")[0] == 0
        assert set(tmp_path.rglob("*")) - before == {tmp_path / "program"}
    assert (tmp_path / "program").stat().st_mode & 0o7777 == 0o755


def test_what_multiplies_without_end_stays_in_the_lab(tmp_path: Path) -> None:
    with lab(tmp_path) as live:
        live.begin("h1", "bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 100")
        group, most, until = os.getpgid(live.pid), 0, time.monotonic() + 60
        while most < 900 and time.monotonic() < until:
            time.sleep(0.2)
            most = max(most, len(_processes(group)))
        time.sleep(2)
        assert 900 <= max(most, len(_processes(group))) < 1100, "the bomb did not go off, or too far"
    until = time.monotonic() + 30
    while _processes(group) and time.monotonic() < until:
        time.sleep(0.2)
    assert not _processes(group)


def _processes(group: int) -> list[int]:
    """The processes of a group that live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its, *_ = path.read_text().rpartition(")")[2].split()
            if int(its) == group and state != "Z":
                found.append(int(path.parent.name))
    return found


def test_no_module_is_loaded_once_the_lab_is_up(tmp_path: Path) -> None:
    with lab(tmp_path) as live:
        assert shell(live, "echo 0 >/proc/sys/kernel/modules_disabled")[0] != 0
        load = "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(313, file.fileno(), b'', 0)"
        script = f"file = open('/mnt/guest/modules/qlink.ko'); {load}; print(ctypes.get_errno())"
        assert live.run("h1", "python3", "-c", script) == (0, f"{errno.EPERM}\n")
        assert shell(live, "cat /proc/sys/kernel/modules_disabled") == (0, "1\n")


@needs_landlock
def test_root_reads_what_the_lab_sees_and_nothing_else(tmp_path: Path, secret: Path) -> None:
    with lab(tmp_path) as live:
        shell(live, "mkdir /tmp/m && mount -t hostfs none /tmp/m")
        for path in (secret, "/etc/shadow", Path.home() / ".bashrc", "/proc/1/environ"):
            status, output = shell(live, f"cat /tmp/m{path}")
            assert status and ("ermission denied" in output or "No such file" in output), (path, output)
        assert shell(live, f"ls /tmp/m{secret.parent}")[0] != 0
        assert shell(live, "cat /etc/passwd /usr/bin/env >/dev/null && ls /usr/bin >/dev/null") == (0, "")


def test_what_everybody_may_read_of_etc() -> None:
    given = public_settings()
    assert Path("/etc/passwd") in given or Path("/etc") in given
    assert not {"/etc", "/etc/shadow", "/etc/ssl", "/etc/ssl/private"} & {str(path) for path in given}
    assert all(path.stat().st_mode & 0o004 for path in given)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, secret: Path) -> Toolchain:
    """This checkout's toolchain with a module that is against us."""
    toolchain, root = find_toolchain(), checkout()
    assert root is not None
    work = tmp_path_factory.mktemp("module")
    for source in HOSTILE.iterdir():
        shutil.copyfile(source, work / source.name)
    target = {"SECRET": secret, "OUTSIDE": secret.parent, "ENVIRONMENT": f"/proc/{os.getpid()}/environ"}
    lines = [f'#define {name} "{value}"' for name, value in target.items()]
    (work / "target.h").write_text("\n".join([*lines, f"#define PROCESS {os.getpid()}", ""]))
    environment = os.environ | {"QBED_KERNEL": toolchain.manifest.kernel_series}
    said = subprocess.run([root / "kernel/build.sh"], env=environment, capture_output=True, text=True, check=True)
    make = ["make", "-C", f"{said.stdout.split()[0]}/build", "ARCH=um", f"M={work}", "modules"]
    made = subprocess.run(make, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    folder = tmp_path_factory.mktemp("toolchain")
    shutil.copytree(toolchain.folder, folder, symlinks=True, dirs_exist_ok=True)
    (folder / "modules" / "hostile.ko").unlink(missing_ok=True)
    shutil.copyfile(work / "hostile.ko", folder / "modules" / "hostile.ko")
    return Toolchain(folder, toolchain.manifest)


@needs_landlock
def test_a_module_gets_nothing_of_the_users(hostile: Toolchain, secret: Path, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, LAB)
    plan = plan.model_copy(update={"modules": [*plan.modules, "hostile"]})
    (tmp_path / "plan.json").write_text(plan.dumps())
    VirtualCell(hostile, tmp_path, plan).run(Limits(60, 30), lambda _: None)
    report = (tmp_path / "out" / "report").read_text().splitlines()
    got = {what: int(result) for what, result in (line.split() for line in report)}
    assert len(got) == 21, got
    for what in () if hostile.manifest.kernel_series in FILTERED else CALLS:
        del got[what]
    expected = {"own", "program"} | ({"signal"} if landlock_version() < SIGNALS else set())
    assert {what for what, result in got.items() if result >= 0} == expected, got
    denied = {-errno.EACCES, -errno.EPERM, -errno.EXDEV, -errno.ENOSYS}
    assert {what: got[what] for what in got if what not in expected and got[what] not in denied} == {}
    assert secret.read_text() == "mine\n" and [path.name for path in secret.parent.iterdir()] == ["secret"]


def test_what_a_cell_may_write_is_limited(tmp_path: Path) -> None:
    with lab(tmp_path) as live:
        quota = Quota(tmp_path, 2_000_000)
        shell(live, "head -c 3000000 /dev/zero >/mnt/large")
        assert quota.excess() is None, "it looks about once a second"
        time.sleep(EVERY_S)
        assert quota.excess() == "the guest wrote more than the 2 MB that it may (--cell-space)"
        shell(live, "mkdir /mnt/many; cd /mnt/many; for i in $(seq 200); do : >$i; done")
        assert Quota(tmp_path, 1 << 40, files=200, every_s=0).excess() == "the guest wrote more than 200 files"


def test_a_cell_that_writes_too_much_ends(tmp_path: Path) -> None:
    load = "workload: [{flows: {from: h1, to: h2, size: unlimited}}]\n"
    plan = plan_of(tmp_path, LAB.replace("10 ms", "100 s") + load)
    with pytest.raises(CellError, match="the guest wrote more than the 10 KB that it may"):
        VirtualCell(find_toolchain(), tmp_path, plan).run(Limits(60, 30, space_bytes=10_000), lambda _: None)
