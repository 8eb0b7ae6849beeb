# SPDX-License-Identifier: Apache-2.0
"""Schemes: every folder is complete, agrees with its kernel header, and packs what the lab file says."""

import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from qbed.errors import QbedError
from qbed.language.source import parse
from qbed.language.units import Amount
from qbed.network.load import lab_from_source
from qbed.places import schemes_folder
from qbed.plan.compile import compile_lab
from qbed.schemes.declaration import Scheme, load_scheme, registry

FOLDERS = sorted(path for path in schemes_folder().iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_folder_is_a_complete_scheme(folder: Path) -> None:
    scheme = load_scheme(folder)
    assert (folder / "README.md").read_text().startswith(f"# {scheme.name}")
    if scheme.qdisc.module is not None:
        assert (folder / "kernel" / f"{scheme.qdisc.module}.c").exists()
    inside = {scheme.child.parameter, *scheme.child.given.values()} if scheme.child is not None else set()
    for parameter in scheme.parameters:
        places = [parameter.attribute, parameter.bytes, parameter.packets]
        assert any(places) or parameter.name in inside, f"{parameter.name} goes nowhere"
        for place in filter(None, places):
            wanted = place.number if scheme.qdisc.layout == "attributes" else place.offset
            assert wanted is not None, f"{parameter.name} has no place in the layout {scheme.qdisc.layout}"


def enumeration(header: str) -> dict[int, str]:
    """The attributes of the header's first enum that has TCA_*, by number."""
    body = next(body for body in re.findall(r"enum\s*\{(.*?)\}", header, re.S) if "TCA_" in body)
    names = re.findall(r"^\s*(\w+),", body, re.M)
    return dict(enumerate(names))


def structure(header: str) -> list[tuple[str, int, str]]:
    """The fields of the header's statistics: name, offset, type."""
    match = re.search(r"struct tc_\w+_xstats \{(.*?)\};", header, re.S)
    found, offset = [], 0
    for kind, name in re.findall(r"__([us]\d+)\s+(\w+);", match[1] if match else ""):
        size = int(kind[1:]) // 8
        offset = -(-offset // size) * size
        found.append((name, offset, kind))
        offset += size
    return found


@pytest.mark.parametrize("scheme", [s for s in registry().values() if s.qdisc.module], ids=lambda scheme: scheme.name)
def test_scheme_agrees_with_its_header(scheme: Scheme) -> None:
    header = (schemes_folder() / scheme.name / "kernel" / f"{scheme.qdisc.module}.h").read_text()
    numbers = enumeration(header)
    for parameter in scheme.parameters:
        for unit, place in (("BYTES", parameter.bytes), ("PACKETS", parameter.packets), ("", parameter.attribute)):
            if place is not None:
                word = "LIMIT" if parameter.name == "buffer" else parameter.name.upper()
                name = numbers[place.number or 0]
                assert word in name and name.endswith(unit or name)
                comment = re.search(rf"{name},\s*/\* (u\d+)", header)
                assert comment is None or comment[1] == place.type
    declared = [(statistic.offset, statistic.type) for statistic in scheme.statistics]
    assert declared == [(offset, kind) for _, offset, kind in structure(header)]


def test_attributes_are_packed_as_netlink() -> None:
    ecn = registry()["ecn"]
    options = ecn.options({"buffer": Amount(128_000, "bytes"), "threshold": Amount(20, "packets")})
    assert options == struct.pack("<HHIHHI", 8, 1, 128_000, 8, 4, 20)
    assert ecn.describe("ecn", options) == {"buffer": "128 KB", "threshold": "20 packets"}


def test_structures_are_packed_as_c() -> None:
    droptail = registry()["droptail"]
    bytes_, packets = {"buffer": Amount(128_000, "bytes")}, {"buffer": Amount(80, "packets")}
    assert (droptail.kind(bytes_), droptail.options(bytes_)) == ("bfifo", struct.pack("<I", 128_000))
    assert (droptail.kind(packets), droptail.options(packets)) == ("pfifo", struct.pack("<I", 80))
    assert droptail.describe("pfifo", droptail.options(packets)) == {"buffer": "80 packets"}


def test_durations_and_flags() -> None:
    codel = registry()["codel"]
    options = codel.options({"target": 1_000_000, "interval": 20_000_000, "ecn": False})
    assert codel.describe("qcodel", options) == {
        "buffer": "1000 packets",
        "target": "1 ms",
        "interval": "20 ms",
        "ecn": "off",
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("target", "1 ns", "expected at least `1024 ns`, got `1 ns`"),
        ("interval", "10 min", "expected at most `100 s`, got `10 min`"),
        ("buffer", "0 packets", "expected at least `1 packets`, got `0 packets`"),
        ("buffer", "5 GB", "expected what fits the kernel's u32, got `5 GB`"),
        ("ecn", "yes", "expected `on` or `off`, got `yes`"),
    ],
)
def test_bounds_are_refused_not_clamped(name: str, value: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        registry()["codel"].by_name[name].parse(value)
    assert str(error.value) == message


def test_statistics() -> None:
    ecn = registry()["ecn"]
    assert ecn.decode(struct.pack("<QQQ", 7, 8, 9)) == {"marked": 7, "unmarked": 8, "dropped": 9}
    assert ecn.decode(struct.pack("<QQ", 7, 8)) == {"marked": 7, "unmarked": 8}


def test_a_new_scheme_is_one_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in FOLDERS:
        shutil.copytree(folder, tmp_path / folder.name)
    shutil.copytree(schemes_folder() / "droptail", tmp_path / "scratch")
    declaration = tmp_path / "scratch" / "scheme.yml"
    declaration.write_text(declaration.read_text().replace("name: droptail", "name: scratch"))
    monkeypatch.setenv("QBED_SCHEMES", str(tmp_path))
    text = (
        "name: x\ntopology: {star: {hosts: 2}}\nlinks: {default: {rate: 1 Gbit/s}}\nduration: 1 s\n"
        "switches: {default: {scheme: scratch, buffer: 64 KB}}\n"
    )
    plan = compile_lab(lab_from_source(parse(text)))
    assert {queue.scheme for queue in plan.queues if queue.role == "switch"} == {"scratch"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: droptail", "name: other", "scheme.yml:2:7: name: expected the folder's name `droptail`, got `other`"),
        ("    default: 1000 packets\n", "", "a scheme needs the parameter `buffer` and its default"),
        ("1000 packets", "1000", "expected an amount such as `128 KB` or `20 packets`, got `1000`"),
        ("type: amount", "type: mount", "parameters[0].type: "),
        ("title: A queue", "titel: A queue", "scheme.yml:3:1: titel: unknown field; did you mean `title`?"),
    ],
)
def test_incomplete_schemes_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    folder = tmp_path / "droptail"
    shutil.copytree(schemes_folder() / "droptail", folder)
    declaration = folder / "scheme.yml"
    declaration.write_text(declaration.read_text().replace(old, new))
    with pytest.raises(QbedError) as error:
        load_scheme(folder)
    assert message in str(error.value)


def port_of(settings: str) -> dict[str, Any]:
    text = (
        "name: x\ntopology: {star: {hosts: 2}}\nlinks: {default: {rate: 1 Gbit/s}}\nduration: 1 s\n"
        f"switches: {{default: {{{settings}}}}}\n"
    )
    plan = compile_lab(lab_from_source(parse(text)))
    qdisc = next(queue.qdisc for queue in plan.queues if queue.role == "switch")
    return {"modules": plan.modules, **qdisc}


def test_a_queue_inside_a_scheme() -> None:
    own, inside = registry()["abq"], registry()["ecn"]
    port = port_of("scheme: abq, buffer: 128 KB, threshold: 20 packets, ecn_threshold: 40 packets")
    assert port["modules"] == ["sch_abq", "sch_ecn"]
    assert own.describe(port["kind"], bytes.fromhex(port["options"])) == {
        "buffer": "128 KB",
        "threshold": "20 packets",
        "hold_limit": "1000 packets",
    }
    child = port["child"]
    assert inside.describe(child["kind"], bytes.fromhex(child["options"])) == {
        "buffer": "128 KB",
        "threshold": "40 packets",
    }


def test_the_parameters_of_the_queue_inside_stand_beside_the_schemes_own() -> None:
    port = port_of("scheme: abq, above: codel, buffer: 80 packets, target: 1 ms, ecn: off")
    assert port["modules"] == ["sch_abq", "sch_qcodel"]
    shown = registry()["codel"].describe(port["child"]["kind"], bytes.fromhex(port["child"]["options"]))
    assert shown == {"buffer": "80 packets", "target": "1 ms", "interval": "100 ms", "ecn": "off"}
    port = port_of("scheme: abq, above: droptail, buffer: 80 packets")
    assert port["modules"] == ["sch_abq"] and port["child"] == {"kind": "pfifo", "options": "50000000"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("scheme: abq, above: ecm", "no scheme that can be inside another is called `ecm`; did you mean `ecn`?"),
        ("scheme: abq, above: abq", "no scheme that can be inside another is called `abq`"),
        ("scheme: abq, above: 7", "no scheme that can be inside another is called `7`"),
        ("scheme: abq, above: codel, target: 1 ns", "expected at least `1024 ns`, got `1 ns`"),
    ],
)
def test_mistakes_about_the_queue_inside(settings: str, message: str) -> None:
    with pytest.raises(QbedError) as error:
        port_of(settings)
    assert message in str(error.value)
