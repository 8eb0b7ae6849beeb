# SPDX-License-Identifier: Apache-2.0
"""Schemes: every folder is complete, agrees with its kernel header, and packs what the lab file says."""

import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from qbed.base.errors import LabError, QbedError
from qbed.base.locations import schemes_folder
from qbed.config.source import parse
from qbed.config.units import Amount
from qbed.network.load import lab_from_source
from qbed.plan.compile import compile_lab
from qbed.schemes.declaration import Scheme, load_scheme, registry
from qbed.schemes.declaration import _registry as declared
from qbed.schemes.generate import generated

HOST_SIDE = {"host", "tests"}
"""A folder with controllers only; test_controllers.py tests it."""
FOLDERS = sorted(
    path
    for path in schemes_folder().iterdir()
    if path.is_dir() and path.name != "__pycache__" and {entry.name for entry in path.iterdir()} - HOST_SIDE
)


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


PROGRAM = """
#include <stddef.h>
#include <stdio.h>
#include "KIND_scheme.h"
int main(void)
{
OFFSETS
	return 0;
}
"""


@pytest.mark.parametrize("scheme", [s for s in registry().values() if s.qdisc.module], ids=lambda scheme: scheme.name)
def test_c_lays_the_statistics_out_as_they_are_read(scheme: Scheme, tmp_path: Path) -> None:
    for name, text in generated("kernel").items():
        (tmp_path / Path(name).name).write_text(text)
    kind = str(scheme.qdisc.kind)
    fields = re.findall(r"\tu(?:32|64) (\w+);", (tmp_path / f"{kind}_scheme.h").read_text().partition("_stats {")[2])
    assert len(fields) == len(scheme.statistics)
    offsets = [f'\tprintf("%zu\\n", offsetof(struct {kind}_stats, {field}));' for field in fields]
    (tmp_path / "program.c").write_text(PROGRAM.replace("KIND", kind).replace("OFFSETS", "\n".join(offsets)))
    include = schemes_folder().parent / "kernel" / "include"
    subprocess.run(["cc", f"-I{include}", "-o", tmp_path / "program", tmp_path / "program.c"], check=True)
    printed = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout
    for statistic, offset in zip(scheme.statistics, map(int, printed.split()), strict=True):
        payload = bytes(offset) + (7).to_bytes(statistic.size, "little")
        assert scheme.decode(payload)[statistic.name] == 7
        assert statistic.name not in scheme.decode(payload[:-1])


def test_the_numbers_of_attributes_do_not_change() -> None:
    """They are the qdiscs' interface; the first four are as `tc` and old plans know them."""
    code = generated("kernel")
    for name, last in {
        "ecn/ecn": "TCA_ECN_MAX = 4",
        "rpm/rpm": "TCA_RPM_WLOG = 15",
        "abq/abq": "TCA_ABQ_MTU = 6",
    }.items():
        assert f"\t{last}," in code[f"{name}_netlink.h"] or f"\t{last}\n" in code[f"{name}_netlink.h"]


def scheme_with(parameters: str, folder: Path) -> Path:
    """A folder of one scheme that has a module and these parameters beside its buffer."""
    (folder / "mine").mkdir()
    (folder / "mine" / "scheme.yml").write_text(
        "name: mine\ntitle: Mine\nhelp: It is mine.\nqdisc: {kind: mine, module: sch_mine}\nparameters:\n"
        "  - {name: buffer, type: amount, default: 9 packets, help: B., bytes: {number: 1}, packets: {number: 2}}\n"
        + parameters
    )
    return folder


def test_every_type_of_parameter_becomes_code(tmp_path: Path) -> None:
    folder = scheme_with(
        "  - {name: wait, type: duration, default: 3 ms, max: 9 ms, help: W */, attribute: {number: 3, unit: us}}\n"
        "  - {name: share, type: fraction, default: 25%, help: S., attribute: {number: 4, type: u16, scale: 1000}}\n"
        "  - {name: speed, type: rate, default: 1 Gbit/s, help: R., attribute: {number: 5, type: u64}}\n"
        "  - {name: most, type: bytes, default: 2 KB, min: 1 KB, help: M., attribute: {number: 6}}\n"
        "  - {name: slots, type: number, default: 8, power_of_two: true, help: N., attribute: {number: 7}}\n"
        "  - {name: often, type: flag, default: on, help: F., attribute: {number: 8, type: u8, absent: off}}\n"
        "  - {name: way, type: choice, default: right, help: C., attribute: {number: 9, choices: [left, right]}}\n",
        tmp_path,
    )
    header = generated("kernel", folder)["mine/mine_netlink.h"]
    for line in (
        ".wait_us = 3000,",
        ".share = 250,",
        ".speed_bps = 1000000000,",
        ".most_bytes = 2000,",
        ".often = 0,",
        "mine_wait_us_range = { .min = 0ull, .max = 9000ull };",
        "mine_share_range = { .min = 0ull, .max = 1000ull };",
        "mine_most_bytes_range = { .min = 1000ull, .max = 4294967295ull };",
        "if (!is_power_of_2(params->slots)) {",
        "mine_way_range = { .min = 0ull, .max = 1ull };",
        ".way = 1,",
        "TCA_MINE_PAD = 10,",
    ):
        assert line in header, line
    assert "/* W * / */" in generated("kernel", folder)["mine/mine_scheme.h"]
    plugin = generated("tc", folder)["q_mine.c"]
    assert '{ "limit", SCHEME_AMOUNT, 4, 1, .packets = 2, .scale = 1ull }' in plugin
    assert '{ "wait", SCHEME_TIME, 4, 3, .packets = 0, .scale = 1000ull }' in plugin
    assert "[ often { on | off } ]" in plugin
    assert "[ way { left | right } ]" in plugin and '.choices = { "left", "right" }' in plugin
    assert "enum { MINE_WAY_LEFT, MINE_WAY_RIGHT };" in generated("kernel", folder)["mine/mine_scheme.h"]


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("{name: a, type: number, help: A., attribute: {number: 2}}", "two parameters have one attribute"),
        ("{name: a, type: number, help: A., attribute: {offset: 2}}", "expected an attribute with a `number`"),
        ("{name: a, type: number, help: A., attribute: {number: 3, type: s32}}", "unsigned `type`"),
        ("{name: a, type: flag, help: A., power_of_two: true, attribute: {number: 3}}", "a power of two"),
    ],
)
def test_what_no_code_can_be_generated_for_is_refused(parameter: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(QbedError) as error:
        generated("kernel", scheme_with(f"  - {parameter}\n", tmp_path))
    assert message in str(error.value) and "scheme.yml" in str(error.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("  - {name: a, type: choice, help: A., attribute: {number: 3}}\n", "expected `choices`"),
        ("  - {name: a, type: number, help: A., attribute: {number: 3, choices: [b]}}\n", "and of no other type"),
        ("presets: {big: {bufer: 9 packets}}\n", "names no parameter `bufer`; did you mean `buffer`?"),
        ("presets: {big: {buffer: 9 pockets}}\n", "9 pockets"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(lines: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(QbedError) as error:
        load_scheme(scheme_with(lines, tmp_path) / "mine")
    assert message in str(error.value)


def test_a_preset_gives_what_the_file_does_not() -> None:
    abq = registry()["abq"]
    lab = parse(
        "name: p\ntopology: {star: {hosts: 2}}\nlinks: {default: {rate: 1 Gbit/s, delay: 1 us}}\n"
        "switches:\n  default: {scheme: abq, preset: published, threshold: 12 packets}\n  s1>h1: {scheme: ecn}\n"
        "workload: [flow: {from: h1, to: h2, size: 1 KB}]\nduration: 1 ms\n",
    )
    queues = {q.scheme: q.qdisc.plain() for q in compile_lab(lab_from_source(lab)).queues if q.role == "switch"}
    shown = abq.describe("abq", bytes.fromhex(str(queues["abq"]["options"])))
    assert (shown["release"], shown["threshold"], shown["buffer"]) == ("window", "12 packets", "120 KB")
    assert "ecn" in queues, "a port of another scheme has no preset of this one"


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        (
            "default: {scheme: ecn, preset: published}",
            "no preset `published`: it is of `abq`; where schemes are an axis",
        ),
        ("default: {scheme: abq, preset: publish}", "no preset `publish`; did you mean `published`?"),
        (
            "default: {qdisc: pfifo limit 100, preset: published}",
            "`published` beside a `qdisc`: presets are a scheme's",
        ),
        ("{default: {qdisc: pfifo limit 9}, s1: {preset: published}}", "`published` beside a `qdisc`"),
    ],
)
def test_a_preset_of_another_scheme_or_of_none_is_refused(switches: str, message: str) -> None:
    block = switches if switches.startswith("{") else f"{{{switches}}}"
    lab = parse(
        "name: p\ntopology: {star: {hosts: 2}}\nlinks: {default: {rate: 1 Gbit/s, delay: 1 us}}\n"
        f"switches: {block}\nworkload: [flow: {{from: h1, to: h2, size: 1 KB}}]\nduration: 1 ms\n",
    )
    with pytest.raises(LabError) as refused:
        compile_lab(lab_from_source(lab))
    assert message in str(refused.value) and "switches." in str(refused.value)


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
    text = declaration.read_text().replace("name: droptail", "name: scratch")
    declaration.write_text(text)
    monkeypatch.setenv("QBED_SCHEMES", str(tmp_path))
    lab = (
        "name: x\ntopology: {star: {hosts: 2}}\nlinks: {default: {rate: 1 Gbit/s}}\nduration: 1 s\n"
        "switches: {default: {scheme: scratch, buffer: 64 KB}}\n"
    )
    with pytest.raises(QbedError, match=r"expected `default: true` in one scheme\.yml, found 2"):
        compile_lab(lab_from_source(parse(lab)))
    declaration.write_text(text.replace("default: true\n", ""))
    declared.cache_clear()
    plan = compile_lab(lab_from_source(parse(lab)))
    assert {queue.scheme for queue in plan.queues if queue.role == "switch"} == {"scratch"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: droptail", "name: other", "scheme.yml:2:7: name: expected the folder's name `droptail`, got `other`"),
        ("    default: 1000 packets\n", "", "a scheme needs the parameter `buffer` and its default"),
        ("1000 packets", "1000", "expected an amount such as `128 KB` or `20 packets`, got `1000`"),
        ("type: amount", "type: mount", "parameters[0].type: "),
        ("    attribute: {", "    packets: {", "expected `bytes` and `packets` of the amount `buffer`"),
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
    return {"modules": plan.modules, **qdisc.plain()}


def test_a_queue_inside_a_scheme() -> None:
    outer, inside = registry()["abq"], registry()["ecn"]
    port = port_of("scheme: abq, buffer: 128 KB, threshold: 20 packets, ecn_threshold: 40 packets")
    assert port["modules"] == ["sch_abq", "sch_ecn"]
    assert outer.describe(port["kind"], bytes.fromhex(port["options"])) == {
        "buffer": "128 KB",
        "threshold": "20 packets",
        "hold_limit": "1000 packets",
        "x": "buffer",
        "release": "all",
        "release_count": "10 packets",
        "answer": "ece",
        "coalesce": "off",
        "last": "short",
        "pause": "1 ms",
    }
    child = port["child"]
    assert inside.describe(child["kind"], bytes.fromhex(child["options"])) == {
        "buffer": "128 KB",
        "threshold": "40 packets",
    }


def test_parameters_of_the_child_queue_are_beside_those_of_the_scheme() -> None:
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
