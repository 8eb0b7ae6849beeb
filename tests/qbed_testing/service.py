# SPDX-License-Identifier: Apache-2.0
"""A `qbed serve` process and an HTTP client for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

LAB = """\
name: mine
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 20 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
workload: [{flows: {pairs: [[h1, h3], [h2, h3]], size: 400 MB, spread: 50 us, label: bulk}}]
observe: {queues: 100 us, flows: 1 ms}
duration: DURATION
"""
CAMPAIGN = """\
question: Does it fill?
axes: {seed: SEEDS}
claims:
  - name: a-queue
    paper: A queue forms where two senders meet.
    random: RANDOM
    sql: SELECT max(max_bytes) > 30000 AS holds, max(max_bytes) AS most_bytes FROM queues
  - name: no-drops
    paper: Nothing is lost.
    random: RANDOM
    expect: refuted
    why: Drop-tail.
    sql: SELECT sum(dropped_packets) = 0 AS holds, sum(dropped_packets) AS drops FROM cells
"""


def write_lab(folder: Path, duration: str = "20 ms", seeds: str = "[1]") -> Path:
    """Write a lab folder with a campaign. With one seed its claims are not random, so that they are decided."""
    folder.mkdir(exist_ok=True)
    (folder / "lab.yml").write_text(LAB.replace("DURATION", duration))
    random = "no" if seeds == "[1]" else "yes"
    (folder / "campaign.yml").write_text(CAMPAIGN.replace("SEEDS", seeds).replace("RANDOM", random))
    return folder


class ServiceProcess:
    """A `qbed serve` process in `folder`; leaving the context stops it. `under`: a program that runs it."""

    def __init__(self, folder: Path, *options: str, under: Sequence[str] = (), **environment: str) -> None:
        self.folder = folder
        self._options, self._under, self._environment = options, under, environment
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "qbed", "serve", "--folder", str(self.folder), "--port", "0", *self._options]
        environment = {**os.environ, "QBED_STORE": "off", **self._environment}
        self.process = subprocess.Popen([*self._under, *command], env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("qbed serves at "), line
        self.url = line.split()[-1].rstrip("/")
        self.http = httpx.Client(base_url=f"{self.url}/api", timeout=60, trust_env=False)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.http.close()
        self.process.send_signal(how)
        status = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def __enter__(self) -> ServiceProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()

    def post(self, path: str, **body: Any) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def get(self, path: str) -> Any:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def upload(self, folder: Path) -> str:
        from qbed.service.client import packed

        headers = {"content-type": "application/zip"}
        answer = self.http.post("/uploads", content=packed(folder), headers=headers)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["upload"])

    def submit(self, folder: Path, **more: Any) -> int:
        return int(self.post("/jobs", upload=self.upload(folder), **({"images": False} | more))["id"])

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """The names and data of a stream's events until the stream ends."""
        name = ""
        with self.http.stream("GET", path) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    yield name, json.loads(line[6:])

    def wait_until_ended(self, job: int) -> Any:
        """Wait for a job's end, and return the job."""
        for _ in self.events(f"/jobs/{job}/events"):
            pass
        return self.get(f"/jobs/{job}")

    def wait_for(self, job: int, condition: Any) -> Any:
        """Poll a job until a condition holds, and return the job. There is no time limit."""
        while not condition(found := self.get(f"/jobs/{job}")):
            assert found["state"] in ("queued", "running", "cancelling"), found
            time.sleep(0.05)
        return found


def descendants(pid: int) -> set[int]:
    """The process ids of all descendants of a process."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            try:
                children = [int(child) for child in task.read_text().split()]
            except OSError:
                continue
            waiting += children
            found |= set(children)
    return found
