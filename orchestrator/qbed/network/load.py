# SPDX-License-Identifier: Apache-2.0
"""How a lab file is read: once, as a whole.

`load_lab` reads, applies overrides (a campaign's axes, `--set`) to the raw values, validates, resolves, and checks what
no single field can show. It raises `LabError` with one clear message for each thing that is wrong, never anything else.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from qbed.errors import LabError
from qbed.lab.model import Lab
from qbed.lab.reference import schema
from qbed.language.messages import explain
from qbed.language.overrides import apply_overrides
from qbed.language.problems import Problems
from qbed.language.reach import ReachError, beneath
from qbed.language.source import Source, read
from qbed.network.checks import check, check_network
from qbed.network.resolve import ResolvedLab


def load_lab(path: str | Path, overrides: Mapping[str, Any] | None = None) -> ResolvedLab:
    """Read a lab file, or the `lab.yml` of a folder.

    `overrides` sets fields by path (`switches.default.scheme`, `workload[0].incast.senders`) before validation.
    LabError says everything that is wrong.
    """
    path = Path(path)
    return lab_from_source(read(of_folder(path) if path.is_dir() else path), overrides)


def of_folder(folder: Path, name: str = "lab.yml") -> Path:
    """A file of a folder that is named; LabError if it is a link to elsewhere."""
    try:
        return beneath(folder, name)
    except ReachError as error:
        raise LabError([f"{folder / name}: {error}"]) from None


def lab_from_source(source: Source, overrides: Mapping[str, Any] | None = None) -> ResolvedLab:
    """The same from parsed YAML."""
    if not isinstance(source.values, dict):
        raise LabError([source.message((), "expected a lab: a mapping of fields such as `name: my-lab`")])
    apply_overrides(source, overrides or {})
    try:
        lab = Lab.model_validate(source.values, context={"folder": source.folder})
    except ValidationError as error:
        raise LabError(explain(error, source, schema())) from None
    problems = Problems(source)
    network = check_network(lab, problems)
    if network is None:
        raise LabError(problems.errors)
    resolved = ResolvedLab(lab, network, problems)
    check(resolved)
    if problems.errors:
        raise LabError(problems.errors)
    return resolved
