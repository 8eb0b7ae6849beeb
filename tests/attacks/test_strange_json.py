# SPDX-License-Identifier: Apache-2.0
"""A stranger's run folder with whole checksums, in whose JSON any place holds something else: refused, or shown.

`QBED_PLACES` says how many places of each file are tried (without it a draw of 12), `all`: every one with every value.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from received import called, make_run

from qbed.base.errors import QbedError
from qbed.base.json_files import SEAL, sealed
from qbed.report import make_report
from qbed.storage.checksums import record_checksums
from qbed.storage.listing import Listing, lines
from qbed.storage.run_folder import RunFolder

PLACES = os.environ.get("QBED_PLACES", "12")
STRANGE: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**400, 1.5, float("nan"), "", "[/x]", "\x1b[2J", "a\0", "\ud800", "x" * 100_000),
    *([], [[]], [None], {}, {"a": {}}, [{}], [{"name": 1}], "../../x", {"x" * 300: 1}, 1 << 63),
)
MISSING = object()
TEXTS = ("", "{", "[", "null", "1", "\0", "[" * 100_000, '{"a":' * 5_000, '{"a": 1, "a": 2}')
Look = Callable[[Path], object]
Place = tuple[str | int, ...]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("strange"))


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every place of a JSON value, the whole one too."""
    yield place
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*place, key))


def changed(value: Any, place: Place, new: Any) -> Any:
    if not place:
        return {} if new is MISSING else new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if len(place) == 1 and new is MISSING:
        del copy[place[0]]
    else:
        copy[place[0]] = changed(copy[place[0]], place[1:], new)
    return copy


def put(run: Path, name: str, value: Any, *, seal: bool) -> None:
    """Write it as somebody who knows how checksums are made."""
    is_sealed = seal and isinstance(value, dict) and value
    (run / name).write_bytes(sealed(value) if is_sealed else json.dumps(value).encode())
    if not seal:
        record_checksums(run, [name], more=True)


def resumed(run: Path) -> object:
    """What `qbed run` asks of a folder that has results already."""
    folder = RunFolder(run)
    return folder.survey(range(2)), folder.claim(folder.identity())


LOOKS: dict[str, Look] = {
    "report": lambda run: make_report(run, images=False),
    "cells": lambda run: list(lines(Listing(run))),
    "run": resumed,
    "verify": lambda run: list(RunFolder(run).verify()),
    "merge": lambda run: RunFolder(run).merge(range(2), {"seed": "int", "tcp": "str"}),
}


def draws(value: Any) -> Iterator[tuple[Place, Any]]:
    everywhere, draw = list(places(value)), random.Random(1)
    if PLACES == "all":
        yield from ((place, new) for place in everywhere for new in (*STRANGE, MISSING))
        return
    for place in draw.sample(everywhere, min(len(everywhere), int(PLACES))):
        yield from ((place, new) for new in draw.sample((*STRANGE, MISSING), 3))


@pytest.mark.parametrize(
    ("name", "seal"),
    [
        ("campaign.json", True),
        ("checksums.json", True),
        ("cells/000000/cell.json", True),
        ("meta.json", False),
        ("claims.json", False),
    ],
)
def test_strange_json_in_a_run_folder(run: Path, name: str, seal: bool) -> None:
    before = json.loads((run / name).read_text())
    if seal:
        del before[SEAL]
    tried = refused = 0
    for place, new in draws(before):
        put(run, name, changed(before, place, new), seal=seal)
        for look, see in LOOKS.items():
            tried += 1
            try:
                see(run)
            except QbedError as error:
                assert "Traceback" not in str(error), (place, new)  # the terminal cuts it
                refused += 1
            except Exception as error:
                raise AssertionError(f"{name} {place} = {str(new)[:80]!r}, {look}: {error!r}") from error
    print(f"{name}: {tried} tried, {refused} refused")
    assert refused or name in ("meta.json", "claims.json"), "what is only shown is shown"
    for text in TEXTS:
        (run / name).write_text(text)
        if not seal:
            record_checksums(run, [name], more=True)
        for command in (["report", "--no-images"], ["cells"], ["samples"], ["verify"]):
            status, out, errors = called(*command, str(run))
            assert status in (0, 1, 2) and len(errors) < 20_000, errors
            assert "Traceback" not in out + errors and "internal error in qbed" not in errors, (text[:20], errors)
