# SPDX-License-Identifier: Apache-2.0
"""A bare Debian machine without systemd, reached by SSH: prepared, a lab, a campaign, and what goes wrong there."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from qbed.substrates.toolchain import find_toolchain

from qbed_testing.machines import ROOT, SCRATCH, Machine, PlaybookResult, containerlab


def hashes(run: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(run.glob("*.parquet"))}


def test_a_bare_machine_is_prepared(first: PlaybookResult, bench: Machine) -> None:
    assert first.succeeded and first.changed >= 10, first.text
    assert bench.run("docker", "info", "--format", "{{.ServerVersion}}").stdout.strip(), "its own engine answers"
    assert "bench" in bench.run("getent", "group", "docker").stdout
    assert "0.69.3" in bench.run("containerlab", "version").stdout
    assert bench.run("cat", "/proc/sys/net/core/somaxconn").stdout == "5000\n"
    assert bench.run("cat", "/proc/sys/net/ipv4/ip_local_port_range").stdout.split() == ["20000", "60999"]
    assert "net.core.somaxconn = 5000\n" in bench.run("cat", "/etc/sysctl.d/60-qbed.conf").stdout
    assert bench.run("sh", "-c", "command -v gcc").returncode != 0, "a copied toolchain needs no compiler"


def test_files_that_vanished_here_vanish_there_and_others_stay(prepared: Machine) -> None:
    assert prepared.run("test", "-e", f"qbed/docs/{SCRATCH}").returncode == 0, "it was here at the first run"
    prepared.run("touch", "qbed/docs/of-the-machine")
    went = prepared.play("prepare.yml", "--tags", "toolchain")
    assert went.succeeded and went.changed > 0, went.text
    assert prepared.run("test", "-e", f"qbed/docs/{SCRATCH}").returncode == 1
    assert prepared.run("test", "-e", "qbed/docs/of-the-machine").returncode == 0


def test_a_second_run_changes_nothing(prepared: Machine) -> None:
    again = prepared.play("prepare.yml")
    assert again.succeeded and again.changed == 0, again.text


def test_a_binary_of_the_controllers_replaces_an_older_containerlab(prepared: Machine, tmp_path: Path) -> None:
    wanted = {
        "containerlab_version": "9.9.9",
        "containerlab_source": "file",
        "containerlab_file": str(containerlab(tmp_path / "containerlab", "9.9.9")),
    }
    copied = prepared.play("prepare.yml", "--tags", "containerlab", **wanted)
    assert copied.succeeded and copied.changed == 1, copied.text
    assert "9.9.9" in prepared.run("containerlab", "version").stdout
    again = prepared.play("prepare.yml", "--tags", "containerlab", **wanted)
    assert again.succeeded and again.changed == 0, again.text


def test_a_lab_comes_up_stays_and_goes_without_a_trace(prepared: Machine) -> None:
    def lab(state: str) -> PlaybookResult:
        return prepared.play("lab.yml", lab_folder="labs/dumbbell/", lab_state=state)

    def left() -> str:
        return prepared.run("sh", "-c", "ls -A ~/.local/state/qbed; pgrep -f '[q]bed.keeper|[q]bed-agent'").stdout

    assert (up := lab("present")).succeeded and up.changed == 1, up.text
    assert (again := lab("present")).succeeded and again.changed == 0, again.text
    ping = prepared.run("qbed/.venv/bin/qbed", "exec", "dumbbell", "h1", "--", "ping", "-c1", "10.0.0.5")
    assert "1 received" in ping.stdout, ping.stdout + ping.stderr
    assert left() != ""
    assert (down := lab("absent")).succeeded and down.changed == 1, down.text
    assert (again := lab("absent")).succeeded and again.changed == 0, again.text
    assert left() == ""


def test_a_campaign_there_is_equal_to_one_here_to_the_byte(prepared: Machine, tmp_path: Path) -> None:
    campaign = {"campaign_lab": "labs/dumbbell", "campaign_profile": "quick", "campaign_poll": 1}

    def run() -> PlaybookResult:
        return prepared.play("campaign.yml", campaign_results=str(tmp_path / "runs"), **campaign)

    assert (ran := run()).succeeded and ran.changed > 0, ran.text
    here = tmp_path / "here"
    command = [sys.executable, "-m", "qbed", "run", "labs/dumbbell", "--profile", "quick", "--out", str(here)]
    subprocess.run([*command, "--no-images"], cwd=ROOT, check=True, capture_output=True)
    there = tmp_path / "runs" / "machine" / "dumbbell-quick"
    assert hashes(there) == hashes(here) and len(hashes(here)) == 5
    assert {"report.html", "claims.json", "meta.json"} <= {path.name for path in there.iterdir()}
    assert [path.name for path in there.parent.iterdir()] == ["dumbbell-quick"], "nothing else was left"
    assert (again := run()).succeeded and again.changed == 0, again.text

    (there / "meta.json").unlink()
    assert (anew := run()).succeeded and hashes(there) == hashes(here), "lost results are brought again, not run again"
    assert anew.changed > 0, anew.text


def test_a_machine_works_for_a_scheduler_until_it_is_told_to_stop(
    prepared: Machine, engine: str, tmp_path: Path
) -> None:
    file, log = tmp_path / "scheduler.json", tmp_path / "scheduler.log"
    where = ["--host", engine, "--port", "0", "--no-dashboard", "--no-show", "--scheduler-file", str(file)]
    with log.open("w") as text:
        scheduler = subprocess.Popen([sys.executable, "-m", "dask", "scheduler", *where], stdout=text, stderr=text)
    try:
        until = time.monotonic() + 60
        while not file.exists() and time.monotonic() < until:
            time.sleep(0.1)
        address = str(json.loads(file.read_text())["address"])

        def worker(state: str, to: str = address) -> PlaybookResult:
            return prepared.play("worker.yml", worker_scheduler=to, worker_state=state, worker_count=1)

        assert (began := worker("present")).succeeded and began.changed == 1, began.text
        assert (again := worker("present")).succeeded and again.changed == 0, again.text
        other = worker("present", "tcp://192.0.2.1:8786")
        assert f"the machine works for {address} already: worker_state: absent first" in other.message
        runs = {out: tmp_path / out for out in ("there", "here")}
        run = [sys.executable, "-m", "qbed", "run", "labs/dumbbell", "--profile", "quick", "--no-images", "--out"]
        environment = {**os.environ, "QBED_STORE": "1 GB", "QBED_CACHE": str(tmp_path / "cache")}
        environment |= {"QBED_TOOLCHAIN": str(find_toolchain().folder)}
        for out, options in (("there", ["--scheduler", address]), ("here", ["--no-store"])):
            done = subprocess.run(
                [*run, str(runs[out]), *options], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, done.stdout + done.stderr
        assert hashes(runs["there"]) == hashes(runs["here"]) and len(hashes(runs["here"])) == 5
        kept = prepared.run("sh", "-c", "ls -d ~/.cache/qbed/cells/??/*").stdout.split()
        assert len(kept) >= 3, "they were run on the machine, into its store"
        assert (ended := worker("absent")).succeeded and ended.changed == 1, ended.text
        assert (again := worker("absent")).succeeded and again.changed == 0, again.text
        assert prepared.run("pgrep", "-f", "dask worker").stdout == ""
    finally:
        scheduler.kill()
        scheduler.wait()


def test_a_campaign_that_takes_too_long_is_ended_with_a_message(prepared: Machine, tmp_path: Path) -> None:
    variables = {"campaign_lab": "labs/datacenter", "campaign_timeout": 2, "campaign_poll": 1}
    late = prepared.play("campaign.yml", campaign_results=str(tmp_path), **variables)
    assert late.status != 0
    assert "machine: the campaign took longer than campaign_timeout, 2 s; finished cells are kept" in late.message
    until = time.monotonic() + 20
    while (left := prepared.run("pgrep", "-f", "qbed run|qbed-agent").stdout) and time.monotonic() < until:
        time.sleep(0.2)
    assert left == "", "the run was ended, and its guests with it"


def test_a_campaign_whose_claim_fails_brings_its_results_and_fails(prepared: Machine, tmp_path: Path) -> None:
    variables = {"campaign_lab": "labs/dumbbell", "campaign_profile": "quick", "campaign_name": "slow"}
    settings = {"links.default.rate": "1 Gbit/s", "duration": "10 ms"}
    failed = prepared.play(
        "campaign.yml", campaign_results=str(tmp_path), campaign_settings=settings, campaign_poll=1, **variables
    )
    assert failed.status != 0 and "refuted" in failed.message and f"The results are in {tmp_path}" in failed.message
    assert (tmp_path / "machine" / "slow" / "claims.json").exists()


def test_a_toolchain_of_another_release_is_refused(prepared: Machine) -> None:
    newer = "cp -a /usr/lib/os-release /root/; sed -i s/12/13/ /usr/lib/os-release; cp -a /etc/debian_version /root/"
    prepared.run("sh", "-c", f"{newer}; echo 13.1 >/etc/debian_version", user="root")
    try:
        refused = prepared.play("prepare.yml", "--tags", "toolchain")
    finally:
        older = "mv /root/os-release /usr/lib/os-release; mv /root/debian_version /etc/debian_version"
        prepared.run("sh", "-c", older, user="root")
    assert refused.status != 0
    assert "machine is Debian 13 x86_64, the controller Debian 12 x86_64; expected the same release" in refused.message
