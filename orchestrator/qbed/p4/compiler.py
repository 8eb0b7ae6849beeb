# SPDX-License-Identifier: Apache-2.0
"""P4 programs and their compiler: the files that a program is made of, their checksums, and p4c-bm2-ss.

tools/p4 uses this without a virtual environment, so there is nothing here but Python's own modules.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

COMPILER = "p4c-bm2-ss"
COMPILED = ("json", "p4info.txtpb")
LONGEST_S = 300
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)


class CompileError(ValueError):
    """A program that does not compile, or a compiler that does not run; the message is the compiler's."""


def sources(program: Path, shared: Path) -> list[Path]:
    """The program and every file that it includes, directly or not, from its own folder or from `shared`.

    What is found in neither is the compiler's own (`core.p4`). OSError if one cannot be read.
    """
    found: list[Path] = []
    waiting = [program]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.append(path)
        for name in _INCLUDE.findall(path.read_text(errors="replace")):
            places = (Path(os.path.normpath(folder / name)) for folder in (path.parent, shared))
            waiting += [place for place in places if place.is_file()][:1]
    return sorted(found)


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def compiled_files(program: Path) -> list[Path]:
    """The files that the compiler makes of a program, beside it."""
    return [program.with_suffix(f".{suffix}") for suffix in COMPILED]


def find_compiler() -> str | None:
    """The path of p4c-bm2-ss: what P4C names, or in PATH; None: it is not installed."""
    return shutil.which(os.environ.get("P4C") or COMPILER)


def version_of(compiler: str) -> str:
    """Its version; `CompileError` if it does not run."""
    output = _output([compiler, "--version"])[1]
    found = re.search(r"\d+\.\d+\.\d+\S*", output)
    return found[0] if found else output.strip()


def compile_program(compiler: str, program: Path, shared: Path, *, warnings_are_errors: bool) -> str:
    """Compile a program into the files beside it; returns the compiler's warnings. `CompileError`, OSError.

    Positions in source files are left out: they change with every comment.
    """
    with tempfile.TemporaryDirectory() as folder:
        new = compiled_files(Path(folder) / program.name)
        status, output = _output([
            compiler, "--p4v", "16", "--Wdisable=unused", "--Wdisable=removed", "-I", str(shared),
            "-o", str(new[0]), "--p4runtime-files", str(new[1]), str(program),
        ])  # fmt: skip
        if status or (output and warnings_are_errors):
            raise CompileError(output)
        try:
            form = _without_positions(json.loads(new[0].read_text()))
            form["program"] = program.name
        except (OSError, ValueError, TypeError) as error:
            raise CompileError(f"{output}{compiler} wrote no JSON: {error}") from error
        new[0].write_text(json.dumps(form, indent=0) + "\n")
        if not new[1].is_file():
            raise CompileError(f"{output}{compiler} wrote no P4Info")
        for path, place in zip(new, compiled_files(program), strict=True):
            shutil.copyfile(path, place)
    return output


def _output(command: list[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=LONGEST_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CompileError(f"{command[0]} did not end in {LONGEST_S} s") from None
    except OSError as error:
        raise CompileError(f"{command[0]} does not run: {error.strerror}") from error
    return done.returncode, done.stdout


def _without_positions(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_positions(item) for key, item in value.items() if key != "source_info"}
    if isinstance(value, list):
        return [_without_positions(item) for item in value]
    return value
