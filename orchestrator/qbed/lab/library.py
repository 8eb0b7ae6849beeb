# SPDX-License-Identifier: Apache-2.0
"""The library of labs: find a lab by its name, list labs with their questions and requirements, copy a lab."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qbed.base.errors import LabError, nearest
from qbed.base.locations import labs_folders
from qbed.config.source import read, read_lab_text

LAB, CAMPAIGN = "lab.yml", "campaign.yml"
_COPIED = ("*.yml", "*.p4", "*.json", "*.p4info.txtpb", "*.py", "*.trace", "*.txt", "*.csv")
"""Campaigns, programs as they were written and compiled, what controls them, and what a lab reads."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_README = """\
# {title}

{question}

    qbed run {folder}{profile}
    qbed inspect {folder}

`lab.yml` says what there is and what happens, `campaign.yml` what is varied, claimed and drawn.
They began as those of the lab `{like}`: change the question first.

## What came out

Nothing yet.
"""


@dataclass(frozen=True)
class Entry:
    """A lab of the library: `others` are further campaigns in its folder."""

    name: str
    question: str
    profiles: tuple[str, ...]
    needs: tuple[str, ...]
    others: tuple[str, ...]


def names() -> list[str]:
    """The labs that come with qbed, and those of the user's repository."""
    return sorted({path.parent.name for folder in labs_folders() for path in folder.glob(f"*/{LAB}")})


def find(path: Path) -> Path:
    """The path as it is; if nothing is there, the library's lab (or campaign: `incast/sizes.yml`) of that name."""
    if path.exists() or path.is_absolute() or path.parts[:1] in ((), ("..",)):
        return path
    if (found := _in_library(path)) is not None:
        return found
    if len(path.parts) > 1 or path.suffix:
        return path
    raise LabError([f"{path}: there is no such folder or file, and no such lab{nearest(str(path), names())}"])


def _in_library(path: Path) -> Path | None:
    found = [folder / path for folder in labs_folders() if (folder / path.parts[0]).exists()]
    if len(found) > 1:
        raise LabError([f"{path.parts[0]}: {found[1]} and {found[0]} have this name; write the path of the one to use"])
    return found[0] if found and found[0].exists() else None


def entries() -> Iterator[Entry]:
    """Every lab, with what its campaign file says."""
    for name in names():
        folder = _in_library(Path(name))
        assert folder is not None, "names() lists labs of the library"
        campaign = _values(folder / CAMPAIGN)
        others = tuple(sorted(path.name for path in folder.glob("*.yml") if path.name not in (LAB, CAMPAIGN)))
        question, profiles = str(campaign.get("question", "")), tuple(_profiles(campaign))
        yield Entry(name, question, profiles, _needs(_values(folder / LAB)), others)


def _needs(lab: dict[str, object]) -> tuple[str, ...]:
    """Return the programs that a lab needs beyond qbed."""
    found = ["FRR"] if lab.get("routing") == "frr" else []
    switches, programs = lab.get("switches"), lab.get("programs")
    given = switches.values() if isinstance(switches, dict) else ()
    if any("qdisc" in settings for settings in given if isinstance(settings, dict)):
        found.append("tc")
    listed = programs if isinstance(programs, list) else ()
    words = [program.get("run") for program in listed if isinstance(program, dict)]
    firsts = [str(run).split()[0] for run in words if isinstance(run, str) and run.strip()]
    return (*found, *(dict.fromkeys(name for name in firsts if "/" not in name)))


def _profiles(campaign: dict[str, object]) -> list[str]:
    profiles = campaign.get("profiles")
    return list(profiles) if isinstance(profiles, dict) else []


def _values(file: Path) -> dict[str, object]:
    values = read(file).values if file.exists() else {}
    return values if isinstance(values, dict) else {}


def create(place: Path, like: Path) -> None:
    """Write the lab folder `place` to start from, as the lab `like` is; nothing is overwritten."""
    if not _NAME.fullmatch(place.name):
        raise LabError([f"{place.name}: expected a lab's name: letters a-z, digits and `-`, such as `my-lab`"])
    if place.exists() or place.is_symlink():
        raise LabError([f"{place} exists already; choose another name"])
    if not place.parent.is_dir():
        raise LabError([f"{place.parent}: there is no such folder"])
    model = like if like.is_dir() else like.parent
    if not (model / LAB).is_file():
        raise LabError([f"--like {like}: expected a lab's folder, with a {LAB}"])
    files = sorted(file for pattern in _COPIED for file in model.glob(pattern) if not file.name.startswith("test_"))
    for file in files:
        if file.is_symlink():  # what it names would be in a lab that is shared later
            raise LabError([f"--like {like}: {file} is a link, expected a file; copy what it names first"])
    beside = place.with_name(f".{place.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    for file in files:
        text = read_lab_text(file)
        if file.name == LAB:
            text = re.sub(r"(?m)^name:.*$", f"name: {place.name}", text, count=1)
        (beside / file.name).write_text(text)
        (beside / file.name).chmod(file.stat().st_mode & 0o777)
    campaign = _values(model / CAMPAIGN)
    profiles = _profiles(campaign)
    (beside / "README.md").write_text(
        _README.format(
            title=place.name.replace("-", " ").capitalize(),
            question=campaign.get("question", "What does this lab do?"),
            folder=place,
            profile=f" --profile {profiles[0]}" if profiles else "",
            like=model.name,
        )
    )
    beside.rename(place)
