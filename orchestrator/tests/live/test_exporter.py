# SPDX-License-Identifier: Apache-2.0
"""A run's points in real InfluxDB servers, equal to its Parquet, whatever happens on the way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from campaigns import LAB, Screen, fake_toolchain, write_lab
from influx import FIELDS, Server, between, free_port, in_influx, in_parquet, served
from synthetic import flow_sample, sample, write_out

from qbed.cells.arrow import read_cell
from qbed.cells.store_cell import store_cell
from qbed.live.exporter import Delivery, Exporter, deliver, deliver_lab
from qbed.live.points import EPOCH_NS, MAX_FLOWS, MAX_SERIES, STRETCH, TAGS
from qbed.live.samples import Running
from qbed.live.sinks import NotTakenError, SinkError
from qbed.live.sinks.address import Address
from qbed.live.sinks.influx import Influx
from qbed.live.sinks.ndjson import File
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.ports import port_names
from qbed.runs.executor.local import LocalExecutor
from qbed.runs.experiment import RunOptions, prepare, run_campaign
from qbed.substrates import Samples


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("influx")) as server:
        yield server


@pytest.fixture(scope="session", params=["1.8.3", "2.9.1"])
def second(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("influx-later"), request.param) as server:
        yield server


def campaign(folder: Path, monkeypatch: pytest.MonkeyPatch, addresses: list[Address]) -> Delivery | str:
    """Run a campaign with a fake guest, export its samples to a sink, and return the result."""
    monkeypatch.setenv("QBED_TOOLCHAIN", str(fake_toolchain(folder / "toolchain")))
    monkeypatch.setenv("QBED_STORE", "off")
    experiment = prepare(write_lab(folder / "lab"), RunOptions("quick", folder / "run", sinks=addresses))
    screen = Screen()
    run_campaign(experiment, LocalExecutor([0]), screen, images=False)
    return screen.deliveries[0]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run with points that no sink has."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QBED_CACHE", str(folder / "cache"))
        patch.setenv("QBED_TOOLCHAIN", str(fake_toolchain(folder / "toolchain")))
        patch.setenv("QBED_STORE", "off")
        run_campaign(
            prepare(write_lab(folder / "lab"), RunOptions("quick", folder / "run")),
            LocalExecutor([0]),
            Screen(),
            images=False,
        )
    yield folder / "run"


def test_a_campaigns_samples_are_those_of_parquet(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.sink("live")
    delivery = campaign(tmp_path, monkeypatch, [Address("influx", f"{server.root}/live")])
    assert isinstance(delivery, Delivery) and delivery.left == 0 and delivery.why is None, delivery
    assert in_influx(server, "live") == in_parquet(tmp_path / "run") != []
    results = server.query("SELECT * FROM \"result\" WHERE axis = 'tcp'", "live")
    query = duckdb.sql(f"SELECT cell::VARCHAR, tcp, goodput_bps FROM '{tmp_path}/run/cells.parquet'").fetchall()
    assert sorted((row["cell"], row["value"], row["goodput_bps"]) for row in results) == sorted(query)
    claims = server.query("SELECT * FROM claim", "live")
    assert [(row["claim"], row["holds"], row["verdict"]) for row in claims] == [("all-complete", 1, "holds")]
    assert server.query("SELECT count(load) FROM machine", "live")[0]["count"] >= 1
    newest_progress = 'SELECT last("cells_ended") AS "ended", "cells", "cell_name", "left_s" FROM "progress"'
    (progress,) = server.query(newest_progress, "live")
    assert [progress[name] for name in ("ended", "cells", "cell_name", "left_s")] == [2, 2, "1", 0]
    (newest,) = server.query('SELECT last("run_name") AS "newest" FROM "run"', "live")
    assert newest["newest"] == results[0]["run"]
    for name, tags in TAGS.items():
        keys = {row["tagKey"] for row in server.query(f'SHOW TAG KEYS FROM "{name}"', "live")}
        fields = {row["fieldKey"] for row in server.query(f'SHOW FIELD KEYS FROM "{name}"', "live")}
        if name not in ("flow", "statistic", "limit", "parameter"):  # the guest that is none has neither
            assert keys == set(tags) and fields, name
        assert not keys & fields, name


@pytest.mark.parametrize("api", ["v1", "v2"])
def test_a_later_server_has_the_same_by_both_interfaces(second: Server, run: Path, api: str) -> None:
    delivery = deliver(run, second.sink(f"by_{api}", api), 10)
    assert (delivery.left, delivery.why) == (0, None)
    assert in_influx(second, f"by_{api}") == in_parquet(run)


def test_what_is_sent_again_changes_nothing(server: Server, run: Path, tmp_path: Path) -> None:
    bodies: list[bytes] = []

    class Twice(Influx):
        def write(self, body: bytes) -> int:
            bodies.append(body)
            super().write(body)
            return super().write(body)

    server.sink("twice")
    deliver(run, Twice(f"{server.root}/twice"), 10)
    before, ledgers = list(bodies), list((run / "telemetry").glob("*.ndjson"))
    assert in_influx(server, "twice") == in_parquet(run)
    assert deliver(run, Twice(f"{server.root}/twice"), 10).points == 0 and bodies == before
    for ledger in ledgers:
        ledger.unlink()
    deliver(run, Twice(f"{server.root}/twice"), 10)
    assert bodies == before * 2


@pytest.mark.parametrize(
    "trouble",
    [
        401,
        500,
        400,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 20",
        b"",
    ],
    ids=str,
)
def test_temporary_errors_lose_nothing_and_permanent_ones_are_reported(
    server: Server, run: Path, trouble: bytes | int
) -> None:
    database = f"trouble_{trouble!r:.12}".translate({ord(c): "_" for c in "\\' /."})
    server.sink(database)
    with between(server.root, lambda number: trouble if number in (1, 2, 4) else None) as proxy:
        delivery = deliver(run, Influx(f"{proxy}/{database}"), 20)
        assert delivery.left == 0 and in_influx(server, database) == in_parquet(run)
    with between(server.root, lambda number: trouble if number > 1 else None) as proxy:
        delivery = deliver(run, Influx(f"{proxy}/{database}"), 0.1)
        assert delivery.left == 2 and delivery.why and "NOT DELIVERED: those of 2 cells" in delivery.describe()
        if isinstance(trouble, int):
            assert f"answers {trouble}" in delivery.why


def test_a_server_that_accepts_and_hangs_is_reported(run: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}/x"
        delivery = deliver(run, Influx(url, timeout_s=0.3), 0.5)
    assert delivery.left == 2 and delivery.why and delivery.why.endswith("no answer")


def test_a_server_killed_and_started_again_in_the_middle_has_all(run: Path, tmp_path: Path) -> None:
    with served(tmp_path) as mortal:
        gives = iter(range(1 << 30))

        class Killing(Influx):
            def write(self, body: bytes) -> int:
                if next(gives) == 1:
                    mortal.kill()
                    threading.Timer(0.5, mortal.start).start()
                return super().write(body)

        mortal.sink("x")
        delivery = deliver(run, Killing(f"{mortal.root}/x"), 30)
        assert delivery.left == 0 and delivery.why and "Connection refused" in delivery.why
        assert in_influx(mortal, "x") == in_parquet(run)


def test_a_file_has_each_point_once_however_often_it_was_interrupted(run: Path, tmp_path: Path) -> None:
    intact, broken = tmp_path / "whole", tmp_path / "broken"
    deliver(run, File(intact))
    rows = [json.loads(line) for line in intact.read_text().splitlines()]
    assert sum(row["measurement"] == "queue" for row in rows) == len(in_parquet(run))

    class Dying(File):
        left = 2

        def write(self, body: bytes) -> int:
            size = super().write(body)
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt  # the points are written, without a record
            return size

    for _ in range(100):
        try:
            deliver(run, Dying(broken))
            break
        except KeyboardInterrupt:
            pass
    assert broken.read_bytes() == intact.read_bytes()
    with pytest.raises(SinkError, match="exists already"):
        File(intact).open(None)


def test_samples_of_a_cell_that_runs_leave_before_it_ends(run: Path, tmp_path: Path) -> None:
    """A folder in which a cell runs: what is in its files leaves; the rest comes from its tables."""
    other = tmp_path / "run"
    shutil.copytree(run, other)
    shutil.rmtree(other / "telemetry", ignore_errors=True)
    kept = tmp_path / "000000"
    (other / "cells/000000").rename(kept)
    work = other / "cells/000000.tmp/work"
    (work / "out").mkdir(parents=True)
    plan = compile_lab(load_lab(write_lab(tmp_path / "lab")))
    (work / "plan.json").write_text(plan.dumps())
    with (work / "out/taps.bin").open("wb") as taps:
        for _, at in ((0, 1), (0, 2), (0, 3)):
            taps.write(sample(0, at * 1_000_000, 1_000_000))
    batches: list[str] = []

    class Keeping(File):
        def write(self, body: bytes) -> int:
            batches.append(body.decode())
            return super().write(body)

    exporter = Exporter(other, Keeping(tmp_path / "file"), lambda _: False, machine=False)
    exporter.round()
    rows = [json.loads(line) for batch in batches for line in batch.splitlines()]
    cell_rows = [row for row in rows if row.get("cell") == "0"]
    assert [row["t_us"] for row in cell_rows if row["measurement"] == "queue"] == [1000, 2000, 3000]
    assert not [row for row in cell_rows if row["measurement"] == "result"]
    (planned,) = (row for row in cell_rows if row["measurement"] == "cell")
    assert planned["end_ms"] - planned["begin_ms"] == 20_000, "20 ms"
    exporter.conclude()
    progress = [row for batch in batches for row in map(json.loads, batch.splitlines()) if "cells_ended" in row]
    assert [(row["measurement"], row["cells_ended"]) for row in progress] == [("progress", 1)]
    shutil.rmtree(other / "cells/000000.tmp")
    kept.rename(other / "cells/000000")
    before = len(batches)
    while exporter.round():
        pass
    rows = [json.loads(line) for batch in batches[before:] for line in batch.splitlines()]
    series = [row for row in rows if row.get("cell") == "0" and row["measurement"] == "queue"]
    total = duckdb.sql(f"SELECT count(*) FROM '{run}/queue_series.parquet' WHERE cell = 0").fetchall()[0][0]
    assert len(series) == total - 3 and any(row["measurement"] == "result" for row in rows)


def test_a_lab_that_is_up_sends_what_its_files_get_until_it_is_down(server: Server, tmp_path: Path) -> None:
    """Value by value what its tables would have: of queues, and of flows."""
    lab = LAB.replace("queues: 1 ms", "queues: 1 ms, flows: 5 ms")
    plan = compile_lab(load_lab(write_lab(tmp_path / "lab", lab=lab)))
    (tmp_path / "plan.json").write_text(plan.dumps())
    write_out(plan, tmp_path)
    names = ("cwnd", "ssthresh", "rtt_ns", "rttvar_ns", "delivery_bps", "acked_bytes", "retransmits", "ce_marks")
    samples = [
        flow_sample("tcp_info", flow, at, **{n: at + flow + i for i, n in enumerate(names)})
        for at in range(5_000_000, 20_000_001, 5_000_000)
        for flow in (0, 1)
    ]
    flows, taps = tmp_path / "out/flow_samples.bin", tmp_path / "out/taps.bin"
    flows.write_bytes(b"".join(samples))
    (tmp_path / "tables").mkdir()
    store_cell(tmp_path, plan, tmp_path / "tables")
    complete = {path: path.read_bytes() for path in (flows, taps)}
    for path, content in complete.items():
        path.write_bytes(content[: len(content) // 2 - 5])  # within a record
    looks: list[int] = []

    def alive() -> bool:
        looks.append(len(server.query('SELECT * FROM "queue"', "lab")))
        if len(looks) == 3:
            for path, content in complete.items():
                path.write_bytes(content)
        return len(looks) < 6

    sink = server.sink("lab")
    running = Running(tmp_path, lambda _: Samples({"event": "clock"}, [tmp_path]), alive)
    shutil.move(tmp_path / "out", tmp_path / "apart")
    for path in (flows, taps):
        shutil.move(tmp_path / "apart" / path.name, tmp_path / path.name)
    complete = {tmp_path / path.name: content for path, content in complete.items()}
    delivery = deliver_lab(running, sink, follow=True, patience_s=10)
    series, sampled = (read_cell(tmp_path / f"tables/{name}.arrow", 0) for name in ("queue_series", "tcp_info"))
    ports = port_names(plan)
    wanted = sorted(
        ("0", ports[row["queue"]], row["time_ns"], *(row[name] for name in FIELDS.split(",")))
        for table in series
        for row in table.to_pylist()
    )
    assert in_influx(server, "lab") == wanted != []
    found = server.query('SELECT * FROM "flow" GROUP BY *', "lab")
    rows = [row for table in sampled for row in table.to_pylist()]
    assert sorted(
        ((row["time"] - EPOCH_NS) // STRETCH, int(row["flow"].split()[0]), *(row[n] for n in names)) for row in found
    ) == (sorted((row["time_ns"], row["flow"], *(row[n] for n in names)) for row in rows))
    assert all(row["t_us"] * 1000 * STRETCH + EPOCH_NS == row["time"] and row["state"] == "open" for row in found)
    assert 0 < looks[2] < looks[-1] == len(wanted), "they were sent as they came"
    assert (delivery.points, delivery.left, delivery.why) == (
        1 + len(wanted) + len(rows),
        0,
        None,
    )  # 1: the lab's length
    assert {row["run"].startswith("tiny-") for row in found} == {True}


def test_series_are_bounded(run: Path) -> None:
    from qbed.live.cells import Cells
    from qbed.live.delivery_log import origin_of

    cells = Cells(run, origin_of(run))
    assert cells.fits(0, MAX_SERIES - MAX_FLOWS) and not cells.fits(0, MAX_SERIES - MAX_FLOWS + 1)
    assert cells.fits(999, 100) and not cells.fits(1000, 100) and cells.crowded == {0, 1000}


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("localhost:8086/x", "expected a URL such as"),
        ("http://localhost:8086", "expected one of /DATABASE"),
        ("http://u:p@localhost:8086/x", "no place for secrets"),
        ("http://localhost:8086/api/v2/write?org=a", "wants `?bucket=NAME`"),
        ("http://localhost:99999/x", "expected a URL such as"),
        ("http://localhost/a b", "expected a URL such as"),
    ],
)
def test_a_wrong_url_is_refused_before_the_first_cell(url: str, wrong: str) -> None:
    with pytest.raises(SinkError) as caught:
        Influx(url)
    assert wrong in str(caught.value)


def test_the_precision_and_the_token_are_always_sent() -> None:
    seen: list[str] = []

    def target(url: str, token: str) -> tuple[str, str]:
        import http.client

        class Seeing(http.client.HTTPConnection):
            def request(self, method: str, url: str, body: Any = None, headers: Any = None, **_: Any) -> None:
                seen.extend((url, headers["Authorization"]))
                raise OSError(0, "seen")

        sink = Influx(url, token)
        sink.client._connect = lambda: Seeing("x")  # type: ignore[method-assign]
        with pytest.raises(NotTakenError, match="seen"):
            sink.write(b"")
        return seen[-2], seen[-1]

    assert target("http://x/db", "u:p") == ("/write?db=db&precision=ns", "Basic dTpw")
    assert target("http://x/api/v2/write?org=o&bucket=b", "t") == (
        "/api/v2/write?org=o&bucket=b&precision=ns",
        "Token t",
    )
    expected = "/api/v3/write_lp?db=d&precision=nanosecond&accept_partial=false"
    assert target("http://x/api/v3/write_lp?db=d", "t") == (expected, "Bearer t")


def test_the_token_is_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("t\n")
    monkeypatch.setenv("QBED_INFLUX_TOKEN_FILE", str(tmp_path / "token"))
    assert Influx("http://x/db").client.headers["Authorization"] == "Token t"
    monkeypatch.setenv("QBED_INFLUX_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(SinkError, match=r"QBED_INFLUX_TOKEN_FILE: .*none cannot be read: No such file"):
        Influx("http://x/db")


def test_cells_of_the_store_give_the_same_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("QBED_TOOLCHAIN", str(fake_toolchain(tmp_path / "toolchain")))
    monkeypatch.setenv("QBED_STORE", "1 GB")
    lab, found = write_lab(tmp_path / "lab"), []
    for name in ("first", "second"):
        file, screen = tmp_path / f"{name}.ndjson", Screen()
        wishes = RunOptions("quick", tmp_path / name, sinks=[Address("ndjson", str(file))])
        done = run_campaign(prepare(lab, wishes), LocalExecutor([0]), screen, images=False)
        assert done.totals.stored == (2 if name == "second" else 0)
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        found.append(sorted(json.dumps(row | {"run": ""}) for row in rows if row["measurement"] == "queue"))
    assert found[0] == found[1] and len(found[0]) == len(in_parquet(tmp_path / "first"))


def test_the_command_line_reports_what_was_not_delivered(run: Path, tmp_path: Path) -> None:
    tools = str(fake_toolchain(tmp_path / "toolchain"))

    def qbed(*arguments: str) -> tuple[int, str]:
        environment = os.environ | {"QBED_TOOLCHAIN": tools}
        command = [sys.executable, "-m", "qbed", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    status, output = qbed(
        "samples", str(run), "--influx", f"http://127.0.0.1:{free_port()}/x", "--sink-timeout", "0.1 s"
    )
    assert status == 1 and "NOT DELIVERED: those of 2 cells" in output and "Connection refused" in output
    status, output = qbed("samples", str(run), "--ndjson", str(tmp_path / "file"))
    assert status == 0 and "points to" in output and (tmp_path / "file").read_text().count('"queue"') > 0
    status, output = qbed("run", str(write_lab(tmp_path / "lab")), "--influx", "localhost:8086/x")
    assert status == 2 and "expected a URL such as" in output and "Traceback" not in output


def test_a_lab_that_is_up_longer_than_its_duration_sends_all_samples(tmp_path: Path) -> None:
    plan = compile_lab(load_lab(write_lab(tmp_path / "lab", lab=LAB)))
    (tmp_path / "plan.json").write_text(plan.dumps())
    number = plan.max_samples() + 1
    (tmp_path / "taps.bin").write_bytes(b"".join(sample(0, 10**6 * (i + 1), 10**6, zero=i % 2) for i in range(number)))
    running = Running(tmp_path, lambda _: Samples({"event": "clock"}, [tmp_path]), lambda: False)
    assert deliver_lab(running, File(tmp_path / "points"), follow=False).points == 1 + number
