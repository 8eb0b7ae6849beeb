# SPDX-License-Identifier: Apache-2.0
"""A crash of the Docker engine during a run. The test uses a separate engine to spare other containers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from qbed.substrates.containers.images import ROLES, images

from qbed_testing.container_labs import docker, environment, leftovers, qbed, write_lab

CAMPAIGN = """\
question: Which results remain when the engine dies?
axes: {seed: [1, 2]}
"""


class PrivateEngine:
    """A second Docker engine with separate folders, containerd and network namespace.

    In the machine's network namespace it would remove the bridge of the machine's engine.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix://{folder}/docker.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        for stale in ("pid", "exec/containerd/containerd.pid"):  # of the engine that was killed
            (self.folder / stale).unlink(missing_ok=True)
        command = ["unshare", "--net", "dockerd", "--host", self.address, "--iptables=false", "--ip-masq=false"]
        command += ["--pidfile", f"{self.folder}/pid", "--data-root", f"{self.folder}/data"]
        command += ["--exec-root", f"{self.folder}/exec", "--containerd-namespace", "qbed-test"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 60
        while not self.answers():
            assert time.monotonic() < deadline and self.process.poll() is None, (self.folder / "log").read_text()[
                -2000:
            ]
            time.sleep(0.2)

    def answers(self) -> bool:
        command = ["docker", "--host", self.address, "version"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def crash(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stop the engine, and remove its processes, mounts and files."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        if self.process is not None:
            self.crash()
        subprocess.run(["pkill", "-KILL", "-f", str(self.folder)], check=False)  # containerd and its shims
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if line.split()[1].startswith(str(self.folder)):
                subprocess.run(["umount", "--lazy", line.split()[1]], check=False)
        shutil.rmtree(self.folder)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateEngine]:
    names = images(ROLES.values(), build=False)
    folder = Path(tempfile.mkdtemp(prefix="qbed-"))  # sockets' paths are short
    private = PrivateEngine(folder)
    try:
        private.start()
        saved = subprocess.Popen(["docker", "save", *names.values()], stdout=subprocess.PIPE)
        subprocess.run(
            ["docker", "--host", private.address, "load"], stdin=saved.stdout, check=True, capture_output=True
        )
        assert saved.wait() == 0
        monkeypatch.setenv("DOCKER_HOST", private.address)
        monkeypatch.setenv("QBED_IMAGES", ",".join(f"{role}={name}" for role, name in names.items()))
        yield private
        if not private.answers():
            private.start()
        qbed(tmp_path, "down", "--all")
    finally:
        private.stop()


def test_a_crash_of_the_engine_loses_no_result_and_leaves_no_container(engine: PrivateEngine, tmp_path: Path) -> None:
    lab = write_lab(tmp_path, "qbed-t-crash")
    (lab / "campaign.yml").write_text(CAMPAIGN)
    arguments = ["run", str(lab), "--on", "containerlab", "--dilate", "20", "--out", "out", "--no-images"]
    with subprocess.Popen(
        [sys.executable, "-m", "qbed", *arguments],
        cwd=tmp_path,
        env=environment(tmp_path),
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        deadline = time.monotonic() + 90
        first = tmp_path / "out/cells/000000/cell.json"
        while not (first.exists() and "Up" in docker("ps", "--format", "{{.Status}}")):
            assert time.monotonic() < deadline and run.poll() is None, run.stderr and run.stderr.read()
            time.sleep(0.1)
        engine.crash()
        assert run.stderr is not None
        stderr = run.stderr.read()
        assert run.wait(120) == 1, stderr
    assert "Docker" in stderr and "Traceback" not in stderr, stderr
    kept = first.read_bytes()
    assert json.loads(kept)["status"] == "complete"

    done = qbed(tmp_path, "down", "--all")
    assert done.returncode == 1 and "Docker" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert "qbed-t-crash" in qbed(tmp_path, "ps").stdout  # the record is kept until the engine runs again

    engine.start()
    done = qbed(tmp_path, "down", "--all")
    assert done.returncode == 0, done.stderr
    assert leftovers("qbed-t-crash", tmp_path) == []
    done = qbed(tmp_path, *arguments)
    assert done.returncode == 0 and "1 cells are finished already" in done.stderr, done.stderr
    assert first.read_bytes() == kept
    assert leftovers("qbed-t-crash", tmp_path) == []
