# SPDX-License-Identifier: Apache-2.0
"""The service's API, without a job that runs: what is taken, how jobs change, what is answered."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import sqlite3
import stat
import tarfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():  # of Starlette, which would rather have another version of httpx
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

from uploads import LAB, zipped

from qbed.base.crash_report import is_full
from qbed.service.app import make_app
from qbed.service.client import files_of
from qbed.service.events import EVENTS, append_events, latest, parsed
from qbed.service.guard import Rates
from qbed.service.jobs import RUN, FullError, Jobs
from qbed.service.settings import Settings, SettingsError
from qbed.service.states import ENDED, RULES, TransitionError, after

TOKEN = "a-token-of-many-letters"


def client_of(folder: Path, **more: Any) -> TestClient:
    """A service that starts no job."""
    return TestClient(make_app(Settings(folder, jobs=0, **more)), base_url="http://127.0.0.1:8410")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with client_of(tmp_path) as client:
        yield client


def test_the_page_links_to_grafana_and_the_host_name_of_the_url_is_allowed(tmp_path: Path) -> None:
    with client_of(tmp_path, grafana='http://localhost:3000/?a=1&b="2"', names=("lab.example",)) as client:
        page = client.get("/", headers={"host": "lab.example:8410"})
        assert page.status_code == 200 and client.get("/", headers={"host": "other.example"}).status_code == 421
        assert '<a href="http://localhost:3000/?a=1&amp;b=&quot;2&quot;">Grafana</a></nav>' in page.text
    with client_of(tmp_path / "second") as client:
        assert "Grafana" not in client.get("/").text


def tarred(*members: tuple[tarfile.TarInfo, bytes], gz: bool = True) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz" if gz else "w") as packed:
        for member, content in members:
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    return target.getvalue()


def send(client: TestClient, archive: bytes, kind: str = "application/zip") -> Any:
    return client.post("/api/uploads", content=archive, headers={"content-type": kind})


def submitted(client: TestClient, **more: Any) -> Any:
    return client.post("/api/jobs", json={"lab": "dumbbell", "profile": "quick", **more})


# --- jobs ---


def test_a_job_waits_is_cancelled_retried_and_removed(client: TestClient) -> None:
    job = submitted(client, seeds=[1, 2], settings={"duration": "1 ms"})
    assert job.status_code == 201 and job.json()["state"] == "queued"
    place = f"/api/jobs/{job.json()['id']}"
    assert client.get("/api/jobs").json() == [client.get(place).json()]
    assert client.delete(place).status_code == 409  # it has not ended
    assert client.post(f"{place}/retry").status_code == 409
    assert client.post(f"{place}/cancel").json()["state"] == "cancelled"
    assert client.post(f"{place}/cancel").json()["errors"] == ["job 1 is cancelled: it cannot cancel now"]
    assert client.post(f"{place}/retry").json()["state"] == "queued"
    assert client.post(f"{place}/cancel").status_code == 200
    assert client.delete(place).status_code == 204
    assert client.get(place).status_code == 404 and client.get("/api/jobs").json() == []


@pytest.mark.parametrize(
    ("request_body", "message"),
    [
        ({"lab": "dumbell"}, "there is no lab dumbell"),
        ({"lab": "../dumbbell"}, "lab"),
        ({"lab": "dumbbell/../../x.yml"}, "lab"),
        ({"lab": "dumbbell/none.yml"}, "there is no lab"),
        ({"lab": None}, "either `lab` or `upload`"),
        ({"upload": "0" * 64}, "either `lab` or `upload`"),
        ({"lab": None, "upload": "0" * 64}, "there is no upload"),
        ({"lab": None, "upload": "../../jobs"}, "upload"),
        ({"seeds": [-1]}, "seeds.0"),
        ({"seeds": []}, "seeds"),
        ({"onn": "virtual"}, "onn"),
        ({"on": "vmware"}, "there is no substrate vmware"),
        ({"on": "containerlab"}, "--allow-containers"),
        ({"cell_timeout": "inf"}, "cell_timeout"),
    ],
)
def test_an_invalid_submission_names_the_field(client: TestClient, request_body: dict[str, Any], message: str) -> None:
    answer = submitted(client, **request_body)
    assert answer.status_code in (403, 404, 422), answer.text
    assert message in " ".join(answer.json()["errors"])
    assert client.get("/api/jobs").json() == []


def test_the_limits_of_the_owner_are_upper_bounds(tmp_path: Path) -> None:
    with client_of(tmp_path, cell_timeout_s=5.0, cell_space_bytes=1000) as client:
        request = submitted(client, cell_timeout=60, cell_space=10**12).json()["request"]
    assert (request["cell_timeout"], request["cell_space"]) == (5.0, 1000)


def test_a_queue_that_is_full_takes_nothing_more(tmp_path: Path) -> None:
    with client_of(tmp_path, queue=3) as client:
        assert [submitted(client).status_code for _ in range(4)] == [201, 201, 201, 429]
        client.post("/api/jobs/1/cancel")
        assert submitted(client).status_code == 201
        full = client.post("/api/jobs/1/retry")
        assert full.status_code == 429 and full.headers["retry-after"]
    with client_of(tmp_path, retention=3) as client:
        assert "remove some" in submitted(client).json()["errors"][0]


def test_jobs_are_still_there_after_a_restart(tmp_path: Path) -> None:
    with client_of(tmp_path) as client:
        before = [submitted(client, seeds=[seed]).json() for seed in range(5)]
    with client_of(tmp_path) as client:
        assert client.get("/api/jobs").json() == before[::-1]
        assert [job["id"] for job in client.get("/api/jobs?limit=2&before=4").json()] == [3, 2]
        assert client.get("/api/jobs?state=running").json() == []
    with sqlite3.connect(tmp_path / "jobs.sqlite") as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_every_rule_leads_somewhere_and_every_state_out() -> None:
    states = {state for rule in RULES.values() for state in rule}
    assert {state for rule in RULES.values() for state in rule.values()} <= states | set(ENDED)
    assert all(after("interrupt", state) is None for state in ENDED)
    assert after("interrupt", "running") == "queued" and after("interrupt", "cancelling") == "cancelled"
    for state in states:  # from everywhere a job can come to its end
        reached, seen = {state}, set[str]()
        while reached - seen:
            seen |= reached
            reached |= {rule[status] for rule in RULES.values() for status in seen if status in rule}
        assert reached & set(ENDED)


def test_of_many_who_start_a_job_one_does(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    job = jobs.add("x", {}, None, queue=1, retention=1)
    won: list[str] = []

    def start() -> None:
        try:
            won.append(jobs.apply(job, "start"))
        except TransitionError:
            won.append("lost")

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == ["lost"] * 7 + ["running"]
    with pytest.raises(FullError):
        jobs.add("x", {}, None, queue=9, retention=1)
    jobs.close()


def test_what_a_crash_has_cut_is_left_out_of_the_events(tmp_path: Path) -> None:
    events = [
        {"event": "attempt"},
        {"event": "cells", "total": 3},
        {"event": "progress", "finished": 1},
    ]
    (tmp_path / EVENTS).write_bytes(b"\n".join(json.dumps(event).encode() for event in events) + b'\n{"event": "prog')
    assert latest(tmp_path)["progress"] == {"event": "progress", "finished": 1}
    again = [{"event": "attempt"}, {"event": "state", "state": "running"}, {"event": "phase", "name": "checking"}]
    with (tmp_path / EVENTS).open("ab") as file:
        file.write(b"\n" + b"".join(json.dumps(event).encode() + b"\n" for event in again))
    assert set(latest(tmp_path)) == {"attempt", "state", "phase"}  # of the last start only


def test_an_event_behind_one_that_a_full_disk_has_cut_is_read(tmp_path: Path) -> None:
    (tmp_path / EVENTS).write_bytes(b'{"event": "prog')
    append_events(tmp_path, {"event": "phase", "name": "claims"}, {"event": "state", "state": "failed"})
    assert [event["event"] for event in parsed((tmp_path / EVENTS).read_bytes().split(b"\n"))] == ["phase", "state"]


class Broken:
    """A database on a disk that is full when a transaction is committed."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def execute(self, sql: str, *more: Any) -> Any:
        if sql == "COMMIT":
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return self._database.execute(sql, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


def test_viewers_get_a_state_after_it_is_on_the_disk(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    job = jobs.add("x", {}, None, queue=1, retention=1)

    def reported_states() -> list[str]:
        lines = (jobs.place(job) / EVENTS).read_bytes().split(b"\n")
        return [event["state"] for event in parsed(lines) if event["event"] == "state"]

    good, jobs._db = jobs._db, Broken(jobs._db)  # type: ignore[assignment]
    for event in ("start", "cancel"):
        with pytest.raises(sqlite3.OperationalError) as full:
            jobs.apply(job, event)
        assert is_full(full.value)
    jobs._db = good
    assert (reported_states(), jobs.get(job)["state"], jobs.get(job)["attempts"]) == (["queued"], "queued", 0)
    jobs.apply(job, "start")
    (jobs.place(job) / EVENTS).rename(tmp_path / "aside")
    (jobs.place(job) / EVENTS).mkdir()  # it cannot be written
    assert jobs.apply(job, "fail", 1) == jobs.get(job)["state"] == "failed"
    jobs.close()


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/secret"), 507, "the service cannot write: no space left"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/secret"), 507, "the service cannot write: disk quota"),
        (OSError(errno.EACCES, "Permission denied", "/secret"), 500, "cannot access its files: permission denied"),
        (sqlite3.OperationalError("attempt to write a readonly database"), 500, "its files: attempt to write"),
    ],
)
def test_only_a_full_disk_is_no_room(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, message: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    if isinstance(error, sqlite3.Error):
        error.sqlite_errorcode = sqlite3.SQLITE_READONLY
    monkeypatch.setattr(Jobs, "newest", refuse)
    answer = client.get("/api/jobs")
    assert answer.status_code == status and message in answer.json()["errors"][0], answer.text
    assert "secret" not in answer.text and "traceback" not in answer.text.lower()


def test_events_are_streamed_from_where_a_client_was(client: TestClient) -> None:
    submitted(client)
    client.post("/api/jobs/1/cancel")
    complete = client.get("/api/jobs/1/events").text
    events = [json.loads(line[6:]) for line in complete.splitlines() if line.startswith("data: ")]
    assert [event.get("state") for event in events] == ["queued", "cancelled", None]
    first = next(line[4:] for line in complete.splitlines() if line.startswith("id: "))
    rest = client.get("/api/jobs/1/events", headers={"last-event-id": first}).text
    assert "queued" not in rest and "cancelled" in rest and rest.endswith("data: {}\n\n")
    assert client.get("/api/jobs/1/samples").text == "event: end\ndata: {}\n\n"
    for what in ("samples", "totals"):
        assert client.get(f"/api/jobs/1/cells/0/{what}").status_code == 404


# --- access ---


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:9"}, 200),
        ({"host": "[::1]:8410"}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"origin": "http://127.0.0.1:8410"}, 200),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_pages_of_others_and_names_of_others_are_refused(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    assert client.get("/api/jobs", headers=headers).status_code == status
    posted = client.post("/api/jobs", json={"lab": "dumbbell"}, headers=headers)
    assert posted.status_code == (201 if status == 200 else status)


def test_a_form_of_another_page_is_no_submission(client: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = client.post("/api/jobs", content=b'{"lab": "dumbbell"}', headers={"content-type": kind})
        assert answer.status_code == 422
        assert send(client, zipped({"lab.yml": LAB}), kind).status_code == 415
    assert client.get("/api/jobs").json() == []


def test_requests_without_the_token_get_nothing(tmp_path: Path) -> None:
    with client_of(tmp_path, token=TOKEN) as client:
        for given in (None, "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer ä".encode().decode("latin-1")):
            headers = {} if given is None else {b"authorization": given.encode("latin-1")}
            for path in ("/api/jobs", "/api/openapi.json", "/api/none"):
                answer = client.get(path, headers=headers)
                assert answer.status_code == 401 and TOKEN not in answer.text
        assert client.get("/api/jobs", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/").status_code == 200  # the page asks for it


def test_beyond_this_machine_a_token_is_needed(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "192.0.2.1", "::", "example.org"):
        with pytest.raises(SettingsError, match=r"needs a token .* TLS"):
            Settings(tmp_path, host).check()
        Settings(tmp_path, host, token=TOKEN).check()
    for host in ("127.0.0.1", "localhost", "::1", "127.9.9.9"):
        Settings(tmp_path, host).check()
    with pytest.raises(SettingsError, match="too short"):
        Settings(tmp_path, token="short").check()
    assert "0.0.0.0" not in Settings(tmp_path, "0.0.0.0", token=TOKEN).known_names
    assert "lab.example" in Settings(tmp_path, names=("Lab.Example",)).known_names


def test_requests_have_a_rate(tmp_path: Path) -> None:
    rates = Rates(10, 3)
    assert [rates.take("a", 0.0) > 0 for _ in range(4)] == [False, False, False, True]
    assert rates.take("b", 0.0) == 0 and rates.take("a", 0.1) == 0 and rates.take("a", 0.1) > 0
    with client_of(tmp_path, rate_per_s=0.001, burst=5) as client:
        answers = [client.get("/api/version") for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [429] and answers[-1].headers["retry-after"]


def test_bodies_have_a_size_whatever_their_header_says(client: TestClient) -> None:
    def pieces() -> Iterator[bytes]:  # chunked, without a length
        for _ in range(9 << 4):
            yield b" " * (1 << 16)

    kind = {"content-type": "application/zip"}
    assert client.post("/api/uploads", content=pieces(), headers=kind).status_code == 413
    assert submitted(client, settings={"x": "y" * (1 << 17)}).status_code == 413


def test_answers_forbid_what_no_page_of_ours_needs(client: TestClient) -> None:
    for path in ("/", "/api/jobs", "/nothing"):
        headers = client.get(path).headers
        assert (
            "unsafe" not in headers["content-security-policy"]
            and "script-src 'self'" in headers["content-security-policy"]
        )
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    page = client.get("/").text
    assert "<script>" not in page and " onclick" not in page and "style=" not in page
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page//etc/passwd", "/page/__init__.py"):
        assert client.get(path).status_code == 404


def test_the_page_has_the_release_of_uplot(client: TestClient) -> None:
    """The page serves dist/uPlot.iife.min.js of version 1.6.31 and requests nothing from other hosts."""
    script = client.get("/page/uPlot.js")
    released, exported = script.content.split(b"\nexport")
    assert hashlib.sha256(released).hexdigest() == "2d27e8ad3d228164525ce213f9dc716f39b4e3aee0cc773fb3491c96cf4921a2"
    assert exported == b" default uPlot;\n" and script.headers["content-type"].startswith("text/javascript")


# --- what is sent ---


def test_a_lab_folder_is_sent_and_run_from_a_copy(client: TestClient, tmp_path: Path) -> None:
    answer = send(client, zipped({"mine/lab.yml": LAB, "mine/sizes/web.txt": b"1 1\n"}))
    assert answer.status_code == 201 and answer.json()["files"] == ["lab.yml", "sizes/web.txt"]
    upload = answer.json()["upload"]
    job = client.post("/api/jobs", json={"upload": upload}).json()
    assert job["name"] == "mine"
    copy = tmp_path / "jobs" / f"{job['id']:06d}" / "lab"
    assert (copy / "lab.yml").read_bytes() == LAB
    tar = tarred((tarfile.TarInfo("lab.yml"), LAB))
    assert send(client, tar, "application/gzip").json()["files"] == ["lab.yml"]
    assert send(client, tarred((tarfile.TarInfo("./lab.yml"), LAB), gz=False), "application/x-tar").status_code == 201
    assert client.post("/api/jobs", json={"upload": upload, "campaign": "other.yml"}).status_code == 404


def link(name: str, kind: bytes, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


HOSTILE = {
    "up": zipped({"../lab.yml": LAB}),
    "up within": zipped({"a/../../lab.yml": LAB}),
    "absolute": zipped({"/tmp/lab.yml": LAB}),
    "backslash": zipped({"..\\lab.yml": LAB}),
    "hidden": zipped({"lab.yml": LAB, ".ssh/authorized_keys": b""}),
    "link in a zip": zipped({"lab.yml": LAB, "x": b"/etc/passwd"}, {"x": stat.S_IFLNK | 0o777}),
    "device in a zip": zipped({"lab.yml": LAB, "x": b""}, {"x": stat.S_IFCHR | 0o666}),
    "twice": zipped({"lab.yml": LAB, "LAB.YML": LAB}),
    "file and folder": zipped({"lab.yml": LAB, "a": b"", "a/b": b""}),
    "many": zipped({"lab.yml": LAB, **{f"f{number}": b"" for number in range(300)}}),
    "deep": zipped({"lab.yml": LAB, "a/b/c/d/e/f": b""}),
    "bomb": zipped({"lab.yml": LAB, "zeros": bytes(32 << 20)}),
    "bomb in a tar": tarred((tarfile.TarInfo("lab.yml"), LAB), (tarfile.TarInfo("zeros"), bytes(32 << 20))),
    "no lab": zipped({"README.md": b"hello"}),
    "empty": zipped({}),
    "nothing": b"",
    "half": zipped({"lab.yml": LAB * 50})[:-30],
    "no archive": b"\x00" * 4096,
    "symbolic link": tarred((tarfile.TarInfo("lab.yml"), LAB), (link("x", tarfile.SYMTYPE, "/etc/passwd"), b"")),
    "hard link": tarred((tarfile.TarInfo("lab.yml"), LAB), (link("x", tarfile.LNKTYPE, "/etc/passwd"), b"")),
    "pipe": tarred((tarfile.TarInfo("lab.yml"), LAB), (link("x", tarfile.FIFOTYPE, ""), b"")),
    "device": tarred((tarfile.TarInfo("lab.yml"), LAB), (link("x", tarfile.CHRTYPE, ""), b"")),
    "NUL": tarred((tarfile.TarInfo("lab\n.yml"), LAB)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_an_archive_leaves_nothing_but_plain_files_in_its_place(client: TestClient, tmp_path: Path, what: str) -> None:
    before = {path for path in tmp_path.rglob("*") if not path.name.startswith("jobs.sqlite")}
    answer = send(client, HOSTILE[what])
    assert answer.status_code == 422 and answer.json()["errors"], answer.text
    assert {path for path in tmp_path.rglob("*") if not path.name.startswith("jobs.sqlite")} == before
    assert not (tmp_path.parent / "lab.yml").exists()


def test_the_oldest_uploads_go(tmp_path: Path) -> None:
    with client_of(tmp_path, uploads=2) as client:
        names = []
        for number in range(3):
            names.append(send(client, zipped({"lab.yml": LAB + b"# %d\n" % number})).json()["upload"])
            os.utime(tmp_path / "uploads" / names[-1], (number, number))
        assert client.post("/api/jobs", json={"upload": names[0]}).status_code == 404
        assert client.post("/api/jobs", json={"upload": names[2]}).status_code == 201


# --- labs, results ---


def test_the_api_lists_labs_and_their_schema(client: TestClient) -> None:
    labs = {lab["name"]: lab for lab in client.get("/api/labs").json()}
    assert "quick" in labs["dumbbell"]["profiles"]
    assert "name: dumbbell" in client.get("/api/labs/dumbbell").json()["texts"]["lab.yml"]
    assert "topology" in client.get("/api/schema").json()["properties"]
    assert client.get("/api/labs/..%2f..%2fetc").status_code == 404
    paths = client.get("/api/openapi.json").json()["paths"]
    assert {"/api/jobs", "/api/jobs/{job}/query", "/api/uploads", "/api/up/{name}/nodes/{node}/exec"} <= set(paths)


def test_labs_and_nodes_of_others_are_not_reached(client: TestClient) -> None:
    run = {"argv": ["id"]}
    assert client.post("/api/up/dumbbell/nodes/h1/exec", json=run).status_code == 403  # the owner allows none
    assert client.delete("/api/up/dumbbell").status_code == 404
    assert client.get("/api/up").json() == []


def test_commands_need_permission_and_a_lab_of_the_service(tmp_path: Path) -> None:
    with client_of(tmp_path, allow_programs=True) as client:
        for lab, node in (("dumbbell", "h1"), ("dumbbell", "--help"), ("-x", "h1")):
            assert client.post(f"/api/up/{lab}/nodes/{node}/exec", json={"argv": ["id"]}).status_code == 404


def test_a_job_without_results_is_reported(client: TestClient) -> None:
    submitted(client)
    assert client.get("/api/jobs/1/files").json() == {}
    assert client.get("/api/jobs/1/cells").json()["cells"] == []
    for name in ("report.html", "../../jobs.sqlite", "%2e%2e/events.ndjson", "cells.parquet", ".lock"):
        assert client.get(f"/api/jobs/1/files/{name}").status_code in (404, 422)
    assert client.post("/api/jobs/1/query", json={"sql": "SELECT 1"}).status_code == 422
    assert client.get("/api/jobs/2").status_code == 404
    for number in ("x", "0", "-1", str(2**70)):
        assert client.get(f"/api/jobs/{number}").status_code == 422


def test_figures_are_sent_in_each_form_and_an_svg_runs_nothing(client: TestClient, tmp_path: Path) -> None:
    submitted(client)
    (folder,) = tmp_path.glob(f"**/{EVENTS}")
    figures = folder.parent / RUN / "figures"
    figures.mkdir(parents=True)
    for name in ("queue.png", "queue.svg", "queue.pdf", ".queue.svg.tmp", ".hidden.svg", "queue.exe"):
        (figures / name).write_text("<svg/>")
    assert list(client.get("/api/jobs/1/files").json()) == [f"figures/queue.{kind}" for kind in ("pdf", "png", "svg")]
    answers = {kind: client.get(f"/api/jobs/1/files/figures/queue.{kind}") for kind in ("png", "svg", "pdf")}
    assert [answer.headers["content-type"] for answer in answers.values()] == [
        "image/png", "image/svg+xml", "application/pdf",
    ]  # fmt: skip
    assert answers["svg"].headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert client.get("/api/jobs/1/files/figures/.hidden.svg").status_code == 404
    assert files_of([*client.get("/api/jobs/1/files").json(), "figures/../x.svg", "figures/x.exe"]) == [
        f"figures/queue.{kind}" for kind in ("pdf", "png", "svg")
    ]
