# SPDX-License-Identifier: Apache-2.0
"""The contents and start of the images, and their builder."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qbed import __version__
from qbed.schemes.declaration import registry
from qbed.substrates.toolchain import find_toolchain

ROOT = Path(__file__).parents[2]
NODES = ("host", "linux-switch", "router")
LARGEST_MB = {"host": 155, "linux-switch": 130, "router": 160, "orchestrator": 600, "figures": 785}
"""Limits 10 % to 25 % above the sizes: a larger image contains unnecessary files."""

Inside = Callable[..., tuple[int, str]]


def run(*command: str | Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)


@pytest.fixture(scope="session")
def images() -> dict[str, str]:
    """The image of each role."""
    done = run(ROOT / "tools/images", timeout_s=1200)
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.fixture
def inside(images: dict[str, str]) -> Inside:
    """inside(ROLE, SHELL COMMAND): the command's status and output in a new container without a network."""

    def run_inside(role: str, command: str, *options: str) -> tuple[int, str]:
        done = run(
            "docker", "run", "--rm", "--network=none", *options, "--entrypoint=/bin/sh", images[role], "-c", command
        )
        return done.returncode, done.stdout + done.stderr

    return run_inside


def inspect_image(image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("docker", "image", "inspect", image).stdout)[0]
    return found


@pytest.mark.parametrize("role", [*NODES, "orchestrator", "figures"])
def test_images_are_small_and_inspect_image(images: dict[str, str], role: str) -> None:
    image = inspect_image(images[role])
    size_mb = image["Size"] / 1e6
    print(f"{images[role]}: {size_mb:.0f} MB")
    assert size_mb < LARGEST_MB[role]
    labels = image["Config"]["Labels"]
    assert labels["org.qbed.role"] == role
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0 AND GPL-2.0-only AND LGPL-2.1-or-later"
    assert labels["org.opencontainers.image.version"] == __version__
    base = inspect_image(labels["org.opencontainers.image.base.name"])
    assert labels["org.opencontainers.image.base.digest"] == base["Id"]
    assert "@" not in labels.get("org.opencontainers.image.source", "")
    assert image["Config"]["StopSignal"] == "SIGTERM"
    assert image["Config"]["Healthcheck"]["Test"][0] == "CMD"


def test_the_bill_of_materials_names_debians_and_pythons_packages_and_the_kernel(images: dict[str, str]) -> None:
    done = run(ROOT / "tools/images", "--sbom", "orchestrator")
    assert done.returncode == 0, done.stderr
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "qbed-orchestrator"
    found = {component["name"]: component for component in bill["components"]}
    assert found["iperf3"]["purl"].startswith("pkg:deb/debian/iperf3@")
    assert found["pyarrow"]["purl"].startswith("pkg:pypi/pyarrow@")
    assert found["linux"]["version"] == find_toolchain().manifest.kernel_version
    assert "kaleido" not in found and "pip" not in found
    references = [component["bom-ref"] for component in bill["components"] if "bom-ref" in component]
    assert len(references) == len(set(references)) > 100


def test_all_python_packages_can_be_imported(inside: Inside) -> None:
    """Reduced packages lack files; stripped libraries could be unloadable."""
    modules = "pyarrow.parquet, pyarrow.compute, pyarrow.dataset, pyarrow.csv, duckdb, scipy.optimize, scipy.special"
    others = "plotly.graph_objects, plotly.io, scipy.stats, finsy.proto, fastapi, uvicorn, httpx, youplot, jinja2"
    status, output = inside("orchestrator", f"python3 -c 'import {modules}, {others}'")
    assert status == 0, output


def test_figures_are_written_where_kaleido_is(inside: Inside) -> None:
    lab = "python3 -m qbed run labs/dumbbell --profile quick --seeds 1 --out /tmp/run && cd /tmp/run"
    memory = "--tmpfs=/dev/shm:exec,size=2g"
    shown = "head -c 5 figures/queue.pdf && grep -c '</svg>' figures/queue.svg"
    status, output = inside("figures", f"{lab} && {shown}", memory)
    assert status == 0 and "%PDF-" in output and "Kaleido is not installed" not in output, output
    status, output = inside("orchestrator", f"{lab} && test ! -e figures", memory)
    assert status == 0, output
    assert "no figure was written as a file, since Kaleido is not installed here" in " ".join(output.split())


def test_nodes_share_their_first_layers(images: dict[str, str]) -> None:
    base = inspect_image(images["base"])["RootFS"]["Layers"]
    for role in NODES:
        assert inspect_image(images[role])["RootFS"]["Layers"][: len(base)] == base


@pytest.mark.parametrize("role", NODES)
def test_a_node_runs_the_toolchain(inside: Inside, role: str) -> None:
    toolchain = find_toolchain()
    kernel, agent = "/opt/qbed/linux --version && ldd /opt/qbed/linux", "/opt/qbed/qbed-agent --version"
    status, output = inside(role, f"{kernel} && ls /opt/qbed/modules && {agent}")
    assert status == 0, output
    lines = output.split()
    assert lines[0].split("-")[0] == toolchain.manifest.kernel_version.split("-")[0]
    assert {path.name for path in (toolchain.folder / "modules").iterdir()} <= set(lines)
    assert "not found" not in output


@pytest.mark.parametrize("role", NODES)
def test_tc_and_ip_have_plugins_for_schemes_and_links(inside: Inside, role: str) -> None:
    for kind in [scheme.qdisc.kind for scheme in registry().values() if scheme.qdisc.module]:
        _, output = inside(role, f"tc qdisc add dev lo root {kind} help")
        assert f"Usage: ... {kind} limit {{ BYTES | PACKETSp }}" in output, output
    _, output = inside(role, "ip link help qlink")
    assert "Usage: ... qlink rate RATE" in output, output


def test_each_role_has_its_programs(inside: Inside) -> None:
    for role, programs in {
        "host": "iperf3 ping tcpdump ethtool ip tc",
        "linux-switch": "ping tcpdump ethtool ip tc",
        "router": "/usr/lib/frr/zebra /usr/lib/frr/bgpd /usr/lib/frr/ospfd vtysh tcpdump ethtool ip tc",
    }.items():
        for program in programs.split():
            status, output = inside(role, f"command -v {program}")
            assert status == 0, f"{role}: {program}: {output}"
        status, output = inside(role, "wc -l </usr/share/qbed/packages; ls /usr/share/doc/qbed; ls /var/lib/apt/lists")
        assert output.split()[1:] == ["Apache-2.0.txt", "GPL-2.0-only.txt"], output
        assert int(output.split()[0]) > 50


@pytest.mark.parametrize("role", NODES)
def test_a_node_without_a_plan_fails_with_one_message(images: dict[str, str], role: str) -> None:
    done = run("docker", "run", "--rm", "--network=none", images[role], timeout_s=30)
    assert done.returncode not in (0, 137)
    assert done.stderr.startswith("qbed-agent: plan.json: ")
    assert "panicked" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.fixture
def container() -> Iterator[str]:
    name = f"qbed-test-{uuid.uuid4().hex[:8]}"
    yield name
    run("docker", "rm", "--force", "--volumes", name)


@pytest.mark.parametrize(("listens", "health"), [(True, "healthy"), (False, "unhealthy")])
def test_a_node_is_healthy_if_it_has_a_control_socket(
    images: dict[str, str], container: str, tmp_path: Path, listens: bool, health: str
) -> None:
    if listens:
        # a relative path, as a socket's path is limited to 107 bytes
        with socket.socket(socket.AF_UNIX) as listener:
            os.chdir(tmp_path)
            listener.bind("control.sock")
    options = ("--health-interval=200ms", "--health-retries=1", "--health-start-period=0s", "--entrypoint=sleep")
    folder = f"--volume={tmp_path}:/qbed"
    done = run(
        "docker", "run", "--detach", "--network=none", "--name", container, folder, *options, images["host"], "60"
    )
    assert done.returncode == 0, done.stderr
    deadline, state = time.monotonic() + 30, "starting"
    while state == "starting" and time.monotonic() < deadline:
        time.sleep(0.3)
        state = run("docker", "inspect", "--format", "{{.State.Health.Status}}", container).stdout.strip()
    assert state == health


def test_the_orchestrator_boots_guests_as_an_ordinary_user(images: dict[str, str]) -> None:
    arguments = ("--network=none", "--tmpfs=/dev/shm:exec,size=2g", images["orchestrator"])
    done = run("docker", "run", "--rm", *arguments, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the guest boots, runs an empty lab and powers off" in done.stdout
    done = run("docker", "run", "--rm", "--entrypoint=id", *arguments, "--user")
    assert done.stdout.strip() == "1000"


def test_a_lab_with_a_controller_is_refused_with_one_message(images: dict[str, str]) -> None:
    """The image has neither the P4Runtime server nor a client; the message says where there are both."""
    arguments = ("--network=none", images["orchestrator"], "run", "labs/controller", "--profile", "quick")
    done = run("docker", "run", "--rm", *arguments)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and "node s1 runs p4switch, which is not here; labs with a `controller` run in" in line


# --- the builder --------------------------------------------------------------------------------


def tags(role: str) -> set[str]:
    listed = run("docker", "image", "ls", "--filter", "label=org.qbed.role", "--format", "{{.Repository}}:{{.Tag}}")
    return {line for line in listed.stdout.split() if line.startswith(f"qbed-{role}:")}


def test_a_build_without_changes_is_quick(images: dict[str, str]) -> None:
    begun = time.monotonic()
    done = run(ROOT / "tools/images")
    took_s = time.monotonic() - begun
    assert done.stderr == ""
    assert dict(line.split() for line in done.stdout.splitlines()) == images
    assert took_s < 5  # 0.2 s on a quiet machine


def test_names_prints_images_without_building(images: dict[str, str]) -> None:
    done = run(ROOT / "tools/images", "--names", "host")
    assert done.stdout == f"host {images['host']}\n"


def test_an_unknown_role_is_refused() -> None:
    done = run(ROOT / "tools/images", "hots")
    assert done.returncode == 1
    assert "there is no image hots; expected one of: base figures host linux-switch" in done.stderr


def build_labelled_image(checkout: Path | str, tag: str, context: Path) -> None:
    """Build a small image of the role `host` with the label of a checkout."""
    context.joinpath("Dockerfile").write_text("FROM scratch\nLABEL org.qbed.role=host\nCOPY Dockerfile /\n")
    command = ("docker", "build", "--quiet", f"--label=org.qbed.checkout={checkout}", "--tag", tag, context)
    done = run(*command)
    assert done.returncode == 0, done.stderr


def test_superseded_images_are_removed_and_other_checkouts_images_stay(images: dict[str, str], tmp_path: Path) -> None:
    # images of this checkout, of a removed one, of another one, and a user's, which inherits the labels of its base
    superseded, orphaned, other = "qbed-host:000000000001", "qbed-host:000000000002", "qbed-host:000000000003"
    derived = "my-host:000000000001"
    build_labelled_image(ROOT, superseded, tmp_path)
    build_labelled_image("/nowhere/qbed", orphaned, tmp_path)
    build_labelled_image(tmp_path, other, tmp_path)
    build_labelled_image(ROOT, derived, tmp_path)
    try:
        assert run(ROOT / "tools/images").returncode == 0
        remaining = tags("host")
        assert images["host"] in remaining
        assert other in remaining
        assert not {superseded, orphaned} & remaining
        assert run("docker", "image", "inspect", derived).returncode == 0
    finally:
        run("docker", "image", "rm", "--force", superseded, orphaned, other, derived)


def test_a_failed_build_prints_its_output_and_leaves_no_image(images: dict[str, str], tmp_path: Path) -> None:
    for name in (".venv", "LICENSES", "congestion", "kernel", "labs", "orchestrator", "schemes"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    shutil.copytree(ROOT / "images", tmp_path / "images")
    broken = tmp_path / "images/host/Dockerfile"
    broken.write_text(broken.read_text() + "RUN echo failing step && false\n")
    list_images = ("docker", "image", "ls", "--quiet", "--filter", "dangling=false")
    before = set(run(*list_images).stdout.split())
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [tmp_path / "tools/images", "host"], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 1
    assert "did not build; the whole log is" in done.stderr
    assert "failing step" in done.stderr
    dangling = ("--filter", "label=org.qbed.role", "--filter", "dangling=true")
    assert run("docker", "image", "ls", "--quiet", *dangling).stdout == ""
    assert before <= set(run(*list_images).stdout.split())
    assert not list(tmp_path.glob("qbed-images.*"))


def test_without_an_engine_there_is_one_message_with_a_remedy(tmp_path: Path) -> None:
    environment = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/no.sock", "QBED_CACHE": str(tmp_path)}
    done = subprocess.run(
        [ROOT / "tools/images"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("images: Docker does not answer: ")
    assert done.stderr.rstrip().endswith("remedy: make containers")
