# SPDX-License-Identifier: Apache-2.0
"""A campaign as array jobs of a real Slurm: slurmctld and slurmd of Debian's on this machine (tools/slurm)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from campaigns import Bench, guests_of, hashes, sent, wait_until

CONF = """\
ClusterName=qbed
SlurmctldHost={host}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
MpiDefault=none
MaxArraySize=8
ReturnToService=2
KillWait=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    if os.geteuid() != 0:
        return "Slurm's daemons are started by root only"
    if not all(map(shutil.which, ("slurmctld", "slurmd", "sbatch"))):
        return "Slurm is not installed here (tools/slurm)"
    return None


pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"slurm: {why_not()}")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    ports = [int(listener.getsockname()[1]) for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    folder = tmp_path / "slurm"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(CONF.format(host=host, folder=folder, ports=free_ports(2)))
    bench.environment |= {"QBED_STORE": "1 GB", "SLURM_CONF": str(folder / "slurm.conf")}
    environment = os.environ | bench.environment
    daemons = []
    try:
        for command in (["slurmctld", "-D", "-i"], ["slurmd", "-D"]):
            log = (folder / f"{command[0]}.out").open("w")
            daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))

        def idle() -> bool:
            done = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True)
            return done.stdout.strip() == "idle"

        wait_until(idle, 60)
        yield bench
    finally:
        for daemon in reversed(daemons):
            daemon.kill()
            daemon.wait()


def tasks(bench: Bench) -> str:
    environment = os.environ | bench.environment
    return subprocess.run(["squeue", "-h"], env=environment, capture_output=True, text=True, check=True).stdout


def test_array_jobs_run_a_campaign(bench: Bench) -> None:
    """More cells than an array may have tasks; a task that is killed is submitted again. Samples of all of them leave
    from here, when their tables are back.
    """
    bench.behave(all="held")
    process = bench.start("run", "lab", "--out", "a", "--no-images", "--slurm", "--ndjson", "samples")
    queue = bench.folder / "cache" / "queue"
    wait_until(lambda: guests_of(queue), 60)
    os.kill(guests_of(queue)[0], 9)
    bench.release()
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0 and "12 of 12 cells complete, in" in out + err, out + err
    assert tasks(bench) == ""
    assert bench.campaign("b", "--no-store")[0] == 0
    assert hashes(bench.folder / "a") == hashes(bench.folder / "b")
    points = sent(bench.folder / "samples")
    series = bench.query("a", "SELECT cell::VARCHAR, count(*) FROM 'RUN/queue_series.parquet' GROUP BY 1")
    assert sorted((cell, many) for (kind, cell), many in points.items() if kind == "queue") == sorted(series)
    assert len(series) == 12 and points["claim", ""] > 0


def test_who_stops_cancels_what_waits(bench: Bench) -> None:
    bench.behave(all="held", seed_1="panic")
    process = bench.start("run", "lab", "--out", "a", "--no-images", "--slurm")
    times = bench.folder / "a" / "cells" / "wall.ndjson"
    wait_until(lambda: times.exists() and times.read_text().count("\n") >= 1, 60)
    time.sleep(0.5)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "the guest's kernel panicked" in out + err, out + err
    wait_until(lambda: tasks(bench) == "" and not guests_of(bench.folder / "cache"), 60)
