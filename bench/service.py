# SPDX-License-Identifier: Apache-2.0
"""`qbed serve`: from a submission to its first sample, and what the server itself costs while a lab of 100 queues is
watched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.harness import Figure

LAB = """\
name: watched
topology: {star: {hosts: 50}}
links: {default: {rate: 1 Gbit/s, delay: 20 us}}
switches: {default: {scheme: droptail, buffer: 128 KB}}
workload: [{incast: {senders: 49, receiver: h1, size: 8 MB}}]
observe: {queues: 100 us, flows: 1 ms}
duration: DURATION
"""
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def served(folder: Path) -> Iterator[tuple[httpx.Client, int]]:
    """A service, and its process."""
    command = [sys.executable, "-m", "qbed", "serve", "--port", "0", "--folder", str(folder)]
    environment = {**os.environ, "QBED_STORE": "off"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        with httpx.Client(base_url=f"{url}api", timeout=120, trust_env=False) as client:
            yield client, process.pid
        process.terminate()


def process_cpu(pid: int) -> float:
    """Seconds of CPU that a process has had, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def watch(client: httpx.Client, pid: int, upload: str, duration: str) -> tuple[float, float]:
    """Seconds until the first sample; the share of a core that the server has while its viewer looks."""
    request = {"upload": upload, "settings": {"duration": duration}, "images": False}
    begun, first, cpu = time.monotonic(), 0.0, process_cpu(pid)
    job = client.post("/jobs", json=request).json()["id"]
    with client.stream("GET", f"/jobs/{job}/samples") as answer:
        for line in answer.iter_lines():
            if line == "event: queues" and not first:
                first = time.monotonic() - begun
    share = (process_cpu(pid) - cpu) / (time.monotonic() - begun)
    assert client.get(f"/jobs/{job}").json()["state"] == "finished"
    return first, share


def measure(rounds: int) -> list[Figure]:
    from qbed.service.client import packed

    with tempfile.TemporaryDirectory() as place:
        lab = Path(place, "lab")
        lab.mkdir()
        (lab / "lab.yml").write_text(LAB.replace("DURATION", "400 ms"))
        (lab / "campaign.yml").write_text(json.dumps({"question": "How long until it is seen?"}))
        with served(Path(place, "service")) as (client, pid):
            headers = {"content-type": "application/zip"}
            upload = client.post("/uploads", content=packed(lab), headers=headers).json()["upload"]
            time.sleep(5)  # the first job finds a process that is warm, as the others do
            seen = []
            for _ in range(rounds):
                seen.append(watch(client, pid, upload, "1500 ms"))
                time.sleep(5)
    return [
        Figure("from a submission to its first sample", min(first for first, _ in seen), "s", 1.0, "<="),
        Figure("the server, of a core, with one viewer of 100 queues", min(share for _, share in seen), "", 0.05, "<="),
    ]
