# SPDX-License-Identifier: Apache-2.0
"""docker-compose.yml: its configuration, and a run of all services but Grafana, with InfluxDB from Debian."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

ROOT = Path(__file__).parents[2]
INFLUXDB = "qbed-test-influxdb"
RUN = "labs/dumbbell --profile quick --no-images --no-store --out runs/compose --set duration=40ms"


def compose(environment: dict[str, str], *arguments: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "tools/compose"), *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=timeout_s
    )


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_images_are_pinned_and_ports_are_on_loopback() -> None:
    done = compose({"QBED_ORCHESTRATOR_IMAGE": "qbed-orchestrator:0123"}, "config", "--format", "json")
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    assert set(services) == {"influxdb", "grafana", "orchestrator"}
    for name, service in services.items():
        assert re.fullmatch(r"[a-z/-]+:(\d+(\.\d+)+|0123)", service["image"]), name
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", ())), name
    grafana = services["grafana"]
    places = {volume["target"]: Path(volume["source"]) for volume in grafana["volumes"]}
    provider = yaml.safe_load((places["/etc/grafana/provisioning"] / "dashboards/qbed.yml").read_text())["providers"][0]
    assert any(places[provider["options"]["path"]].glob("*.json"))
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (places[str(home.parent)] / home.name).exists()
    source = yaml.safe_load((places["/etc/grafana/provisioning"] / "datasources/qbed.yml").read_text())["datasources"]
    assert urllib.parse.urlsplit(source[0]["url"]).hostname in services
    assert grafana["environment"]["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert "QBED_ORCHESTRATOR_IMAGE" in compose({}, "config").stderr


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a new Compose project, which is removed at the end."""
    done = subprocess.run([ROOT / "tools/images", "orchestrator"], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    image = dict(line.split() for line in done.stdout.splitlines())["orchestrator"]
    built = subprocess.run(
        ["docker", "build", "--quiet", "--tag", INFLUXDB, ROOT / "tests/images/influxdb"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    (tmp_path / "runs").mkdir()
    variables = {
        "COMPOSE_PROJECT_NAME": f"qbed-{uuid.uuid4().hex[:8]}",
        "QBED_INFLUXDB_IMAGE": INFLUXDB,
        "QBED_INFLUXDB_PORT": str(free_port()),
        "QBED_ORCHESTRATOR_IMAGE": image,
        "QBED_USER": str(os.getuid()),
        "QBED_RUN": RUN,
    }
    yield variables
    compose(variables, *compose_files(tmp_path), "down", "--volumes", "--timeout", "2")


def compose_files(folder: Path) -> tuple[str, ...]:
    """Compose's options that mount `folder`/runs for the runs."""
    override = folder / "override.yml"
    volumes = {"volumes": [f"{folder}/runs:/work/runs"]}
    override.write_text(yaml.safe_dump({"services": {"orchestrator": volumes}}))
    return ("--file", str(ROOT / "docker-compose.yml"), "--file", str(override))


def query_influxdb(port: str, query: str) -> list[Any]:
    parameters = urllib.parse.urlencode({"db": "qbed", "q": query})
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/query?{parameters}", timeout=20) as answer:
                found: list[Any] = json.load(answer)["results"][0]["series"][0]["values"]
                return found
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_a_campaign_writes_its_points_to_influxdb(environment: dict[str, str], tmp_path: Path) -> None:
    up = ("up", "--exit-code-from", "orchestrator", "--attach", "orchestrator", "influxdb", "orchestrator")
    done = compose(environment, *compose_files(tmp_path), *up, timeout_s=400)
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout + done.stderr
    assert "NOT DELIVERED" not in output and re.search(r"\d+ points to http://influxdb:8086/qbed", output)
    started = compose(environment, *compose_files(tmp_path), "up", "--detach", "--wait", "influxdb")  # its data is kept
    assert started.returncode == 0, started.stderr
    port = environment["QBED_INFLUXDB_PORT"]
    series = f"{tmp_path}/runs/compose/queue_series.parquet"
    rows, marks = duckdb.sql(f"SELECT count(*), sum(marked) FROM '{series}'").fetchall()[0]
    assert query_influxdb(port, 'SELECT count("t_us"), sum("marked") FROM "queue"')[0][1:] == [rows, marks]
    cells = duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/runs/compose/cells.parquet'").fetchall()[0][0]
    assert query_influxdb(port, "SELECT count(\"complete\") FROM result WHERE axis = 'seed'")[0][1] == cells
    assert query_influxdb(port, 'SELECT count("holds") FROM claim')[0][1] > 0
