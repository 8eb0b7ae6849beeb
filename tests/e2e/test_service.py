# SPDX-License-Identifier: Apache-2.0
"""The service with campaigns: run, streamed, queried, cancelled; killed and started again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import qbed
from qbed.base.errors import LabError, QbedError
from qbed.live.columns import BINS

from qbed_testing.service import ServiceProcess, descendants, write_lab

sys.path.insert(0, str(Path(__file__).parents[2] / "orchestrator" / "tests"))
from influx import in_influx, in_parquet, served
from victoria_metrics import victoria_metrics

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("service"), "--query-timeout", "8") as process:
        yield process


@pytest.fixture(scope="module")
def run(service: ServiceProcess, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[tuple[str, Any]], Any]:
    """A finished job of a campaign, and the events that its clients received."""
    lab = write_lab(tmp_path_factory.mktemp("lab") / "mine", "300 ms")
    job = service.submit(lab)
    events = list(service.events(f"/jobs/{job}/samples"))
    return job, events, service.wait_until_ended(job)


def test_a_campaign_runs_and_its_claims_are_judged(run: Any) -> None:
    _, _, ended = run
    assert (ended["state"], ended["exit_status"], ended["cells"], ended["done"]) == ("finished", 0, 1, 1)
    assert [verdict["verdict"] for verdict in ended["verdicts"]] == ["holds", "refuted"]


def test_results_are_files_tables_and_queries(service: ServiceProcess, run: Any, tmp_path: Path) -> None:
    import io

    import pyarrow.parquet as parquet

    job = run[0]
    files = service.get(f"/jobs/{job}/files")
    assert {"report.html", "cells.parquet", "flows.parquet", "claims.json"} <= set(files)
    cells = parquet.read_table(io.BytesIO(service.http.get(f"/jobs/{job}/files/cells.parquet").content))
    assert cells.num_rows == 1
    report = service.http.get(f"/jobs/{job}/files/report.html")
    assert "sandbox" in report.headers["content-security-policy"] and len(report.content) == files["report.html"]
    sql = "SELECT cell, status, dropped_packets FROM cells"
    (row,) = service.post(f"/jobs/{job}/query", sql=sql)["rows"]
    assert row[:2] == [0, "complete"] and row[2] > 0
    text = service.http.post(f"/jobs/{job}/query", json={"sql": sql, "format": "csv"}).text
    assert text.splitlines()[0] == "cell,status,dropped_packets"
    table = service.http.post(f"/jobs/{job}/query", json={"sql": sql, "format": "parquet"}).content
    assert parquet.read_table(io.BytesIO(table)).column("dropped_packets").to_pylist() == [row[2]]
    listed = service.get(f"/jobs/{job}/cells")
    assert listed["counted"] == {"complete": 1} and listed["cells"][0]["dropped_packets"] == row[2]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM read_text('/etc/passwd')", "disabled by configuration"),
        ("SELECT * FROM '/etc/passwd'", ""),
        ("COPY (SELECT 1) TO '/tmp/x'", "one SELECT"),
        ("SELECT 1; DROP VIEW cells", "one SELECT"),
        ("ATTACH '/tmp/x.db'", "one SELECT"),
        ("SELECT getenv('HOME')", ""),
        ("SELECT * FROM nothing", "nothing"),
        ("SELECT count(*) FROM range(1000000000000) a, range(1000000) b", "longer than"),
        ("SELECT repeat('x', 3000000000)", ""),
        ("SELECT list(range) FROM range(10000000000)", ""),
    ],
)
def test_sql_reads_only_the_run_and_has_limits(
    sql: str, message: str, run: Any, service: ServiceProcess, tmp_path: Path
) -> None:
    answer = service.http.post(f"/jobs/{run[0]}/query", json={"sql": sql}, timeout=120)
    assert answer.status_code == 422 and message in " ".join(answer.json()["errors"])
    assert "root:" not in answer.text and not list((service.folder / "answers").iterdir())


def test_streamed_samples_equal_the_results(service: ServiceProcess, run: Any) -> None:
    """The time-weighted mean, maximum and drops of a queue from the stream equal its results."""
    job, events, _ = run
    kinds = [kind for kind, _ in events]
    assert kinds[0] == "cell" and kinds[-2:] == ["cell-end", "end"] and kinds.count("cell") == 1
    cell = events[0][1]
    queue = cell["queues"].index("s1>h3")
    assert cell["duration_ns"] == 300_000_000 and cell["bin_ns"] * BINS >= cell["duration_ns"]
    rows = [
        dict(zip(data, values, strict=True))
        for kind, data in events
        if kind == "queues"
        for values in zip(*data.values(), strict=True)
        if values[0] == queue
    ]
    names = ("mean_bytes", "max_bytes", "dropped_packets")
    sql = f"SELECT {', '.join(names)} FROM queues WHERE port = 's1>h3'"
    mean, maximum, dropped = service.post(f"/jobs/{job}/query", sql=sql)["rows"][0]
    known = sum(row["ns"] for row in rows)
    assert known == cell["duration_ns"]  # the bins cover the run once
    assert sum(row["mean"] * row["ns"] for row in rows) / known == pytest.approx(mean, rel=1e-5)
    assert max(row["max"] for row in rows) == maximum and sum(row["dropped"] for row in rows) == dropped
    rates = [data for kind, data in events if kind == "flows"]
    assert {flow for data in rates for flow in data["flow"]} == {0, 1}


def test_samples_of_a_finished_cell_equal_the_live_stream(service: ServiceProcess, run: Any) -> None:
    """The stream from the tables has the same bins of each queue and flow."""
    job, events, _ = run
    again = list(service.events(f"/jobs/{job}/cells/0/samples"))
    assert [again[0][0], *(kind for kind, _ in again[-2:])] == ["cell", "cell-end", "end"]
    stored, cell = again[0][1], events[0][1]
    assert stored == cell
    assert topology(stored) == topology(cell)
    assert stored["clock"] == {"clock": "virtual"}
    assert combine(again) == combine(events)
    assert service.http.get(f"/jobs/{job}/cells/1/samples").status_code == 404


def topology(cell: Any) -> tuple[Any, Any]:
    """The kinds of the nodes, and the ends, queues and rates of the links."""
    nodes = cell["nodes"]
    links = [(nodes[link["a"]], nodes[link["b"]], *link["queues"], link["rate_bps"]) for link in cell["links"]]
    return dict(zip(nodes, cell["kinds"], strict=True)), sorted(links)


def combine(events: list[tuple[str, Any]]) -> dict[tuple[str, int, int], Any]:
    """Combine the parts of each bin, as the page does."""
    found: dict[tuple[str, int, int], Any] = {}
    for kind, data in events:
        rows = (
            [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]
            if "bin" in data
            else []
        )
        for row in rows:
            if kind == "flows":
                found[kind, row["flow"], row["bin"]] = row["bps"]
                continue
            sums = [
                round(row["mean"] * row["ns"]),
                *(row[name] for name in ("ns", "dequeued", "dequeued_bytes", "dropped", "marked")),
            ]
            key = (kind, row["queue"], row["bin"])
            minimum, maximum, before = found.get(key, (row["min"], row["max"], [0] * len(sums)))
            found[key] = (
                min(minimum, row["min"]),
                max(maximum, row["max"]),
                [a + b for a, b in zip(before, sums, strict=True)],
            )
    for key, value in found.items():
        if key[0] == "queues":  # means are sent with one decimal
            value[2][0] = round(value[2][0] / value[2][1])
    return found


def test_an_error_in_a_lab_is_reported_without_the_services_paths(service: ServiceProcess, tmp_path: Path) -> None:
    lab = write_lab(tmp_path / "mine")
    (lab / "lab.yml").write_text((lab / "lab.yml").read_text().replace("droptail", "dropptail"))
    ended = service.wait_until_ended(service.submit(lab))
    assert (ended["state"], ended["exit_status"]) == ("failed", 2)
    assert "did you mean `droptail`" in ended["messages"][0] and ended["messages"][0].startswith("lab.yml:4:")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("switches.default.controller", "program that comes with the lab"),
        ("switches.default.program", "program that comes with the lab"),
    ],
)
def test_an_uploaded_lab_runs_no_program_and_reads_no_file(
    service: ServiceProcess, tmp_path: Path, field: str, message: str
) -> None:
    """A setting of an uploaded lab names neither a program of the lab nor a file of the machine."""
    lab = write_lab(tmp_path / "mine")
    for name in ("mine.p4", "mine.json", "mine.p4info.txtpb", "mine.py"):
        (lab / name).write_text("#!/bin/sh\n")
    settings = {"switches.default.kind": "bmv2", field: "./mine.p4" if field.endswith("program") else "./mine.py"}
    if field.endswith("controller"):
        settings["switches.default.program"] = "stamp"
    ended = service.wait_until_ended(service.submit(lab, settings=settings))
    assert ended["state"] == "failed" and message in " ".join(ended["messages"]), ended["messages"]
    outside = {"workload[0]": {"arrivals": {"from": "h1", "to": "h2", "size": {"cdf": "/etc/passwd"}, "load": 0.1}}}
    ended = service.wait_until_ended(service.submit(lab, settings=outside))
    assert ended["state"] == "failed" and "leads out of the folder the lab" in ended["messages"][0], ended["messages"]


def test_a_cancelled_campaign_resumes(service: ServiceProcess, tmp_path: Path) -> None:
    job = service.submit(
        write_lab(tmp_path / "mine", "100 ms", "[1, 2, 3, 4, 5]"),
    )
    service.wait_for(job, lambda found: (found["done"] or 0) >= 1)
    service.post(f"/jobs/{job}/cancel")
    ended = service.wait_until_ended(job)
    assert (ended["state"], ended["exit_status"]) == ("cancelled", 130)
    done = [cell["cell"] for cell in service.get(f"/jobs/{job}/cells")["cells"]]
    assert 1 <= len(done) < 5
    service.post(f"/jobs/{job}/retry")
    ended = service.wait_until_ended(job)
    assert ended["state"] == "finished" and ended["totals"]["skipped"] == len(done) and ended["totals"]["complete"] == 5


def wait_until_ended(pids: set[int]) -> None:
    """Wait until processes have ended."""
    while any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids):
        time.sleep(0.05)


def tables(run: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(run.glob("*.parquet"))}


@pytest.mark.parametrize("stop_signal", [signal.SIGTERM, signal.SIGKILL])
def test_a_restarted_service_resumes_its_campaigns(tmp_path: Path, stop_signal: signal.Signals) -> None:
    """The processes of a stopped service end; the next one resumes the job with the results of an undisturbed run."""
    lab = write_lab(tmp_path / "mine", "100 ms", "[1, 2, 3]")
    with ServiceProcess(tmp_path / "service") as process:
        first, second = process.submit(lab), process.submit(lab, seeds=[7])
        process.wait_for(first, lambda found: (found["done"] or 0) >= 1)
        processes = descendants(process.process.pid)
        assert len(processes) > 2  # the job, its workers, a guest
        status = process.stop(stop_signal)
        assert status in (0, -stop_signal)
        wait_until_ended(processes)
        process.start()
        ended = process.wait_until_ended(first)
        assert (ended["state"], ended["attempts"], ended["totals"]["complete"]) == ("finished", 2, 3)
        assert ended["totals"]["skipped"] >= 1
        assert process.wait_until_ended(second)["totals"]["complete"] == 1
        undisturbed = process.submit(lab)
        assert process.wait_until_ended(undisturbed)["attempts"] == 1
        jobs = process.folder / "jobs"
        assert tables(jobs / f"{first:06d}" / "run") == tables(jobs / f"{undisturbed:06d}" / "run")


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
def test_a_killed_container_of_the_service_resumes_and_doubles_no_point(tmp_path: Path) -> None:
    """`kill -9` of the first process of a container ends all of its processes at once. InfluxDB continues."""
    lab = write_lab(tmp_path / "mine", "100 ms", "[1, 2, 3]")
    container = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    (tmp_path / "influx").mkdir()
    with served(tmp_path / "influx") as server:
        server.sink("qbed")
        sink = {"QBED_INFLUX": f"{server.root}/qbed"}
        with ServiceProcess(tmp_path / "service", under=container, **sink) as process:
            job = process.submit(lab)
            process.wait_for(job, lambda found: (found["done"] or 0) >= 1)
            while not server.query('SELECT count("t_us") FROM "queue"', "qbed"):
                time.sleep(0.05)
            processes = descendants(process.process.pid)
            assert len(processes) > 3  # the service, the job, its workers, a guest
            process.stop(signal.SIGKILL)
            wait_until_ended(processes)
            process.start()
            ended = process.wait_until_ended(job)
            assert (ended["state"], ended["attempts"], ended["totals"]["complete"]) == ("finished", 2, 3)
            assert ended["totals"]["skipped"] >= 1
            run = process.folder / "jobs" / f"{job:06d}" / "run"
            assert in_influx(server, "qbed") == in_parquet(run) != []
            process.stop(signal.SIGKILL)  # unshare ignores SIGTERM


def test_a_job_sends_its_points_to_the_receiver_of_opentelemetry_of_the_service(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with victoria_metrics(tmp_path / "server") as server:
        with ServiceProcess(tmp_path / "service", QBED_OTLP=server.url) as process:
            job = process.submit(write_lab(tmp_path / "mine", "20 ms", "[1]"))
            assert process.wait_until_ended(job)["state"] == "finished"
        run = tmp_path / "service" / "jobs" / f"{job:06d}" / "run"
        expected = duckdb.sql(f"SELECT port, mean_packets FROM '{run}/queue_series.parquet' ORDER BY ALL").fetchall()
        series = server.series("qbed.queue.mean_packets")
        assert sorted((one["metric"]["queue"], value) for one in series for value in one["values"]) == expected != []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_reported_and_finished_cells_are_kept(tmp_path: Path) -> None:
    """A service on a full disk answers, accepts no job, and resumes when there is space."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", small], check=True)
    try:
        with ServiceProcess(small / "service") as process:
            job = process.submit(write_lab(tmp_path / "mine", "100 ms", "[1, 2, 3, 4, 5, 6]"))
            process.wait_for(job, lambda found: (found["done"] or 0) >= 1)
            fill(small / "ballast")
            wait_until_ended(descendants(process.process.pid))  # the job's process and its children
            fill(small / "ballast")  # the ended processes freed space
            answer = process.http.post("/jobs", json={"lab": "dumbbell"})
            assert answer.status_code == 507 and "the service cannot write" in answer.json()["errors"][0], answer.text
            assert [found["id"] for found in process.get("/jobs")] == [job]
            (small / "ballast").unlink()
            ended = process.wait_until_ended(job)
            assert ended["state"] == "failed" and "full" in " ".join(ended["messages"]), ended
            process.post(f"/jobs/{job}/retry")
            ended = process.wait_until_ended(job)
            assert ended["state"] == "finished" and ended["totals"]["complete"] == 6
            assert ended["totals"]["skipped"] >= 1
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def fill(path: Path) -> None:
    """Fill the file system."""
    with path.open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(bytes(4096)):
            pass


def test_a_damaged_list_of_jobs_is_refused_and_rebuilt(tmp_path: Path) -> None:
    folder = tmp_path / "service"
    with ServiceProcess(folder) as process:
        job = process.submit(write_lab(tmp_path / "mine", "1 ms"))
        before = process.wait_until_ended(job)
        files = process.get(f"/jobs/{job}/files")
    table = folder / "jobs.sqlite"
    table.write_bytes(table.read_bytes()[:5000])
    command = [sys.executable, "-m", "qbed", "serve", "--folder", str(folder), "--port", "0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1, refused.stderr
    assert f"{table} is damaged" in refused.stderr and "qbed serve --recover" in refused.stderr
    with ServiceProcess(folder, "--recover") as process:
        after = process.get(f"/jobs/{job}")
        assert {key: after[key] for key in ("state", "name", "exit_status", "verdicts")} == {
            key: before[key] for key in ("state", "name", "exit_status", "verdicts")
        }
        assert process.get(f"/jobs/{job}/files") == files


def test_a_lab_is_brought_up_used_and_taken_down(tmp_path: Path) -> None:
    state = {"XDG_RUNTIME_DIR": str(tmp_path / "up")}
    with ServiceProcess(tmp_path / "service", "--allow-programs", **state) as process:
        upload = process.upload(write_lab(tmp_path / "mine"))
        assert process.post("/up", upload=upload, settings={"name": "other"})["name"] == "other"
        try:
            answer = process.post("/up/other/nodes/h1/exec", argv=["ip", "-br", "addr"])
            assert answer["status"] == 0 and "10.0.0" in answer["stdout"]
            assert process.post("/up/other/nodes/h1/exec", argv=["sh", "-c", "exit 7"])["status"] == 7
            key = process.post("/up/other/nodes/h1/exec", argv=["cat", str(process.folder / "jobs.sqlite")])
            assert key["status"] != 0 and "SQLite" not in key["stdout"]
            assert [lab["is_up"] for lab in process.get("/up")] == [True]
            again = process.http.post("/up", json={"upload": upload, "settings": {"name": "other"}})
            assert again.status_code == 422 and "is up already" in again.text
        finally:
            assert process.http.delete("/up/other").status_code == 204
        assert process.get("/up") == [] and not list((process.folder / "labs").iterdir())


def test_the_command_line_is_a_client(service: ServiceProcess, tmp_path: Path) -> None:
    """A campaign on the service has the same output, exit status and result files as a local one."""
    lab = write_lab(tmp_path / "mine", "20 ms", "[1, 2]")

    def qbed(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "QBED_STORE": "off"}
        command = [sys.executable, "-m", "qbed", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    local = qbed("run", "mine", "--no-images", "--out", "local")
    remote = qbed("--server", service.url, "run", "mine", "--no-images", "--out", "remote")
    assert (remote.returncode, remote.stdout) == (0, local.stdout.replace("local", "remote"))
    output = [line for line in local.stderr.splitlines() if " cells complete, in " not in line]
    assert [line for line in remote.stderr.splitlines() if " cells complete, in " not in line] == output
    assert len([line for line in output if "expected:" in line]) == 2
    assert tables(tmp_path / "local") == tables(tmp_path / "remote")
    assert qbed("verify", "remote").returncode == 0 and qbed("report", "remote", "--no-images").returncode == 0
    # exit statuses of a failed claim, an invalid lab and a service that does not run
    campaign = re.sub(r"random: \w+", "random: off", (lab / "campaign.yml").read_text())
    (lab / "campaign.yml").write_text(campaign.replace("expect: refuted", "expect: holds"))
    assert qbed("--server", service.url, "run", "mine", "--no-images", "--out", "remote").returncode == 1
    (lab / "lab.yml").write_text("name: mine\n")
    refused = qbed("--server", service.url, "run", "mine", "--out", "remote")
    assert refused.returncode == 2 and "error: lab.yml" in refused.stderr and "Traceback" not in refused.stderr
    assert qbed("--server", "http://127.0.0.1:9", "run", "mine").stderr.startswith("error: http://127.0.0.1:9 does not")
    assert "mine" in qbed("--server", service.url, "jobs").stdout
    assert qbed("--server", service.url, "ps").returncode == 2


def test_python_is_a_client(service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lab = write_lab(tmp_path / "mine", "20 ms", "[1, 2]")
    service_client = qbed.Service(service.url)
    job = service_client.submit(lab, seeds=[2], images=False)
    kinds: list[str] = []
    run = job.wait(progress=lambda event: kinds.append(event["event"]))
    assert run.folder.parent == tmp_path / "runs" and run.holds and run.verify() == []
    assert [row["seed"] for row in run.table("cells").to_pylist()] == [2]
    assert "concluded" in kinds and "refused" not in kinds
    assert (job.status["state"], job.status["exit_status"]) == ("finished", 0)
    assert job in service_client.jobs() and service_client.job(job.number).wait(out="again").holds
    # a lab without a campaign and with a changed field
    alone = service_client.submit(qbed.load(lab).set(duration="10 ms"), images=False).wait(out="alone")
    assert alone.sql("SELECT duration_ns FROM cells").to_pylist() == [{"duration_ns": 10_000_000}]
    stopped = service_client.submit(qbed.load(lab).set(duration="100 s"), images=False)
    stopped.cancel()
    with pytest.raises(LabError, match="was cancelled"):
        stopped.wait()
    with pytest.raises(LabError, match="no scheme is called `droptial`"):
        service_client.submit(qbed.load(lab).set({"switches.default.scheme": "droptial"})).wait()
    with pytest.raises(TypeError, match=r"submit\(\) has no `profil`; did you mean `profile`"):
        service_client.submit(lab, profil="quick")
    with pytest.raises(QbedError, match="with --server a campaign has one substrate"):
        service_client.submit(lab, shard=(1, 2))
    with pytest.raises(QbedError, match="which service"):
        qbed.Service()
