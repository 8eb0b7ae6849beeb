# SPDX-License-Identifier: Apache-2.0
"""A Debian machine without systemd, over SSH: preparation, a lab, a campaign, a Dask worker, and failures."""

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


def packages(machine: Machine) -> str:
    return machine.run("dpkg-query", "--show").stdout


def test_check_mode_changes_nothing_on_a_new_machine(bench: Machine) -> None:
    before = packages(bench)
    checked = bench.play("prepare.yml", "--check")
    assert checked.succeeded and checked.changed > 0, checked.text
    assert packages(bench) == before and bench.run("ls", "-A", "qbed", ".cache").stdout == ""
    assert bench.run("test", "-e", "/etc/sysctl.d/60-qbed.conf").returncode == 1


def test_a_machine_is_prepared(first: PlaybookResult, bench: Machine) -> None:
    assert first.succeeded and first.changed >= 10, first.text
    assert bench.run("docker", "info", "--format", "{{.ServerVersion}}").stdout.strip(), "the machine's engine answers"
    assert "bench" in bench.run("getent", "group", "docker").stdout
    assert "0.69.3" in bench.run("containerlab", "version").stdout
    assert bench.run("cat", "/proc/sys/net/core/somaxconn").stdout == "5000\n"
    assert bench.run("cat", "/proc/sys/net/ipv4/ip_local_port_range").stdout.split() == ["20000", "60999"]
    assert "net.core.somaxconn = 5000\n" in bench.run("cat", "/etc/sysctl.d/60-qbed.conf").stdout
    assert bench.run("sh", "-c", "command -v gcc").returncode != 0, "a copied toolchain needs no compiler"


def test_removed_files_of_the_checkout_are_removed_and_others_stay(prepared: Machine) -> None:
    assert prepared.run("test", "-e", f"qbed/docs/{SCRATCH}").returncode == 0, "the file existed at the first run"
    prepared.run("touch", "qbed/docs/of-the-machine")
    done = prepared.play("prepare.yml", "--tags", "toolchain")
    assert done.succeeded and done.changed > 0, done.text
    assert prepared.run("test", "-e", f"qbed/docs/{SCRATCH}").returncode == 1
    assert prepared.run("test", "-e", "qbed/docs/of-the-machine").returncode == 0


def test_a_second_run_changes_nothing(prepared: Machine) -> None:
    again = prepared.play("prepare.yml")
    assert again.succeeded and again.changed == 0, again.text


def test_a_binary_of_the_controller_replaces_an_older_containerlab(prepared: Machine, tmp_path: Path) -> None:
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


def test_a_lab_is_brought_up_and_taken_down(prepared: Machine) -> None:
    def lab(state: str) -> PlaybookResult:
        return prepared.play("lab.yml", lab_folder="labs/dumbbell/", lab_state=state)

    def remains() -> str:
        return prepared.run("sh", "-c", "ls -A ~/.local/state/qbed; pgrep -f '[q]bed.keeper|[q]bed-agent'").stdout

    checked = prepared.play("lab.yml", "--check", lab_folder="labs/dumbbell")
    assert checked.succeeded and checked.changed == 0 and remains() == "", checked.text
    assert (up := lab("present")).succeeded and up.changed == 1, up.text
    assert (again := lab("present")).succeeded and again.changed == 0, again.text
    ping = prepared.run("qbed/.venv/bin/qbed", "exec", "dumbbell", "h1", "--", "ping", "-c1", "10.0.0.5")
    assert "1 received" in ping.stdout, ping.stdout + ping.stderr
    assert remains() != ""
    assert (down := lab("absent")).succeeded and down.changed == 1, down.text
    assert (again := lab("absent")).succeeded and again.changed == 0, again.text
    assert remains() == ""


def test_a_remote_campaign_equals_a_local_one(prepared: Machine, tmp_path: Path) -> None:
    campaign = {"campaign_lab": "labs/dumbbell", "campaign_profile": "quick", "campaign_poll": 1}

    def run() -> PlaybookResult:
        return prepared.play("campaign.yml", campaign_results=str(tmp_path / "runs"), **campaign)

    checked = prepared.play("campaign.yml", "--check", campaign_results=str(tmp_path / "runs"), **campaign)
    assert checked.succeeded and checked.changed == 0 and not (tmp_path / "runs").exists(), checked.text
    assert (first := run()).succeeded and first.changed > 0, first.text
    local = tmp_path / "local"
    command = [sys.executable, "-m", "qbed", "run", "labs/dumbbell", "--profile", "quick", "--out", str(local)]
    subprocess.run([*command, "--no-images"], cwd=ROOT, check=True, capture_output=True)
    remote = tmp_path / "runs" / "machine" / "dumbbell-quick"
    assert hashes(remote) == hashes(local) and len(hashes(local)) == 8
    assert {"report.html", "claims.json", "meta.json"} <= {path.name for path in remote.iterdir()}
    assert [path.name for path in remote.parent.iterdir()] == ["dumbbell-quick"], "no other file remains"
    assert (again := run()).succeeded and again.changed == 0, again.text

    (remote / "meta.json").unlink()
    assert (fetched := run()).succeeded and hashes(remote) == hashes(local), (
        "missing results are fetched, not run again"
    )
    assert fetched.changed > 0, fetched.text

    def collect(name: str) -> PlaybookResult:
        return prepared.play("collect.yml", collect_name=name, collect_results=str(tmp_path / "collected"))

    assert (copied := collect("dumbbell-quick")).succeeded and copied.changed > 0, copied.text
    assert hashes(tmp_path / "collected" / "machine" / "dumbbell-quick") == hashes(local)
    assert (again := collect("dumbbell-quick")).succeeded and again.changed == 0, again.text
    missing = collect("dumbell")
    assert missing.status != 0 and "collect_name: machine has no finished campaign in" in missing.message


def test_a_machine_is_a_worker_until_its_state_is_absent(prepared: Machine, engine: str, tmp_path: Path) -> None:
    file, log = tmp_path / "scheduler.json", tmp_path / "scheduler.log"
    where = ["--host", engine, "--port", "0", "--no-dashboard", "--no-show", "--scheduler-file", str(file)]
    with log.open("w") as text:
        scheduler = subprocess.Popen([sys.executable, "-m", "dask", "scheduler", *where], stdout=text, stderr=text)
    try:
        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        address = str(json.loads(file.read_text())["address"])

        def worker(state: str, to: str = address) -> PlaybookResult:
            return prepared.play("worker.yml", worker_scheduler=to, worker_state=state, worker_count=1)

        checked = prepared.play("worker.yml", "--check", worker_scheduler=address)
        assert checked.succeeded and checked.changed == 0, checked.text
        assert (started := worker("present")).succeeded and started.changed == 1, started.text
        assert (again := worker("present")).succeeded and again.changed == 0, again.text
        other = worker("present", "tcp://192.0.2.1:8786")
        assert f"the machine works for {address} already: worker_state: absent first" in other.message
        runs = {out: tmp_path / out for out in ("remote", "local")}
        run = [sys.executable, "-m", "qbed", "run", "labs/dumbbell", "--profile", "quick", "--no-images", "--out"]
        environment = {**os.environ, "QBED_STORE": "1 GB", "QBED_CACHE": str(tmp_path / "cache")}
        environment |= {"QBED_TOOLCHAIN": str(find_toolchain().folder)}
        for out, options in (("remote", ["--scheduler", address]), ("local", ["--no-store"])):
            done = subprocess.run(
                [*run, str(runs[out]), *options], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, done.stdout + done.stderr
        assert hashes(runs["remote"]) == hashes(runs["local"]) and len(hashes(runs["local"])) == 8
        kept = prepared.run("sh", "-c", "ls -d ~/.cache/qbed/cells/??/*").stdout.split()
        assert len(kept) >= 3, "the cells are in the machine's store"
        assert (stopped := worker("absent")).succeeded and stopped.changed == 1, stopped.text
        assert (again := worker("absent")).succeeded and again.changed == 0, again.text
        assert prepared.run("pgrep", "-f", "dask worker").stdout == ""
    finally:
        scheduler.kill()
        scheduler.wait()


def test_a_campaign_over_its_time_limit_is_stopped_with_a_message(prepared: Machine, tmp_path: Path) -> None:
    variables = {"campaign_lab": "labs/datacenter", "campaign_timeout": 2, "campaign_poll": 1}
    late = prepared.play("campaign.yml", campaign_results=str(tmp_path), **variables)
    assert late.status != 0
    assert "machine: the campaign took longer than campaign_timeout, 2 s; finished cells are kept" in late.message
    deadline = time.monotonic() + 20
    while (processes := prepared.run("pgrep", "-f", "qbed run|qbed-agent").stdout) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert processes == "", "the run and its guests have ended"


def test_results_of_a_campaign_with_a_failed_claim_are_fetched(prepared: Machine, tmp_path: Path) -> None:
    variables = {"campaign_lab": "labs/dumbbell", "campaign_profile": "quick", "campaign_name": "slow"}
    variables["campaign_seeds"] = "1..16"  # As many as a claim needs to change the exit status.
    settings = {"links.default.rate": "1 Gbit/s", "duration": "33 ms"}
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
