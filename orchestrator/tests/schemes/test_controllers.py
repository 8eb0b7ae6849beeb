# SPDX-License-Identifier: Apache-2.0
"""Controllers: each declaration is complete, packs what a lab says, and becomes code that compiles."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from qbed.base.errors import QbedError
from qbed.base.locations import schemes_folder
from qbed.schemes.declaration import Controller, controller_named, controllers, load_controller
from qbed.schemes.generate import generated

ROOT = Path(__file__).parents[3]
FIXED = schemes_folder() / "droptail" / "host" / "fixed.yml"
MINE = """\
name: mine
title: Mine
help: It is mine.
inputs: [rtt]
parameters:
  - {name: least, type: rate, default: 1 Mbit/s, min: 1 bit/s, help: L., attribute: {number: 1, type: u64}}
  - {name: most, type: rate, default: 9 Gbit/s, link: true, help: M., attribute: {number: 2, type: u64}}
  - {name: gain, type: fraction, default: 25%, help: G., attribute: {number: 3, scale: 65536}}
ordered: [[least, most]]
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder of schemes with one controller."""
    host = tmp_path / "schemes" / "own" / "host"
    host.mkdir(parents=True)
    (host / "mine.yml").write_text(MINE)
    (host / "mine.h").write_text(
        FIXED.with_suffix(".h").read_text().replace("fixed", "mine").replace("rate_bps", "most_bps")
    )
    return host


@pytest.mark.parametrize("controller", controllers().values(), ids=lambda controller: controller.name)
def test_every_controller_is_complete(controller: Controller) -> None:
    path = schemes_folder().parent / controller.declaration
    assert path.exists() and path.with_suffix(".h").exists()
    for parameter in controller.parameters:
        assert parameter.type in ("fraction", "flag") or parameter.max is not None, f"{parameter.name} has no bound"
        assert parameter.type != "rate" or parameter.max == "400 Gbit/s", f"{parameter.name}: RATE_MAX of controller.h"
    shown = controller.describe(controller.options({}))
    again = {
        parameter.name: parameter.parse({"fraction": float, "number": int}.get(parameter.type, str)(value))
        for parameter, value in zip(controller.parameters, shown.values(), strict=True)
    }
    assert controller.options(again) == controller.options({})


def test_parameters_are_packed_as_netlink_attributes(mine: Path) -> None:
    controller = load_controller(mine / "mine.yml")
    assert controller.declaration == "schemes/own/host/mine.yml"
    min_rate, gain = struct.pack("<HHQ", 12, 1, 10**6), struct.pack("<HHI", 8, 3, 16384)
    assert controller.options({}) == min_rate + struct.pack("<HHQ", 12, 2, 9 * 10**9) + gain
    given = {"most": controller.parse("most", "2 Gbit/s")}
    assert controller.options(given, link_bps=10**9) == min_rate + struct.pack("<HHQ", 12, 2, 2 * 10**9) + gain


def test_a_rate_that_is_the_links_is_taken_from_there_if_the_lab_does_not_give_it(mine: Path) -> None:
    controller = load_controller(mine / "mine.yml")
    assert controller.describe(controller.options({}, link_bps=10**9)) == {
        "least": "1 Mbit/s",
        "most": "1 Gbit/s",
        "gain": "0.25",
    }


def test_a_rate_that_is_the_links_gives_way_to_what_is_given() -> None:
    timely = controller_named("timely")
    shown = timely.describe(timely.options({"max_rate": 8 * 10**9}, link_bps=10**10))
    assert (shown["start_rate"], shown["max_rate"], shown["queue_rate"]) == ("8 Gbit/s", "8 Gbit/s", "10 Gbit/s")


@given(minimum=st.integers(1, 2**63 - 1), maximum=st.integers(1, 2**63 - 1), gain=st.integers(0, 65536))
def test_what_is_packed_is_what_was_given_or_refused_by_its_order(minimum: int, maximum: int, gain: int) -> None:
    values = {"least": minimum, "most": maximum, "gain": gain / 65536}
    controller = Controller.model_validate(yaml.safe_load(MINE))
    if minimum > maximum:
        with pytest.raises(ValueError, match="expected `least` to be at most `most`"):
            controller.options(values)
    else:
        packed = (
            struct.pack("<HHQ", 12, 1, minimum) + struct.pack("<HHQ", 12, 2, maximum) + struct.pack("<HHI", 8, 3, gain)
        )
        assert controller.options(values) == packed


def test_mistakes_name_what_is_meant(mine: Path) -> None:
    controller = load_controller(mine / "mine.yml")
    for name, value, message in (
        ("gian", "1 %", "the controller `mine` has no parameter `gian`; did you mean `gain`?"),
        ("least", "0 bit/s", "expected at least `1 bit/s`, got `0 bit/s`"),
        ("gain", "110 %", "expected a fraction from 0 to 1 or a percentage such as `1 %`, got `110 %`"),
    ):
        with pytest.raises(ValueError) as error:
            controller.parse(name, value)
        assert str(error.value) == message
    with pytest.raises(ValueError) as error:
        controller.options({"least": 2 * 10**9}, link_bps=10**9)
    assert str(error.value) == "expected `least` to be at most `most`, which is 1 Gbit/s, got 2 Gbit/s"
    with pytest.raises(ValueError) as error:
        controller_named("fixd")
    assert str(error.value) == "no controller is called `fixd`; did you mean `fixed`?"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: mine", "name: other", "mine.yml:1:7: name: expected the file's name `mine`, got `other`"),
        ("default: 9 Gbit/s, ", "", "expected a default and an `attribute` of the parameter `most`"),
        ("[[least, most]]", "[[least, mots]]", "`ordered` names no parameter `mots`; did you mean `most`?"),
        (
            "[[least, most]]",
            "[[most, least]]",
            "expected `most` to be at most `least`, which is 1 Mbit/s, got 9 Gbit/s",
        ),
        ("inputs: [rtt]", "inputs: [rttt]", "mine.yml:4:10: inputs[0]: "),
        ("type: fraction, default: 25%", "type: fraction, default: 1, link: true", "expected the type `rate`"),
    ],
)
def test_incomplete_declarations_are_refused(mine: Path, old: str, new: str, message: str) -> None:
    (mine / "mine.yml").write_text(MINE.replace(old, new))
    with pytest.raises(QbedError) as error:
        load_controller(mine / "mine.yml")
    assert message in str(error.value)


def test_a_declaration_without_its_controller_is_refused(mine: Path) -> None:
    (mine / "mine.h").unlink()
    with pytest.raises(QbedError, match=r"expected the controller itself beside it: mine\.h"):
        controllers(mine.parents[1])


def test_two_controllers_of_one_name_are_refused(mine: Path) -> None:
    shutil.copytree(mine, mine.parents[1] / "second" / "host")
    with pytest.raises(QbedError, match=r"there is schemes/own/host/mine\.yml, too"):
        controllers(mine.parents[1])


def test_what_the_module_is_made_of(mine: Path) -> None:
    files = generated("kernel", mine.parents[1])
    assert sorted(files) == [
        f"qrate/{name}" for name in ("controllers.h", "mine.h", "mine_controller.h", "qrate_controllers.h")
    ]
    for line in (
        "#define MINE_DEFAULTS {",
        "\tu64 least_bps;\t/* L. */",
        "\t.gain = 16384, ",
    ):
        assert line in files["qrate/mine_controller.h"], line
    for line in (
        '#include "mine.h"',
        "mine_least_bps_range = { .min = 1ull, .max = 18446744073709551615ull };",
        "\tif (params->least_bps > params->most_bps) {",
        "\t{ &mine_controller, mine_parse_any },",
    ):
        assert line in files["qrate/qrate_controllers.h"], line


def test_a_controller_changes_the_module_qrate_only(mine: Path, tmp_path: Path) -> None:
    """The files that make reads (kernel/modules.sh has a hash over each folder)."""

    def staged(name: str) -> dict[str, bytes]:
        copy = tmp_path / name
        for part in ("crates", "tools"):
            shutil.copytree(ROOT / part, copy / part)
        for file in ("Cargo.toml", "Cargo.lock"):
            shutil.copy2(ROOT / file, copy)
        shutil.copytree(ROOT / "kernel", copy / "kernel", ignore=shutil.ignore_patterns("tests"))
        shutil.copytree(schemes_folder(), copy / "schemes")
        if name == "changed":
            shutil.copytree(mine, copy / "schemes" / "own" / "host")
        command: list[str | Path] = [copy / "kernel" / "modules.sh", "--stage", tmp_path / f"{name}-staged"]
        python = os.environ | {"QBED_PYTHON": str(ROOT / ".venv" / "bin" / "python")}
        subprocess.run(command, check=True, env=python)
        folder = tmp_path / f"{name}-staged"
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    before, after = staged("as-is"), staged("changed")
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed and {Path(path).parts[0] for path in changed} == {"qrate"}


def test_a_controller_names_the_rate_and_packet_of_its_lengths() -> None:
    timely = controller_named("timely")
    assert (timely.lengths.rate, timely.lengths.packet) == ("queue_rate", "packet")
    assert timely.values(timely.options({"q_low": 5000}))["q_low"] == 5000
    values = timely.model_dump(mode="json") | {"occupancy": {"thresholds": ["q_low"], "rate": "queue_rate"}}
    with pytest.raises(ValueError, match="expected `rate` and `packet` in `occupancy`: a controller has no port"):
        Controller.model_validate(values)
