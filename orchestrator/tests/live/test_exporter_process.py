# SPDX-License-Identifier: Apache-2.0
"""Exporters beside a run: its end waits for them for a bounded time, and what they did not send is sent later."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from campaigns import LAB, fake_toolchain, wait_until, write_lab
from influx import Server, free_port, in_influx, in_parquet, served

from qbed.live.delivery_log import DeliveryLog, origin_of, sinks_of
from qbed.live.exporter import Delivery, deliver
from qbed.live.exporter_process import STOP_S, exporting
from qbed.live.flush_timeout import parse_flush_timeout
from qbed.live.sinks import SinkError
from qbed.live.sinks.address import Address
from qbed.live.sinks.ndjson import File

BYTES_PER_S = 40_000


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("influx")) as server:
        yield server


class SlowPath:
    """A TCP relay to a server that forwards `bytes_per_s` in the direction of the server."""

    def __init__(self, port: int, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._relay, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._relay, args=(server, client, False), daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket, slow: bool) -> None:
        try:
            while piece := source.recv(2048):
                if slow:
                    time.sleep(len(piece) / self.bytes_per_s)
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.close()


@contextmanager
def slow_path(server: Server) -> Iterator[SlowPath]:
    path = SlowPath(server.port, BYTES_PER_S)
    try:
        yield path
    finally:
        path.close()


def environment(folder: Path) -> dict[str, str]:
    tools = str(fake_toolchain(folder / "toolchain"))
    return os.environ | {"QBED_TOOLCHAIN": tools, "QBED_CACHE": str(folder / "cache"), "QBED_STORE": "off"}


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with points that no sink has: 100,000 samples."""
    folder = tmp_path_factory.mktemp("finished")
    lab = write_lab(folder / "lab", lab=LAB.replace("queues: 1 ms", "queues: 5 us"))
    command = [sys.executable, "-m", "qbed", "run", str(lab), "--profile", "quick", "--out", str(folder / "run")]
    subprocess.run([*command, "--no-images"], env=environment(folder), check=True, capture_output=True, timeout=120)
    return folder / "run"


def test_a_slow_server_does_not_hold_up_the_end_of_a_run_and_gets_the_rest_later(
    server: Server, tmp_path: Path
) -> None:
    """A run to InfluxDB at 40 kB/s ends in time, shows what it waits for, and `--send` completes the points."""
    server.sink("slow")
    lab = write_lab(tmp_path / "lab", lab=LAB.replace("queues: 1 ms", "queues: 5 us"))
    qbed, variables, out = [sys.executable, "-m", "qbed"], environment(tmp_path), str(tmp_path / "run")
    with slow_path(server) as path:
        sink = ["--influx", f"{path.url}/slow", "--flush-timeout", "3s"]
        command = [*qbed, "run", str(lab), "--profile", "quick", "--out", out, "--no-images"]
        process = subprocess.Popen([*command, *sink], env=variables, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        lines = [(time.monotonic(), line) for line in process.stderr]
        assert process.wait(60) == 0, lines
        waiting_at, waiting = next(timed for timed in lines if "telemetry: sending" in timed[1])
        ended_at, ended = next(timed for timed in lines if "NOT DELIVERED" in timed[1])
        assert waiting.startswith(f"telemetry: sending to {path.url}/slow for up to")
        assert ended_at - waiting_at < 3 + STOP_S + 1, lines
        assert "NOT DELIVERED: those of" in ended and "`qbed samples RUN --send` sends the rest" in ended
        partial, expected = in_influx(server, "slow"), in_parquet(Path(out))
        assert len(partial) < len(expected) and set(partial) <= set(expected)
        path.bytes_per_s = 1e9
        sent = subprocess.run([*qbed, "samples", out, "--send"], env=variables, capture_output=True, text=True)
        assert sent.returncode == 0, sent.stderr
        assert in_influx(server, "slow") == expected
        assert [row["claim"] for row in server.query("SELECT * FROM claim", "slow")] == ["all-complete"]
        again = subprocess.run([*qbed, "samples", out, "--send"], env=variables, capture_output=True, text=True)
        assert again.returncode == 0 and again.stdout + again.stderr == f"0 points to {path.url}/slow\n"


@pytest.mark.parametrize("ending", ["deadline", "Ctrl-C"])
def test_a_sink_that_never_answers_is_waited_for_in_bounds(run: Path, tmp_path: Path, ending: str) -> None:
    """The exporter is in a write that does not end, and is killed."""
    shutil.copytree(run, tmp_path / "run")
    deliveries: list[Delivery | str] = []
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        address = Address("influx", f"http://127.0.0.1:{hanging.getsockname()[1]}/x")
        flush_s = 2.0 if ending == "deadline" else 60.0
        with exporting(tmp_path / "run", [address], deliveries.append, flush_s=flush_s, flushing=lines.append):
            connection, _ = hanging.accept()
            begun = time.monotonic()
            if ending == "Ctrl-C":
                threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        took_s = time.monotonic() - begun
        connection.close()
    assert 1.9 < took_s < 3 + STOP_S + 3
    (delivery,) = deliveries
    assert isinstance(delivery, Delivery) and delivery.left == 2 and delivery.claims_left and delivery.points == 0
    assert lines and "2 cells left; Ctrl-C ends the wait" in lines[0]
    assert not [child for child in multiprocessing.active_children() if child.name == "qbed-exporter"]


def test_a_file_that_was_cut_off_has_each_point_once_after_the_rest_is_sent(run: Path, tmp_path: Path) -> None:
    """The exporter of a run is killed while it writes; `deliver` gives the same bytes as an undisturbed export."""
    copies = [tmp_path / "intact", tmp_path / "cut"]
    origin_of(run)  # the name of the run is in the points
    for copy in copies:
        shutil.copytree(run, copy)
    deliver(copies[0], File(tmp_path / "intact.ndjson"))
    cut = tmp_path / "cut.ndjson"
    with exporting(copies[1], [Address("ndjson", str(cut))], lambda _: None, flush_s=60):
        wait_until(lambda: cut.exists() and cut.stat().st_size > 1_000_000)
        for child in multiprocessing.active_children():
            child.kill()
    intact = results(tmp_path / "intact.ndjson")
    assert 0 < len(results(cut)) < len(intact)
    assert sinks_of(copies[1]) == [str(cut)]
    delivery = deliver(copies[1], Address.named(str(cut)).make())
    assert delivery.complete
    assert results(cut) == intact


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of a fixed size."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(file: Path) -> None:
    with file.open("ab", buffering=0) as ballast, suppress(OSError):
        while ballast.write(bytes(4096)):
            pass


def end_when_full(line: str) -> None:
    """Ctrl-C, once the exporter waits for room."""
    if "o space left on device" in line or "MB left" in line:
        raise KeyboardInterrupt


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")


@needs_root
@pytest.mark.parametrize("kind", ["influx", "ndjson"])
def test_a_full_spool_ends_a_run_with_what_was_not_delivered(
    server: Server, run: Path, tmp_path: Path, kind: str
) -> None:
    """The delivery log has room for some batches. The rest is sent when there is room: each point once."""
    origin_of(run)  # the name of the run is in the points
    shutil.copytree(run, tmp_path / "intact-run")
    total = deliver(tmp_path / "intact-run", File(tmp_path / "intact")).points
    server.sink("full")
    where = f"{server.root}/full" if kind == "influx" else str(tmp_path / "file")
    address = Address(kind, where)
    deliveries: list[Delivery | str] = []
    with small_disk(tmp_path / "small", "64m") as small:
        shutil.copytree(run, small / "run")
        DeliveryLog(small / "run", where).close()
        (log,) = (small / "run/telemetry").glob("*.ndjson")
        with log.open("ab") as file:  # the block has room for 3 lines and a half
            file.write(b"\n" * (4096 - 250 - log.stat().st_size))
        fill(small / "ballast")
        with exporting(small / "run", [address], deliveries.append, flush_s=120, flushing=end_when_full):
            pass
        (delivery,) = deliveries
        assert isinstance(delivery, Delivery), delivery
        assert delivery.left == 2 and delivery.claims_left and 0 < delivery.points < total
        assert delivery.describe() == (
            f"{delivery.points} points to {where}; NOT DELIVERED: those of 2 cells ({log}: no space left on device)"
        )
        (small / "ballast").unlink()
        rest = deliver(small / "run", address.make())
        assert rest.complete and delivery.points + rest.points == total
    if kind == "influx":
        assert in_influx(server, "full") == in_parquet(run)
    else:
        assert results(tmp_path / "file") == results(tmp_path / "intact")


@needs_root
def test_a_spool_that_is_full_from_the_beginning_is_one_message(run: Path, tmp_path: Path) -> None:
    deliveries: list[Delivery | str] = []
    with small_disk(tmp_path / "small", "64m") as small:
        shutil.copytree(run, small / "run")
        shutil.rmtree(small / "run/telemetry", ignore_errors=True)
        fill(small / "ballast")
        with exporting(small / "run", [Address("ndjson", str(tmp_path / "file"))], deliveries.append, flush_s=120):
            pass
        (message,) = deliveries
        assert isinstance(message, str) and message.startswith(f"telemetry: no points to {tmp_path}/file: {small}/run/")
        assert message.endswith("no space left on device")


@needs_root
def test_a_sink_on_a_full_disk_has_whole_points_and_gets_the_rest_later(run: Path, tmp_path: Path) -> None:
    origin_of(run)  # the name of the run is in the points
    for name in ("intact-run", "run"):
        shutil.copytree(run, tmp_path / name)
    deliver(tmp_path / "intact-run", File(tmp_path / "intact"))
    deliveries: list[Delivery | str] = []
    with small_disk(tmp_path / "small", "6m") as small:
        file = small / "points"
        address = Address("ndjson", str(file))
        with exporting(tmp_path / "run", [address], deliveries.append, flush_s=120, flushing=end_when_full):
            pass
        (delivery,) = deliveries
        assert isinstance(delivery, Delivery), delivery
        assert f"NOT DELIVERED: those of 2 cells ({file}: the disk has " in delivery.describe()
        assert delivery.describe().endswith(" and the 1.6 MB that a file of points leaves free)")
        assert shutil.disk_usage(small).free >= shutil.disk_usage(small).total // 4
        assert file.stat().st_size > 1_000_000 and file.read_bytes().endswith(b"}\n")
        subprocess.run(["mount", "-o", "remount,size=200m", small], check=True)
        assert deliver(tmp_path / "run", File(file)).complete
        assert results(file) == results(tmp_path / "intact")


def test_a_batch_that_fits_in_part_leaves_whole_points(run: Path, tmp_path: Path) -> None:
    """A limit of a file's length stands for a quota, or for a disk that others fill meanwhile."""
    origin_of(run)  # the name of the run is in the points
    for name in ("intact-run", "run"):
        shutil.copytree(run, tmp_path / name)
    deliver(tmp_path / "intact-run", File(tmp_path / "intact"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = tmp_path / "points"
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, before[1]))
    try:
        cut = deliver(tmp_path / "run", File(file), patience_s=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"NOT DELIVERED: those of 2 cells ({file}: File too large)" in cut.describe()
    assert 0 < file.stat().st_size < 1_500_000 and file.read_bytes().endswith(b"}\n")
    assert deliver(tmp_path / "run", File(file)).complete
    assert results(file) == results(tmp_path / "intact")


def results(file: Path) -> list[bytes]:
    """The sorted lines of a file without those that a run sends by its wall clock."""
    lines = file.read_bytes().splitlines()
    return sorted(line for line in lines if b'"machine"' not in line and b'"progress"' not in line)


def test_two_processes_do_not_send_to_one_sink(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    origin_of(tmp_path / "run")
    file = tmp_path / "file"
    log = DeliveryLog(tmp_path / "run", str(file))
    with pytest.raises(SinkError, match="another process sends the points"):
        deliver(tmp_path / "run", File(file))
    log.close()
    assert deliver(tmp_path / "run", File(file)).complete


@pytest.mark.parametrize("text", ["soon", "", "-1", "nan", "inf", "30", "1" * 500])
def test_a_flush_timeout_without_a_duration_is_refused(text: str) -> None:
    with pytest.raises(SinkError, match="--flush-timeout: expected a duration such as `30s`, got") as refused:
        parse_flush_timeout(text)
    assert len(str(refused.value)) < 400
    assert (parse_flush_timeout(None), parse_flush_timeout("1 min"), parse_flush_timeout("0")) == (30.0, 60.0, 0.0)


def test_a_run_that_is_stopped_does_not_wait_for_its_sink(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    deliveries: list[Delivery | str] = []
    unreachable = Address("influx", f"http://127.0.0.1:{free_port()}/x")
    with pytest.raises(KeyboardInterrupt), exporting(tmp_path / "run", [unreachable], deliveries.append):
        time.sleep(2)
        raise KeyboardInterrupt
    assert len(deliveries) == 1 and (isinstance(deliveries[0], str) or deliveries[0].left == 2)


def test_an_exporter_leaves_the_cells_their_cores(run: Path, tmp_path: Path) -> None:
    """It uses other cores if there are any, else all of them at low priority."""
    shutil.copytree(run, tmp_path / "run")
    process_cores = os.sched_getaffinity(0)
    for cells_on, expected in (
        ([min(process_cores)], process_cores - {min(process_cores)} or process_cores),
        (sorted(process_cores), process_cores),
    ):
        sink = Address("ndjson", str(tmp_path / f"{len(cells_on)}.ndjson"))
        with exporting(tmp_path / "run", [sink], lambda _: None, cells_on):
            (process,) = [child for child in multiprocessing.active_children() if child.name == "qbed-exporter"]
            assert process.pid is not None
            wait_until(lambda pid=process.pid: os.getpriority(os.PRIO_PROCESS, pid) == 19)
            wait_until(lambda pid=process.pid, cores=expected: os.sched_getaffinity(pid) == cores)
