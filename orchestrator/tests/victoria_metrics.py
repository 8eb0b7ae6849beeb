# SPDX-License-Identifier: Apache-2.0
"""A real VictoriaMetrics, as a process on loopback: a receiver of OTLP with queries."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from influx import free_port

TOOL = Path(__file__).parents[2] / "tools" / "victoria-metrics"


class VictoriaMetrics:
    """The server. Its times are milliseconds, as Grafana's."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"
        self.url = f"{self.root}/opentelemetry"

    def ask(self, path: str, **query: str) -> bytes:
        with urllib.request.urlopen(f"{self.root}{path}?{urllib.parse.urlencode(query)}", timeout=60) as answer:
            found: bytes = answer.read()
        return found

    def series(self, metric: str) -> list[dict[str, Any]]:
        """The series of a metric: `metric` with its labels, `timestamps` in milliseconds, and `values`."""
        self.ask("/internal/force_flush")
        match = f'{{__name__="{metric}"}}'
        # The default end is the last whole second, before samples that a short campaign has just sent.
        content = self.ask("/api/v1/export", **{"match[]": match, "start": "0", "end": str(int(time.time()) + 60)})
        return [json.loads(line) for line in content.splitlines()]


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[VictoriaMetrics]:
    """A server that keeps samples of the year 2000, equal ones once. The test is skipped if there is no program."""
    done = subprocess.run([TOOL], capture_output=True, text=True)
    if done.returncode == 3:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    server = VictoriaMetrics(port := free_port())
    options = [f"-storageDataPath={folder}/data", f"-httpListenAddr=127.0.0.1:{port}", "-retentionPeriod=100y"]
    limits = ["-dedup.minScrapeInterval=1ms", "-memory.allowedBytes=256MB", "-loggerLevel=WARN"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([done.stdout.strip(), *options, *limits], stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                server.ask("/health")
                break
            except OSError:
                assert time.monotonic() < until and process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
        yield server
    finally:
        process.kill()
        process.wait()
