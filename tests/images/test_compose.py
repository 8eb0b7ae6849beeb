# SPDX-License-Identifier: Apache-2.0
"""docker-compose.yml: its configuration, and all services but Grafana, with InfluxDB 1 (Debian) and 2 (its module)."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
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
LAB = ("dumbbell", "--profile", "quick", "--no-images", "--no-store", "--set", "duration=40ms")
SECRETS = ("service", "influxdb", "influxdb-password")


def compose(environment: dict[str, str], *arguments: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "tools/compose"), *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=timeout_s
    )


def succeed(environment: dict[str, str], *arguments: str, timeout_s: float = 300) -> str:
    done = compose(environment, *arguments, timeout_s=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def configuration() -> dict[str, Any]:
    """The configuration without any variable of the user."""
    command = [str(ROOT / "tools/compose"), "config", "--format", "json"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("QBED_") or name == "QBED_CACHE"}
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_images_are_built_or_pinned_and_ports_are_on_loopback(configuration: dict[str, Any]) -> None:
    services = configuration["services"]
    assert set(services) == {"secrets", "influxdb", "grafana", "orchestrator"}
    for name, service in services.items():
        if "build" in service:
            folder = Path(service["build"]["context"])
            assert (folder / service["build"]["dockerfile"]).exists() and folder == ROOT, name
        else:
            assert re.fullmatch(r"[a-z/-]+:\d+(\.\d+)+@sha256:[0-9a-f]{64}", service["image"]), name
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", ())), name
        assert "healthcheck" in service, name
    named = {
        volume["source"] for service in services.values() for volume in service["volumes"] if volume["type"] != "bind"
    }
    assert named == set(configuration["volumes"])


def test_the_orchestrator_has_a_read_only_root_and_no_capability(configuration: dict[str, Any]) -> None:
    services = configuration["services"]
    orchestrator = services["orchestrator"]
    assert orchestrator["read_only"] and orchestrator["cap_drop"] == ["ALL"] and "user" not in orchestrator
    assert orchestrator["security_opt"] == ["no-new-privileges:true"]
    for dockerfile in ("compose.Dockerfile", "orchestrator/Dockerfile"):
        assert "\nUSER 1000\n" in (ROOT / "images" / dockerfile).read_text(), dockerfile
    volumes = {volume["target"] for volume in orchestrator["volumes"]}
    memory = {place.partition(":")[0] for place in orchestrator["tmpfs"]}
    assert volumes | memory == {"/secrets", "/var/lib/qbed", "/work/runs", "/dev/shm", "/tmp", "/run/qbed"}
    cache = Path(orchestrator["environment"]["QBED_CACHE"])
    assert any(cache.is_relative_to(volume) for volume in volumes)  # the store of cells stays
    assert services["secrets"]["read_only"] and services["secrets"]["cap_drop"] == ["ALL"]


def test_compose_and_containerlab_use_the_names_of_tools_images(configuration: dict[str, Any], tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "tools/images", "--names"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    images = dict(line.split() for line in done.stdout.splitlines())
    repository = images["orchestrator"].partition(":")[0]
    assert configuration["services"]["orchestrator"]["image"] == f"{repository}:compose"
    assert 'LABEL org.qbed.role="orchestrator"' in (ROOT / "images/compose.Dockerfile").read_text()

    command = [sys.executable, "-m", "qbed", "export", str(ROOT / "labs/dumbbell"), "-o", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    nodes = yaml.safe_load((tmp_path / "dumbbell.clab.yml").read_text())["topology"]["nodes"]
    assert {node["image"] for node in nodes.values()} == {images["host"], images["linux-switch"]}


def installed(file: str) -> set[str]:
    """Debian's packages of an image: of the last stage of its Dockerfile."""
    (line,) = re.findall(r"--no-install-recommends (.*) \\", (ROOT / file).read_text().rpartition("\nFROM ")[2])
    return set(line.split())


def test_the_image_of_compose_has_the_programs_of_that_of_tools_images() -> None:
    """Without iproute2, labs with `qdisc:` (comparison, l4s) do not run."""
    others = installed("images/base/Dockerfile") | installed("images/python/Dockerfile")
    assert "iproute2" in others and installed("images/compose.Dockerfile") == others


def test_an_update_of_the_image_compiles_changed_parts_only() -> None:
    build = (ROOT / "images/compose.Dockerfile").read_text().rpartition("\nFROM ")[0]
    (folder,) = re.findall("QBED_CACHE=(\\S+)", build)
    steps = re.findall(r"(?ms)^RUN .*?(?=^[A-Z#]|\Z)", build)
    compiling = [step for step in steps if "tools/setup" in step or "tools/wheel" in step]
    assert len(compiling) == 1 and f"RUN --mount=type=cache,id=qbed,target={folder} " in compiling[0]


def test_grafana_finds_its_dashboards_and_its_data(configuration: dict[str, Any]) -> None:
    services = configuration["services"]
    grafana = services["grafana"]
    places = {volume["target"]: Path(volume["source"]) for volume in grafana["volumes"]}
    provider = yaml.safe_load((places["/etc/grafana/provisioning"] / "dashboards/qbed.yml").read_text())["providers"][0]
    assert any(places[provider["options"]["path"]].glob("*.json"))
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (places[str(home.parent)] / home.name).exists()
    (source,) = yaml.safe_load((places["/etc/grafana/provisioning"] / "datasources/qbed.yml").read_text())[
        "datasources"
    ]
    assert urllib.parse.urlsplit(source["url"]).hostname in services
    variable = source["secureJsonData"]["httpHeaderValue1"].removeprefix("$")
    script = grafana["entrypoint"][-1].replace("$$", "$")
    assert script == f'{variable}="Token $(cat /secrets/influxdb)" exec /run.sh'
    assert grafana["environment"]["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    linked = [option for option in services["orchestrator"]["command"] if option.startswith("--grafana=")]
    assert linked == [f"--grafana=http://localhost:{grafana['ports'][0]['published']}/"]


@pytest.fixture(scope="module")
def orchestrator_image() -> str:
    """The image of tools/images, or the one that QBED_ORCHESTRATOR_IMAGE names."""
    if image := os.environ.get("QBED_ORCHESTRATOR_IMAGE"):
        return image
    done = subprocess.run([ROOT / "tools/images", "orchestrator"], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())["orchestrator"]


def influxdb_image(version: str, folder: Path) -> str:
    """Build a replacement for an image of InfluxDB without a registry; the test is skipped if that is impossible."""
    context = folder / "context"
    shutil.copytree(ROOT / "tests/images/influxdb" / version[0], context)
    if version != "1.6.7":
        done = subprocess.run([ROOT / "tools/influxd", version], capture_output=True, text=True, timeout=3600)
        if done.returncode == 3:
            pytest.skip(done.stdout.strip())
        assert done.returncode == 0, done.stderr
        shutil.copy(done.stdout.strip(), context / "influxd")
    name = f"qbed-test-influxdb:{version}"
    built = subprocess.run(["docker", "build", "--quiet", "--tag", name, context], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return name


@pytest.fixture(params=["2.9.1", "1.6.7"])
def project(request: pytest.FixtureRequest, tmp_path: Path, orchestrator_image: str) -> Iterator[dict[str, str]]:
    """The environment of a new Compose project, which is removed at the end."""
    variables = {
        "COMPOSE_PROJECT_NAME": f"qbed-{uuid.uuid4().hex[:8]}",
        "QBED_INFLUXDB_IMAGE": influxdb_image(request.param, tmp_path),
        "QBED_INFLUXDB_PORT": str(free_port()),
        "QBED_PORT": str(free_port()),
        "QBED_ORCHESTRATOR_IMAGE": orchestrator_image,
    }
    if request.param == "1.6.7":
        variables["QBED_INFLUXDB_FOLDER"] = "/var/lib/influxdb"
    yield variables
    compose(variables, "down", "--volumes", "--timeout", "5")


def query_influxdb(environment: dict[str, str], token: str, query: str) -> list[Any]:
    parameters = urllib.parse.urlencode({"db": "qbed", "q": query})
    url = f"http://127.0.0.1:{environment['QBED_INFLUXDB_PORT']}/query?{parameters}"
    request = urllib.request.Request(url, headers={"Authorization": f"Token {token}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        found: list[Any] = json.load(answer)["results"][0]["series"][0]["values"]
    return found


def remains(project: str) -> dict[str, list[str]]:
    """The containers, networks and volumes of a Compose project, by name."""
    named = ("--filter", f"label=com.docker.compose.project={project}")
    commands = {
        "containers": ("ps", "--all", *named, "--format", "{{.Names}}"),
        "networks": ("network", "ls", *named, "--format", "{{.Name}}"),
        "volumes": ("volume", "ls", *named, "--format", "{{.Name}}"),
    }
    return {
        kind: subprocess.run(["docker", *command], capture_output=True, text=True, check=True).stdout.split()
        for kind, command in commands.items()
    }


def anonymous_volumes() -> set[str]:
    done = subprocess.run(["docker", "volume", "ls", "--quiet"], capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split() if re.fullmatch("[0-9a-f]{64}", name)}


def test_campaigns_of_all_ways_reach_influxdb_and_stay(project: dict[str, str], tmp_path: Path) -> None:
    """`up`, a campaign by --server and one by `compose run`; `down` leaves named volumes, with which `up` continues."""
    others = anonymous_volumes()
    succeed(project, "up", "--detach", "--wait", "influxdb", "orchestrator")
    tokens = {name: succeed(project, "exec", "-T", "orchestrator", "cat", f"/secrets/{name}") for name in SECRETS}
    assert all(re.fullmatch("[0-9a-f]{48}", token) for token in tokens.values()) and len(set(tokens.values())) == 3
    server = f"http://127.0.0.1:{project['QBED_PORT']}"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{server}/api/jobs", timeout=20)
    if project["QBED_INFLUXDB_IMAGE"].endswith("2.9.1"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            query_influxdb(project, "another", "SHOW MEASUREMENTS")
    page = f"http://localhost:{project['QBED_PORT']}/"
    assert f"{page}#token={tokens['service']}" in succeed(project, "logs", "orchestrator")
    with urllib.request.urlopen(page, timeout=20) as answer:
        assert b'<a href="http://localhost:3000/">Grafana</a>' in answer.read()

    # By the client, as with any service.
    run = tmp_path / "run"
    command = [sys.executable, "-m", "qbed", "--server", server, "run", str(ROOT / "labs" / LAB[0]), *LAB[1:]]
    client = os.environ | {"QBED_TOKEN": tokens["service"]}
    done = subprocess.run([*command, "--out", str(run)], env=client, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    rows, marks = duckdb.sql(f"SELECT count(*), sum(marked) FROM '{run}/queue_series.parquet'").fetchall()[0]
    cells = duckdb.sql(f"SELECT count(*) FROM '{run}/cells.parquet'").fetchall()[0][0]
    counts = (
        'SELECT count("t_us"), sum("marked") FROM "queue"',
        "SELECT count(\"complete\") FROM result WHERE axis = 'seed'",
    )
    assert [query_influxdb(project, tokens["influxdb"], text)[0][1:] for text in counts] == [[rows, marks], [cells]]

    # In a container beside the service.
    output = compose(project, "run", "--rm", "-T", "orchestrator", "run", *LAB, "--out", "runs/second", timeout_s=400)
    assert output.returncode == 0, output.stdout + output.stderr
    assert re.search(r"\d+ points to http://influxdb:8086/qbed", output.stderr) and "NOT DELIVERED" not in output.stderr
    twice = [query_influxdb(project, tokens["influxdb"], text)[0][1:] for text in counts]
    assert twice == [[2 * rows, 2 * marks], [2 * cells]]

    # Named volumes keep all, and nothing else stays.
    succeed(project, "down", "--timeout", "20")
    left = remains(project["COMPOSE_PROJECT_NAME"])
    assert left["containers"] == left["networks"] == [] and anonymous_volumes() <= others
    used = {"secrets", "influxdb-data", "influxdb-config", "state", "runs"}
    assert {name.partition("_")[2] for name in left["volumes"]} == used
    succeed(project, "up", "--detach", "--wait", "influxdb", "orchestrator")
    assert query_influxdb(project, tokens["influxdb"], counts[0])[0][1:] == twice[0]
    request = urllib.request.Request(f"{server}/api/jobs", headers={"Authorization": f"Bearer {tokens['service']}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert [(job["id"], job["state"]) for job in json.load(answer)] == [(1, "finished")]
    listed = succeed(project, "run", "--rm", "-T", "--entrypoint", "ls", "orchestrator", "/work/runs/second")
    assert "report.html" in listed.split()
