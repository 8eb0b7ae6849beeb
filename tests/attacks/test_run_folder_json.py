# SPDX-License-Identifier: Apache-2.0
"""Unexpected JSON values in an untrusted run folder with valid checksums are refused or shown.

`QBED_PLACES` is the number of random places to try in each file (12 by default); `all` tries all places and values.
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

from qbed.base.errors import QbedError
from qbed.base.json_files import SEAL, sealed
from qbed.report import make_report
from qbed.storage.checksums import record_checksums
from qbed.storage.listing import Listing, lines
from qbed.storage.run_folder import RunFolder

from qbed_testing.untrusted_lab import call_main, make_run

PLACES = os.environ.get("QBED_PLACES", "12")
UNEXPECTED: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**400, 1.5, float("nan"), "", "[/x]", "\x1b[2J", "a\0", "\ud800", "x" * 100_000),
    *([], [[]], [None], {}, {"a": {}}, [{}], [{"name": 1}], "../../x", {"x" * 300: 1}, 1 << 63),
)
MISSING = object()
TEXTS = ("", "{", "[", "null", "1", "\0", "[" * 100_000, '{"a":' * 5_000, '{"a": 1, "a": 2}')
Reader = Callable[[Path], object]
Place = tuple[str | int, ...]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("json"))


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished_run, tmp_path / "run")
    return tmp_path / "run"


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every place of a JSON value, including the value itself."""
    yield place
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*place, key))


def replace(value: Any, place: Place, new: Any) -> Any:
    if not place:
        return {} if new is MISSING else new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if len(place) == 1 and new is MISSING:
        del copy[place[0]]
    else:
        copy[place[0]] = replace(copy[place[0]], place[1:], new)
    return copy


def write_value(run: Path, name: str, value: Any, *, seal: bool) -> None:
    """Write a JSON file of a run folder with a valid checksum."""
    is_sealed = seal and isinstance(value, dict) and value
    (run / name).write_bytes(sealed(value) if is_sealed else json.dumps(value).encode())
    if not seal:
        record_checksums(run, [name], more=True)


def resume(run: Path) -> object:
    """Read a folder with results as `qbed run` does."""
    folder = RunFolder(run)
    return folder.survey(range(2)), folder.claim(folder.identity())


READERS: dict[str, Reader] = {
    "report": lambda run: make_report(run, images=False),
    "cells": lambda run: list(lines(Listing(run))),
    "run": resume,
    "verify": lambda run: list(RunFolder(run).verify()),
    "merge": lambda run: RunFolder(run).merge(range(2), {"seed": "int", "tcp": "str"}),
}


def draws(value: Any) -> Iterator[tuple[Place, Any]]:
    everywhere, draw = list(places(value)), random.Random(1)
    if PLACES == "all":
        yield from ((place, new) for place in everywhere for new in (*UNEXPECTED, MISSING))
        return
    for place in draw.sample(everywhere, min(len(everywhere), int(PLACES))):
        yield from ((place, new) for new in draw.sample((*UNEXPECTED, MISSING), 3))


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
def test_unexpected_json_in_a_run_folder_is_refused_or_shown(run: Path, name: str, seal: bool) -> None:
    before = json.loads((run / name).read_text())
    if seal:
        del before[SEAL]
    tried = refused = 0
    for place, new in draws(before):
        write_value(run, name, replace(before, place, new), seal=seal)
        for reader, read in READERS.items():
            tried += 1
            try:
                read(run)
            except QbedError as error:
                assert "Traceback" not in str(error), (place, new)  # the terminal shortens long messages
                refused += 1
            except Exception as error:
                raise AssertionError(f"{name} {place} = {str(new)[:80]!r}, {reader}: {error!r}") from error
    print(f"{name}: {tried} tried, {refused} refused")
    assert refused or name in ("meta.json", "claims.json"), "a file that is only displayed may hold any value"
    for text in TEXTS:
        (run / name).write_text(text)
        if not seal:
            record_checksums(run, [name], more=True)
        for command in (["report", "--no-images"], ["cells"], ["samples"], ["verify"]):
            status, out, errors = call_main(*command, str(run))
            assert status in (0, 1, 2) and len(errors) < 20_000, errors
            assert "Traceback" not in out + errors and "internal error in qbed" not in errors, (text[:20], errors)
