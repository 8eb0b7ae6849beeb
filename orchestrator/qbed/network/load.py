# SPDX-License-Identifier: Apache-2.0
"""Loading of lab files.

`load_lab` reads a file, applies overrides (a campaign's axes, `--set`) to the raw values, validates, resolves, and runs
the checks across fields. All errors are raised as one `LabError` with a message each.

A setting that nothing reads is an error, too. With overrides, the file is first checked without them; settings of the
file that have no effect because of an override are warnings.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from qbed.base.errors import LabError
from qbed.config.messages import explain
from qbed.config.overrides import apply_overrides
from qbed.config.problems import Problems
from qbed.config.reach import ReachError, beneath
from qbed.config.source import Source, read
from qbed.lab.model import Lab
from qbed.lab.reference import cached_schema
from qbed.network.checks import check, check_network
from qbed.network.resolve import ResolvedLab


def load_lab(path: str | Path, overrides: Mapping[str, object] | None = None) -> ResolvedLab:
    """Read a lab file, or the `lab.yml` of a folder.

    `overrides` sets fields by path (`switches.default.scheme`, `workload[0].incast.senders`) before validation.
    LabError lists all errors.
    """
    source = read_lab(path)
    if overrides:
        lab_from_source(replace(source))
    return lab_from_source(source, overrides)


def load_cell(source: Source, overrides: Mapping[str, object]) -> ResolvedLab:
    """Return the lab of one cell of a campaign, from a file that was checked by itself.

    An override that is unread in this cell may be read in others: it is in `ResolvedLab.unread`.
    """
    return lab_from_source(replace(source), overrides, of_campaign=True)


def read_lab(path: str | Path) -> Source:
    """Parse a lab file, or the `lab.yml` of a folder."""
    path = Path(path)
    return read(of_folder(path) if path.is_dir() else path)


def of_folder(folder: Path, name: str = "lab.yml") -> Path:
    """Return the path of a named file in a folder. LabError if it is a link that leaves the folder."""
    try:
        return beneath(folder, name)
    except ReachError as error:
        raise LabError([f"{folder / name}: {error}"]) from None


def lab_from_source(
    source: Source, overrides: Mapping[str, object] | None = None, *, of_campaign: bool = False
) -> ResolvedLab:
    """Return a lab from parsed YAML, without checking the file by itself."""
    if not isinstance(source.values, dict):
        raise LabError([source.message((), "expected a lab: a mapping of fields such as `name: my-lab`")])
    apply_overrides(source, overrides or {})
    try:
        lab = Lab.model_validate(source.values, context={"folder": source.folder})
    except ValidationError as error:
        raise LabError(explain(error, source, cached_schema())) from None
    problems = Problems(source)
    network = check_network(lab, problems)
    if network is None:
        raise LabError(problems.errors)
    resolved = ResolvedLab(lab, network, problems)
    check(resolved)
    if not problems.errors:  # with errors, the set of settings that are read is incomplete
        _refuse_unread(problems, of_campaign=of_campaign)
    if problems.errors:
        raise LabError(problems.errors)
    return resolved


def _refuse_unread(problems: Problems, *, of_campaign: bool) -> None:
    """Refuse settings that nothing reads.

    In a file with overrides, unread settings are only warnings if an override chose another scheme, controller or kind,
    and are allowed if an override has a more specific setting.
    """
    for path, unread in problems.unread.items():
        if not problems.source.axes or (problems.source.is_override(path) and not of_campaign):
            problems.error(path, unread.text)
        elif unread.conditional and not problems.source.is_override(path):
            problems.warn(path, unread.text)
