# SPDX-License-Identifier: Apache-2.0
"""Confinement of a guest: root in it and code in its kernel reach only files that the run shares."""

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
from qbed.substrates import CellError, Limits, toolchain_files
from qbed.substrates.toolchain import Toolchain, find_toolchain, toolchain_in
from qbed.substrates.virtual.cell import VirtualCell
from qbed.substrates.virtual.confinement import (
    FILTERED,
    SIGNALS,
    landlock_version,
    public_settings,
)
from qbed.substrates.virtual.guest import boot
from qbed.substrates.virtual.quota import EVERY_S, Quota
from qbed.testing import write_plan

from qbed_testing.running import RunningLab

LAB = """
name: attack
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 10 us}}
duration: 10 ms
"""
HOSTILE = Path(__file__).parent / "hostile"
CALLS = {"socket", "chmod", "memory", "uring"}
"""Attempts that only kernel series with a system call filter (`FILTERED`) refuse."""

needs_landlock = pytest.mark.skipif(not landlock_version(), reason="this machine's kernel has no Landlock")


@contextmanager
def running(folder: Path) -> Iterator[RunningLab]:
    """A lab that is up, with its cell in `folder`."""
    plan = write_plan(folder, LAB)
    with boot(find_toolchain(), folder, plan, "lab") as guest:
        lab = RunningLab(guest)
        lab.wait_until_ready()
        yield lab


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the user outside the cells' folders."""
    path = tmp_path_factory.mktemp("home") / "secret"
    path.write_text("mine\n")
    return path


def shell(lab: RunningLab, script: str) -> tuple[int, str]:
    return lab.run("h1", "sh", "-c", script)


def test_a_guest_has_one_writable_mount(tmp_path: Path) -> None:
    with running(tmp_path) as lab:
        assert shell(lab, "echo fine >/mnt/file && cat /mnt/file") == (0, "fine\n")
        for source in (".", "./", "./.", "guest", f"{tmp_path}"):
            status, output = shell(lab, f"mkdir -p /tmp/m && mount -t hostfs none /tmp/m -o {source}")
            if not status:
                status, output = shell(lab, "echo x >/tmp/m/evil; mount -o remount,rw /tmp/m; echo x >/tmp/m/evil")
                assert status and "Read-only" in output, (source, output)
                shell(lab, "umount /tmp/m")
        status, _ = shell(lab, "umount -l /mnt && mount -t hostfs none /mnt -o .")
        assert status, "a second writable mount"
    assert not list(tmp_path.rglob("evil"))


def test_a_folder_replaced_by_a_symlink_is_not_followed(tmp_path: Path, secret: Path) -> None:
    """Another process replaces a folder by a symlink while the guest has the folder open."""
    target = secret.parent
    with running(tmp_path) as lab:
        assert shell(lab, "mkdir /mnt/d; (cd /mnt/d; sleep 0.5; echo x >evil; cat secret; rm secret) &")[0] == 0
        (tmp_path / "d").rmdir()
        (tmp_path / "d").symlink_to(target)
        _, output = shell(lab, "sleep 1; cd /mnt; ls d/; cat d/secret; echo x >d/evil; mkdir d/more; ls -l d")
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
def test_a_guest_makes_only_files_and_folders(tmp_path: Path, attack: str) -> None:
    """A reader of the guest's results would follow a symlink, and block at a FIFO."""
    with running(tmp_path) as lab:
        before = set(tmp_path.rglob("*"))
        assert shell(lab, attack)[0] != 0
        assert shell(lab, "touch /mnt/program && chmod 6755 /mnt/program")[0] == 0
        assert set(tmp_path.rglob("*")) - before == {tmp_path / "program"}
    assert (tmp_path / "program").stat().st_mode & 0o7777 == 0o755


def test_a_fork_bomb_stays_in_the_guest(tmp_path: Path) -> None:
    with running(tmp_path) as lab:
        lab.start("h1", "bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 100")
        group, count, deadline = os.getpgid(lab.pid), 0, time.monotonic() + 60
        while count < 900 and time.monotonic() < deadline:
            time.sleep(0.2)
            count = max(count, len(_processes(group)))
        time.sleep(2)
        assert 900 <= max(count, len(_processes(group))) < 1100, (
            "too few processes for a fork bomb, or more than the limit"
        )
    deadline = time.monotonic() + 30
    while _processes(group) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not _processes(group)


def _processes(group: int) -> list[int]:
    """The processes of a group that are no zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, process_group, *_ = path.read_text().rpartition(")")[2].split()
            if int(process_group) == group and state != "Z":
                found.append(int(path.parent.name))
    return found


def test_a_running_lab_loads_no_module(tmp_path: Path) -> None:
    with running(tmp_path) as lab:
        assert shell(lab, "echo 0 >/proc/sys/kernel/modules_disabled")[0] != 0
        load = "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(313, file.fileno(), b'', 0)"
        script = f"file = open('/mnt/guest/modules/qlink.ko'); {load}; print(ctypes.get_errno())"
        assert lab.run("h1", "python3", "-c", script) == (0, f"{errno.EPERM}\n")
        assert shell(lab, "cat /proc/sys/kernel/modules_disabled") == (0, "1\n")


@needs_landlock
def test_root_in_a_guest_reads_only_the_labs_files(tmp_path: Path, secret: Path) -> None:
    with running(tmp_path) as lab:
        shell(lab, "mkdir /tmp/m && mount -t hostfs none /tmp/m")
        for path in (secret, "/etc/shadow", Path.home() / ".bashrc", "/proc/1/environ"):
            status, output = shell(lab, f"cat /tmp/m{path}")
            assert status and ("ermission denied" in output or "No such file" in output), (path, output)
        assert shell(lab, f"ls /tmp/m{secret.parent}")[0] != 0
        assert shell(lab, "cat /etc/passwd /usr/bin/env >/dev/null && ls /usr/bin >/dev/null") == (0, "")


def test_public_settings_are_world_readable_files() -> None:
    settings = public_settings()
    assert Path("/etc/passwd") in settings or Path("/etc") in settings
    assert not {"/etc", "/etc/shadow", "/etc/ssl", "/etc/ssl/private"} & {str(path) for path in settings}
    assert all(path.stat().st_mode & 0o004 for path in settings)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, secret: Path) -> Toolchain:
    """The toolchain with a hostile kernel module."""
    toolchain, root = find_toolchain(), checkout()
    assert root is not None
    work = tmp_path_factory.mktemp("module")
    for source in HOSTILE.iterdir():
        shutil.copyfile(source, work / source.name)
    target = {"SECRET": secret, "OUTSIDE": secret.parent, "ENVIRONMENT": f"/proc/{os.getpid()}/environ"}
    lines = [f'#define {name} "{value}"' for name, value in target.items()]
    (work / "target.h").write_text("\n".join([*lines, f"#define PROCESS {os.getpid()}", ""]))
    environment = os.environ | {"QBED_KERNEL": toolchain.manifest.kernel_series}
    build = subprocess.run([root / "kernel/build.sh"], env=environment, capture_output=True, text=True, check=True)
    make = ["make", "-C", f"{build.stdout.split()[0]}/build", "ARCH=um", f"M={work}", "modules"]
    made = subprocess.run(make, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    folder = tmp_path_factory.mktemp("toolchain")
    shutil.copytree(toolchain.folder, folder, symlinks=True, dirs_exist_ok=True)
    (folder / "modules" / "hostile.ko").unlink(missing_ok=True)
    shutil.copyfile(work / "hostile.ko", folder / "modules" / "hostile.ko")
    toolchain_files.record(folder)
    return toolchain_in(folder)


@needs_landlock
def test_a_hostile_module_reaches_no_file_or_process_of_the_user(
    hostile: Toolchain, secret: Path, tmp_path: Path
) -> None:
    plan = write_plan(tmp_path, LAB)
    plan = plan.model_copy(update={"modules": [*plan.modules, "hostile"]})
    (tmp_path / "plan.json").write_text(plan.dumps())
    VirtualCell(hostile, tmp_path, plan).run(Limits(60, 30), lambda _: None)
    report = (tmp_path / "out" / "report").read_text().splitlines()
    results = {what: int(result) for what, result in (line.split() for line in report)}
    assert len(results) == 21, results
    for what in () if hostile.manifest.kernel_series in FILTERED else CALLS:
        del results[what]
    expected = {"plan", "program"} | ({"signal"} if landlock_version() < SIGNALS else set())
    assert {what for what, result in results.items() if result >= 0} == expected, results
    denied = {-errno.EACCES, -errno.EPERM, -errno.EXDEV, -errno.ENOSYS}
    assert {what: results[what] for what in results if what not in expected and results[what] not in denied} == {}
    assert secret.read_text() == "mine\n" and [path.name for path in secret.parent.iterdir()] == ["secret"]


def test_the_quota_limits_bytes_and_files(tmp_path: Path) -> None:
    with running(tmp_path) as lab:
        quota = Quota(tmp_path, 2_000_000)
        shell(lab, "head -c 3000000 /dev/zero >/mnt/large")
        assert quota.excess() is None, "the quota is checked about once a second"
        time.sleep(EVERY_S)
        assert quota.excess() == "the guest wrote more than the 2 MB that it may (--cell-space)"
        shell(lab, "mkdir /mnt/many; cd /mnt/many; for i in $(seq 200); do : >$i; done")
        assert Quota(tmp_path, 1 << 40, files=200, every_s=0).excess() == "the guest wrote more than 200 files"


def test_a_cell_over_its_quota_fails(tmp_path: Path) -> None:
    load = "workload: [{flows: {from: h1, to: h2, size: unlimited}}]\n"
    plan = write_plan(tmp_path, LAB.replace("10 ms", "100 s") + load)
    with pytest.raises(CellError, match="the guest wrote more than the 10 KB that it may"):
        VirtualCell(find_toolchain(), tmp_path, plan).run(Limits(60, 30, space_bytes=10_000), lambda _: None)
