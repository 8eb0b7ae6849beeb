# SPDX-License-Identifier: Apache-2.0
"""`qbed up --on containerlab`, exec, ps, down with nodes that are threads; calibration; the engine's own messages."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest
from campaigns import write_lab
from fake_nodes import FakeContainerlab, clab
from typer.testing import CliRunner, Result

from qbed.base.errors import QbedError
from qbed.cli import load_commands
from qbed.network.load import load_lab
from qbed.plan.communicating_pairs import shortest_rtt_ns
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.runs.calibrate import LADDER, calibrated, search
from qbed.substrates import CellError, SessionError, SubstrateError, substrate
from qbed.substrates.containers import containerlab
from qbed.substrates.containers import session as containers_session
from qbed.substrates.containers.containerlab import ContainerlabError
from qbed.substrates.containers.engine import Engine, EngineError
from qbed.substrates.containers.labs import lock, read_record, records
from qbed.substrates.sessions import state_folder

__all__ = ["clab"]


def qbed(*arguments: str) -> Result:
    return CliRunner().invoke(load_commands(), list(arguments))


def up(folder: Path, *arguments: str) -> Result:
    return qbed("up", str(write_lab(folder / "lab")), "--on", "containerlab", "--dilate", "7", *arguments)


def test_up_exec_ps_down(clab: FakeContainerlab, tmp_path: Path) -> None:
    done = up(tmp_path)
    assert done.exit_code == 0, done.output
    assert "tiny is up: h1 h2 h3 h4 s1 s2" in done.output and "a second of the lab takes 7 s" in done.output
    assert {node.went["mode"] for node in clab.deployed["tiny"] if node.went} == {"lab"}
    row = qbed("ps").output.splitlines()[1]
    assert row.split()[:2] == ["tiny", "docker"] and "6 of 6 nodes" in row and "containerlab" in row
    record = read_record("tiny")
    assert record is not None and record.state == "up"
    epoch_ns = Plan.loads((record.path / "plan.json").read_bytes()).epoch_ns
    went = {node.went["origin_ns"] + 7 * epoch_ns for node in clab.deployed["tiny"] if node.went}
    assert went == {record.origin_ns}, "time 0 is the epoch"
    assert 0 < (time.monotonic_ns() - record.origin_ns) / 7e9 - float(row.split()[2]) < 1
    done = qbed("exec", "tiny", "h1", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert done.exit_code == 3
    done = qbed("exec", str(tmp_path / "lab"), "h9", "--", "true")
    assert isinstance(done.exception, SessionError) and "no node `h9`; expected one of `h1`" in str(done.exception)
    done = qbed("advance", "tiny", "1 ms")
    assert "its time passes by itself" in str(done.exception)
    assert qbed("down", "tiny").output == "tiny is down\n"
    assert not clab.deployed and not list(state_folder().iterdir())
    assert "tiny" not in qbed("ps").output


def test_a_node_that_hangs_is_not_waited_for_without_end(
    clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clab.behaviour["h1"] = "stuck"
    assert up(tmp_path).exit_code == 0
    monkeypatch.setattr(containers_session, "ANSWER_S", 0.3)
    assert "h1 of tiny has not started the command within 0.3 s" in str(
        qbed("exec", "tiny", "h1", "--", "true").exception
    )
    assert qbed("exec", "tiny", "h2", "--", "sleep", "0.5").exit_code == 0  # a command itself may take its time


def test_a_lab_is_up_once(clab: FakeContainerlab, tmp_path: Path) -> None:
    assert up(tmp_path).exit_code == 0
    assert "the lab tiny is up already" in str(up(tmp_path).exception)
    calls = list(clab.calls)
    again = qbed("up", str(tmp_path / "lab"), "--on", "containerlab")  # refused before it is calibrated
    assert "the lab tiny is up already" in str(again.exception) and clab.calls == calls
    again = qbed("up", str(tmp_path / "lab"))
    assert "the lab tiny is up already" in str(again.exception)
    assert qbed("down", "--all").exit_code == 0


def test_what_does_not_come_up_leaves_nothing(clab: FakeContainerlab, tmp_path: Path) -> None:
    clab.fail = ContainerlabError("containerlab deploy has failed")
    assert "has failed" in str(up(tmp_path).exception)
    clab.fail = None
    clab.behaviour["s2"] = "fail"  # when it has started
    assert "node s2: no such qdisc" in str(up(tmp_path).exception)
    clab.images = set()
    assert "Docker has no image image-host, image-switch" in str(up(tmp_path).exception)
    assert not clab.deployed and not records() and not list(state_folder().iterdir())


def test_down_cleans_up_after_a_crash_in_the_middle(clab: FakeContainerlab, tmp_path: Path) -> None:
    assert up(tmp_path).exit_code == 0
    record = read_record("tiny")
    assert record is not None
    from dataclasses import replace

    replace(record, state="deploying").write()  # as if the orchestrator had been killed while it came up
    assert "broken" in qbed("ps").output
    assert "did not come up" in str(qbed("exec", "tiny", "h1", "--", "true").exception)
    with lock("tiny"):
        assert "comes up" in qbed("ps").output
    assert up(tmp_path).exit_code == 0  # clears the way by itself
    clab.engine_down = EngineError("Docker is not running: start it")
    assert "Docker is not running" in str(qbed("down", "tiny").exception)
    assert read_record("tiny") is not None
    clab.engine_down = None
    assert qbed("down", "tiny").exit_code == 0
    assert not clab.deployed and not records()


def test_down_needs_neither_topology_nor_containerlab(
    clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert up(tmp_path).exit_code == 0
    (tmp_path / "clab-tiny-h1").symlink_to("/proc/1/ns/net")
    (tmp_path / "clab-tiny.conf").touch()
    (tmp_path / "hosts").write_text(
        "127.0.0.1 localhost\n###### CLAB-tiny-START ######\n1.2.3.4 x\n###### CLAB-tiny-END ######\n::1 six\n"
    )

    def gone(topology: Path) -> None:
        raise ContainerlabError("Containerlab is not installed")

    monkeypatch.setattr(containerlab, "destroy", gone)
    assert qbed("down", "tiny").exit_code == 0
    assert not list(tmp_path.glob("clab-tiny*")) and not records()
    assert (tmp_path / "hosts").read_text() == "127.0.0.1 localhost\n::1 six\n"


def test_the_words_of_the_command_line() -> None:
    for arguments, message in (
        (("run", "dumbbell", "--on", "docker"), "expected `virtual` or `containerlab`, or two"),
        (("up", "dumbbell", "--on", "virtual,containerlab"), "expected `virtual` or `containerlab`, got"),
        (("run", "dumbbell", "--on", "containerlab", "--dilate", "0"), "expected a whole number from 1, or `auto`"),
    ):
        done = qbed(*arguments)
        assert done.exit_code == 2 and message.split()[0] in done.output


# --- calibration ---


@pytest.mark.parametrize("smallest", [1, 20, 50, 1000])
def test_the_smallest_faithful_dilation_is_found_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smallest: int
) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    plan, tried = compile_lab(load_lab(write_lab(tmp_path / "lab"))), []
    on = substrate("containerlab")

    def attempt(dilation: int) -> str | None:
        tried.append(dilation)
        return None if dilation >= smallest else "too late"

    assert calibrated(on, plan, attempt) == smallest
    assert len(tried) == len(set(tried)) <= len(LADDER)
    before = len(tried)
    assert calibrated(on, plan, attempt) == smallest and len(tried) == before


def test_the_evidence_of_short_cells_decides(
    clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    plan = compile_lab(load_lab(write_lab(tmp_path / "lab"), {"hosts.default.kernel": "qbed"}))
    on = substrate("containerlab")
    clab.behaviour["s1"] = "slow"  # late by 1 ms, which is a tenth of the shortest round trip at this dilation or above
    found = calibrated(on, plan)
    smaller = LADDER[LADDER.index(found) - 1]
    assert smaller * shortest_rtt_ns(plan) < 10**7 <= found * shortest_rtt_ns(plan)
    assert clab.calls.count("deploy") == clab.calls.count("destroy") > 1 and not records()
    (tmp_path / "cache/dilation.json").unlink()
    clab.behaviour["s1"] = "drop"
    with pytest.raises(CellError, match="even 1000 times slower: s1:eth0 dropped 7 frames"):
        calibrated(on, plan)


def test_a_machine_that_never_keeps_up_is_reported_with_the_cause(tmp_path: Path) -> None:
    plan = compile_lab(load_lab(write_lab(tmp_path / "lab")))
    with pytest.raises(CellError, match="even 1000 times slower: too late"):
        search(plan, lambda dilation: "too late")


# --- the engine and Containerlab say what is wrong ---


def test_an_engine_that_is_not_there_or_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match="Docker is not running"):
        Engine(str(tmp_path / "docker.sock")).check()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "docker.sock"))
    with pytest.raises(EngineError, match="Docker is not running"):
        Engine(str(tmp_path / "docker.sock")).check()
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    with pytest.raises(EngineError, match="expected its own engine"):
        Engine()


def answer(folder: Path, response: bytes) -> Engine:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "engine.sock"))
    listener.listen()

    def serve() -> None:
        client, _ = listener.accept()
        client.recv(1 << 16)
        client.sendall(response)
        client.close()
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    return Engine(str(folder / "engine.sock"))


def test_an_engine_that_refuses_is_quoted(tmp_path: Path) -> None:
    engine = answer(tmp_path, b'HTTP/1.1 500 x\r\nContent-Length: 23\r\n\r\n{"message": "no space"}')
    with pytest.raises(EngineError, match="refuses /version: no space"):
        engine.check()


def test_an_unknown_engine_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="is not a Docker engine"):
        answer(tmp_path, b"SSH-2.0-x\r\n\r\n").check()


def script(folder: Path, text: str) -> None:
    path = folder / "containerlab"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    "output, message",
    [
        ("echo ' version: 0.41.2'", "Containerlab 0.41.2 is too old: expected 0.60.0 or newer"),
        ("echo nonsense >&2; exit 1", "does not say its version; it says: nonsense"),
    ],
)
def test_containerlab_is_looked_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, message: str
) -> None:
    script(tmp_path, output)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    containerlab.find.cache_clear()
    with pytest.raises(ContainerlabError, match=message):
        containerlab.find()
    containerlab.find.cache_clear()


@pytest.mark.parametrize(
    "output, message",
    [
        ("open /x: no space left on device", "deploy: the disk is full: make room"),
        ('containers ["clab-x-h1"] already exist. Add --reconfigure', "deploy: the name is taken"),
        (
            'ERRO failed deploy stage for node "h2": error during connect: Post "http://...": EOF\n'
            "ERRO could not get container: read: connection reset by peer: operation not permitted",
            "deploy: Docker has stopped answering",
        ),
        ("Pool overlaps with other one on this address space", "deploy: its subnet clashes"),
        ("permission denied while trying to connect", "deploy: it needs root: use sudo"),
        ("Cannot connect to the Docker daemon at unix:///x", "deploy: Docker is not running"),
        ("boom", "deploy has failed; it said last:\n    \\| boom"),
    ],
)
def test_containerlab_errors_become_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, message: str
) -> None:
    (tmp_path / "said").write_text(f"11:00:40 INFO Parsing\n\x1b[31m11:00:41 ERRO {output}\x1b[0m\n")
    script(tmp_path, f"[ $1 = version ] && echo 'version: 0.69.3' && exit; cat {tmp_path}/said >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    containerlab.find.cache_clear()
    with pytest.raises(QbedError, match=message) as refused:
        containerlab.deploy(tmp_path / "lab.clab.yml")
    assert isinstance(refused.value, SubstrateError) and "INFO" not in str(refused.value)
    containerlab.find.cache_clear()


def test_a_container_that_goes_while_containerlab_looks_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = 'could not list containers: container "35ce" cannot be found'
    script(
        tmp_path,
        f"[ $1 = version ] && echo 'version: 0.69.3' && exit; echo x >>{tmp_path}/calls\n"
        f"[ $(wc -l <{tmp_path}/calls) -ge 3 ] || {{ echo '{error}' >&2; exit 1; }}",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    containerlab.find.cache_clear()
    containerlab.deploy(tmp_path / "lab.clab.yml")
    assert (tmp_path / "calls").read_text().count("x") == 3
    containerlab.find.cache_clear()
