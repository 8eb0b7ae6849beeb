# SPDX-License-Identifier: Apache-2.0
"""The service with real campaigns: run, watched, asked, cancelled; ended in the middle, and started again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served, below, write_lab

import qbed
from qbed.base.errors import LabError, QbedError
from qbed.live.columns import BINS

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("service"), "--query-timeout", "8") as served:
        yield served


@pytest.fixture(scope="module")
def run(service: Served, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[tuple[str, Any]], Any]:
    """A campaign, what its viewers saw, and how it ended."""
    lab = write_lab(tmp_path_factory.mktemp("lab") / "mine", "300 ms")
    job = service.submit(lab)
    seen = list(service.events(f"/jobs/{job}/samples"))
    return job, seen, service.ended(job)


def test_a_campaign_runs_and_its_claims_are_judged(run: Any) -> None:
    _, _, ended = run
    assert (ended["state"], ended["exit_status"], ended["cells"], ended["done"]) == ("finished", 0, 1, 1)
    assert [one["verdict"] for one in ended["verdicts"]] == ["holds", "refuted"]


def test_results_come_in_every_form(service: Served, run: Any, tmp_path: Path) -> None:
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
    ("sql", "said"),
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
def test_sql_reads_the_run_and_has_limits(sql: str, said: str, run: Any, service: Served, tmp_path: Path) -> None:
    answer = service.http.post(f"/jobs/{run[0]}/query", json={"sql": sql}, timeout=120)
    assert answer.status_code == 422 and said in " ".join(answer.json()["errors"])
    assert "root:" not in answer.text and not list((service.folder / "answers").iterdir())


def test_what_viewers_see_is_what_the_results_say(service: Served, run: Any) -> None:
    """The curve of the queue that fills, as the stream had it, against the results: time-weighted mean, most, drops."""
    job, seen, _ = run
    kinds = [kind for kind, _ in seen]
    assert kinds[0] == "cell" and kinds[-2:] == ["cell-end", "end"] and kinds.count("cell") == 1
    cell = seen[0][1]
    queue = cell["queues"].index("s1>h3")
    assert cell["duration_ns"] == 300_000_000 and cell["bin_ns"] * BINS >= cell["duration_ns"]
    rows = [
        dict(zip(data, values, strict=True))
        for kind, data in seen
        if kind == "queues"
        for values in zip(*data.values(), strict=True)
        if values[0] == queue
    ]
    names = ("mean_bytes", "max_bytes", "dropped_packets")
    sql = f"SELECT {', '.join(names)} FROM queues WHERE port = 's1>h3'"
    mean, most, dropped = service.post(f"/jobs/{job}/query", sql=sql)["rows"][0]
    known = sum(row["ns"] for row in rows)
    assert known == cell["duration_ns"]  # every instant, once
    assert sum(row["mean"] * row["ns"] for row in rows) / known == pytest.approx(mean, rel=1e-5)
    assert max(row["max"] for row in rows) == most and sum(row["dropped"] for row in rows) == dropped
    rates = [data for kind, data in seen if kind == "flows"]
    assert {flow for data in rates for flow in data["flow"]} == {0, 1}


def test_a_cell_that_has_ended_is_told_as_its_viewers_saw_it(service: Served, run: Any) -> None:
    """From its tables: every column of every queue and flow."""
    job, seen, _ = run
    again = list(service.events(f"/jobs/{job}/cells/0/samples"))
    assert [again[0][0], *(kind for kind, _ in again[-2:])] == ["cell", "cell-end", "end"]
    told, cell = again[0][1], seen[0][1]
    assert told == cell
    assert drawn(told) == drawn(cell)
    assert told["clock"] == {"clock": "virtual"}
    assert together(again) == together(seen)
    assert service.http.get(f"/jobs/{job}/cells/1/samples").status_code == 404


def drawn(cell: Any) -> tuple[Any, Any]:
    """The topology: what each node is, each link's ends, queues and rate."""
    nodes = cell["nodes"]
    links = [(nodes[link["a"]], nodes[link["b"]], *link["queues"], link["rate_bps"]) for link in cell["links"]]
    return dict(zip(nodes, cell["kinds"], strict=True)), sorted(links)


def together(events: list[tuple[str, Any]]) -> dict[tuple[str, int, int], Any]:
    """The columns that viewers put together of their pieces."""
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
            least, most, before = found.get(key, (row["min"], row["max"], [0] * len(sums)))
            found[key] = (
                min(least, row["min"]),
                max(most, row["max"]),
                [a + b for a, b in zip(before, sums, strict=True)],
            )
    for key, value in found.items():
        if key[0] == "queues":  # a mean is said to a tenth of a byte
            value[2][0] = round(value[2][0] / value[2][1])
    return found


def test_a_mistake_in_a_lab_is_said_without_the_services_own_paths(service: Served, tmp_path: Path) -> None:
    lab = write_lab(tmp_path / "mine")
    (lab / "lab.yml").write_text((lab / "lab.yml").read_text().replace("droptail", "dropptail"))
    ended = service.ended(service.submit(lab))
    assert (ended["state"], ended["exit_status"]) == ("failed", 2)
    assert "did you mean `droptail`" in ended["messages"][0] and ended["messages"][0].startswith("lab.yml:4:")


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("switches.default.controller", "program that comes with the lab"),
        ("switches.default.program", "program that comes with the lab"),
    ],
)
def test_a_lab_that_was_sent_runs_no_program_and_reads_no_file(
    service: Served, tmp_path: Path, field: str, said: str
) -> None:
    """Neither of its own nor of this machine, whether the lab says so, an axis, or a setting."""
    lab = write_lab(tmp_path / "mine")
    for name in ("mine.p4", "mine.json", "mine.p4info.txtpb", "mine.py"):
        (lab / name).write_text("#!/bin/sh\n")
    settings = {"switches.default.kind": "bmv2", field: "./mine.p4" if field.endswith("program") else "./mine.py"}
    if field.endswith("controller"):
        settings["switches.default.program"] = "stamp"
    ended = service.ended(service.submit(lab, settings=settings))
    assert ended["state"] == "failed" and said in " ".join(ended["messages"]), ended["messages"]
    outside = {"workload[0]": {"arrivals": {"from": "h1", "to": "h2", "size": {"cdf": "/etc/passwd"}, "load": 0.1}}}
    ended = service.ended(service.submit(lab, settings=outside))
    assert ended["state"] == "failed" and "leads out of the folder the lab" in ended["messages"][0], ended["messages"]


def test_a_campaign_is_cancelled_in_the_middle_and_goes_on(service: Served, tmp_path: Path) -> None:
    job = service.submit(
        write_lab(tmp_path / "mine", "100 ms", "[1, 2, 3, 4, 5]"),
    )
    service.until(job, lambda found: (found["done"] or 0) >= 1)
    service.post(f"/jobs/{job}/cancel")
    ended = service.ended(job)
    assert (ended["state"], ended["exit_status"]) == ("cancelled", 130)
    done = [cell["cell"] for cell in service.get(f"/jobs/{job}/cells")["cells"]]
    assert 1 <= len(done) < 5
    service.post(f"/jobs/{job}/retry")
    ended = service.ended(job)
    assert ended["state"] == "finished" and ended["totals"]["skipped"] == len(done) and ended["totals"]["complete"] == 5


def gone(family: set[int]) -> None:
    """Wait until these processes are."""
    while any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() for pid in family):
        time.sleep(0.05)


def tables(run: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(run.glob("*.parquet"))}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_what_ends_the_service_ends_no_campaign(tmp_path: Path, how: signal.Signals) -> None:
    """Its processes end with it; the next service goes on, and the results are those of an undisturbed run."""
    lab = write_lab(tmp_path / "mine", "100 ms", "[1, 2, 3]")
    with Served(tmp_path / "service") as served:
        first, second = served.submit(lab), served.submit(lab, seeds=[7])
        served.until(first, lambda found: (found["done"] or 0) >= 1)
        family = below(served.process.pid)
        assert len(family) > 2  # the job, its workers, a guest
        status = served.stop(how)
        assert status in (0, -how)
        gone(family)
        served.start()
        ended = served.ended(first)
        assert (ended["state"], ended["attempts"], ended["totals"]["complete"]) == ("finished", 2, 3)
        assert ended["totals"]["skipped"] >= 1
        assert served.ended(second)["totals"]["complete"] == 1
        whole = served.submit(lab)
        assert served.ended(whole)["attempts"] == 1
        jobs = served.folder / "jobs"
        assert tables(jobs / f"{first:06d}" / "run") == tables(jobs / f"{whole:06d}" / "run")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_said_and_what_is_finished_stays(tmp_path: Path) -> None:
    """The service's own: it answers, takes nothing, and goes on when there is room."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", small], check=True)
    try:
        with Served(small / "service") as served:
            job = served.submit(write_lab(tmp_path / "mine", "100 ms", "[1, 2, 3, 4, 5, 6]"))
            served.until(job, lambda found: (found["done"] or 0) >= 1)
            fill(small / "ballast")
            gone(below(served.process.pid))  # the job's process, and its own
            fill(small / "ballast")  # they have left room
            answer = served.http.post("/jobs", json={"lab": "dumbbell"})
            assert answer.status_code == 507 and "the service cannot write" in answer.json()["errors"][0], answer.text
            assert [found["id"] for found in served.get("/jobs")] == [job]
            (small / "ballast").unlink()
            ended = served.ended(job)
            assert ended["state"] == "failed" and "full" in " ".join(ended["messages"]), ended
            served.post(f"/jobs/{job}/retry")
            ended = served.ended(job)
            assert ended["state"] == "finished" and ended["totals"]["complete"] == 6
            assert ended["totals"]["skipped"] >= 1
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def fill(place: Path) -> None:
    """All room that there is."""
    with place.open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(bytes(4096)):
            pass


def test_a_lab_is_brought_up_asked_and_taken_down(tmp_path: Path) -> None:
    state = {"XDG_RUNTIME_DIR": str(tmp_path / "up")}
    with Served(tmp_path / "service", "--allow-programs", **state) as served:
        upload = served.upload(write_lab(tmp_path / "mine"))
        assert served.post("/up", upload=upload, settings={"name": "other"})["name"] == "other"
        try:
            answer = served.post("/up/other/nodes/h1/exec", argv=["ip", "-br", "addr"])
            assert answer["status"] == 0 and "10.0.0" in answer["stdout"]
            assert served.post("/up/other/nodes/h1/exec", argv=["sh", "-c", "exit 7"])["status"] == 7
            key = served.post("/up/other/nodes/h1/exec", argv=["cat", str(served.folder / "jobs.sqlite")])
            assert key["status"] != 0 and "SQLite" not in key["stdout"]
            assert [lab["is_up"] for lab in served.get("/up")] == [True]
            again = served.http.post("/up", json={"upload": upload, "settings": {"name": "other"}})
            assert again.status_code == 422 and "is up already" in again.text
        finally:
            assert served.http.delete("/up/other").status_code == 204
        assert served.get("/up") == [] and not list((served.folder / "labs").iterdir())


def test_the_command_line_is_a_client(service: Served, tmp_path: Path) -> None:
    """A campaign there looks and ends as one here, and its results are the same files."""
    lab = write_lab(tmp_path / "mine", "20 ms", "[1, 2]")

    def qbed(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "QBED_STORE": "off"}
        command = [sys.executable, "-m", "qbed", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    here = qbed("run", "mine", "--no-images", "--out", "here")
    there = qbed("--server", service.url, "run", "mine", "--no-images", "--out", "there")
    assert (there.returncode, there.stdout) == (0, here.stdout.replace("here", "there"))
    wall = [line for line in here.stderr.splitlines() if " cells complete, in " not in line]
    assert [line for line in there.stderr.splitlines() if " cells complete, in " not in line] == wall and len(wall) == 2
    assert tables(tmp_path / "here") == tables(tmp_path / "there")
    assert qbed("verify", "there").returncode == 0 and qbed("report", "there", "--no-images").returncode == 0
    # exit statuses: a claim that does not come out, a mistake, a service that is not there
    (lab / "campaign.yml").write_text((lab / "campaign.yml").read_text().replace("expect: refuted", "expect: holds"))
    assert qbed("--server", service.url, "run", "mine", "--no-images", "--out", "there").returncode == 1
    (lab / "lab.yml").write_text("name: mine\n")
    wrong = qbed("--server", service.url, "run", "mine", "--out", "there")
    assert wrong.returncode == 2 and "error: lab.yml" in wrong.stderr and "Traceback" not in wrong.stderr
    assert qbed("--server", "http://127.0.0.1:9", "run", "mine").stderr.startswith("error: http://127.0.0.1:9 does not")
    assert "mine" in qbed("--server", service.url, "jobs").stdout
    assert qbed("--server", service.url, "ps").returncode == 2


def test_python_is_a_client(service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lab = write_lab(tmp_path / "mine", "20 ms", "[1, 2]")
    there = qbed.Service(service.url)
    job = there.submit(lab, seeds=[2], images=False)
    kinds: list[str] = []
    run = job.wait(progress=lambda event: kinds.append(event["event"]))
    assert run.folder.parent == tmp_path / "runs" and run.holds and run.verify() == []
    assert [row["seed"] for row in run.table("cells").to_pylist()] == [2]
    assert "concluded" in kinds and "refused" not in kinds
    assert (job.status["state"], job.status["exit_status"]) == ("finished", 0)
    assert job in there.jobs() and there.job(job.number).wait(out="again").holds
    # a lab alone, with a field of its own
    alone = there.submit(qbed.load(lab).set(duration="10 ms"), images=False).wait(out="alone")
    assert alone.sql("SELECT duration_ns FROM cells").to_pylist() == [{"duration_ns": 10_000_000}]
    stopped = there.submit(qbed.load(lab).set(duration="100 s"), images=False)
    stopped.cancel()
    with pytest.raises(LabError, match="was cancelled"):
        stopped.wait()
    with pytest.raises(LabError, match="no scheme is called `droptial`"):
        there.submit(qbed.load(lab).set({"switches.default.scheme": "droptial"})).wait()
    with pytest.raises(TypeError, match=r"submit\(\) has no `profil`; did you mean `profile`"):
        there.submit(lab, profil="quick")
    with pytest.raises(QbedError, match="on a service a campaign runs whole"):
        there.submit(lab, shard=(1, 2))
    with pytest.raises(QbedError, match="which service"):
        qbed.Service()
