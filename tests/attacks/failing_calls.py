# SPDX-License-Identifier: Apache-2.0
"""Fail each system call of a run, in turn: `python tests/attacks/failing_calls.py [--cases 50] [--json FILE]`.

A first run is traced. Each kind of call (its name, and its path without numbers) is a case for each errno that it may
have; a case is a child of a process that has imported qbed. It may succeed with the same results or fail with a message
of path and cause, and the same command afterwards succeeds with the same results. Status 1 if a case does not.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

SOURCE = Path(__file__).with_suffix(".c")
FAULT = struct.Struct("<qqii256s256s")
"""`struct fault` of the C source."""
COMMAND = ("run", "lab", "--out", "run", "--no-images", "--jobs", "1")
CAMPAIGN = """\
question: What does a failing call break?
axes: {seed: [1]}
claims: [{name: ends, paper: It ends., random: false, sql: "SELECT count(*) = 1 AS holds FROM flows"}]
"""
SPACE = {errno.ENOSPC}
ERRORS = {
    "open": (errno.EACCES, errno.EIO, errno.EMFILE),
    "open+": (errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOSPC),
    "read": (errno.EIO,),
    "write+": (errno.ENOSPC, errno.EIO),
    "mkdir+": (errno.EACCES, errno.ENOSPC),
    "other": (errno.EACCES, errno.EIO),
    "other+": (errno.EIO, errno.ENOSPC),
}
_ALIASES = {"pread": "read", "pread64": "read", "pwrite": "write", "pwrite64": "write", "writev": "write"}
_VARIABLE = re.compile(r"(?<=[-./_])[0-9a-z_]*[0-9][0-9a-z_]*|[0-9a-f]{8,}|(?<=tmp)\w+")
LIMIT_S = 600.0
"""A run takes seconds; on a machine with twenty busy processes it took more than two minutes."""


@dataclass(frozen=True)
class Case:
    """The n-th call fails with an errno; `lasting`: and so do later ones that need space."""

    number: int
    call: str
    error: int
    store: bool

    @property
    def lasting(self) -> bool:
        return self.error in SPACE

    def __str__(self) -> str:
        where = "with" if self.store else "without"
        return f"{errno.errorcode[self.error]} at call {self.number}, {self.call}, {where} the store"


@dataclass
class Findings:
    counted: Counter[str] = field(default_factory=Counter)
    texts: list[str] = field(default_factory=list)


class Workplace:
    """A folder with a lab and a cache that shares the toolchain's."""

    def __init__(self, folder: Path) -> None:
        from qbed_testing.untrusted_lab import write_lab

        self.folder = folder
        self.fault = Path(os.environ["FAULT_FILE"])
        self.trace = Path(os.environ["FAULT_TRACE"])
        write_lab(folder / "lab", campaign=CAMPAIGN)
        self.cache = folder / "cache"
        self.stored = folder / "stored"
        self._make_cache()

    def _make_cache(self) -> None:
        from qbed.base.cache import cache_folder

        self.cache.mkdir()
        for place in cache_folder().iterdir():
            if place.is_dir() and place.name not in ("cells", "faults", "queue"):
                (self.cache / place.name).symlink_to(place.resolve())
            elif place.suffix == ".json":
                shutil.copy(place, self.cache / place.name)
        os.environ["QBED_CACHE"] = str(self.cache)

    def set_fault(self, case: Case | None) -> None:
        folders = [str(place).encode() for place in (self.folder / "run", self.cache)]
        numbers = (case.number, case.error, case.lasting) if case else (0, 0, False)
        with self.fault.open("r+b") as file:
            file.write(FAULT.pack(0, *numbers, *folders))

    def clear(self, *, store: bool) -> None:
        """Remove the run, and put the stored cells back or remove them."""
        for place in (self.folder / "run", self.cache / "cells", self.cache / "faults"):
            shutil.rmtree(place, ignore_errors=True)
        if store:
            shutil.copytree(self.stored, self.cache / "cells")

    def run(self) -> tuple[int, str]:
        """Run the command in a child; its status and output."""
        output = self.folder / "output"
        child = os.fork()
        if not child:
            self._command(output)
        end = time.monotonic() + LIMIT_S
        while not (found := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.kill(child, 9)
                return os.waitpid(child, 0)[1], "hang: " + output.read_text(errors="replace")
            time.sleep(0.02)
        return os.waitstatus_to_exitcode(found[1]), output.read_text(errors="replace")

    def _command(self, output: Path) -> None:
        from qbed import cli

        status = 1
        try:
            os.chdir(self.folder)
            sys.argv = ["qbed", *COMMAND]
            descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for number in (1, 2):
                os.dup2(descriptor, number)
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def results(self) -> dict[str, object]:
        """The content of the run's tables, and its verdicts."""
        import pyarrow.parquet as parquet

        run = self.folder / "run"
        claims = json.loads((run / "claims.json").read_text())
        found: dict[str, object] = {"claims": [(claim["name"], claim["verdict"]) for claim in claims]}
        for path in sorted(run.glob("*.parquet")):
            if path.stem != "cells":
                found[path.stem] = parquet.read_table(path)
        found["cells"] = parquet.read_table(run / "cells.parquet", columns=["cell", "status", "trace_sha256"])
        return found


def _kind(call: str) -> str:
    name = _ALIASES.get(call.rstrip("+"), call.rstrip("+"))
    plus = "+" if call.endswith("+") else ""
    return name + plus if name + plus in ERRORS else f"other{plus}"


def cases(trace: str, *, store: bool) -> Iterator[Case]:
    """The first call of each kind, for each errno."""
    seen = set()
    for line in trace.splitlines():
        number, call, path = line.split(" ", 2)
        name = f"{call.rstrip('+')} {_VARIABLE.sub('*', path)}"
        if name in seen:
            continue
        seen.add(name)
        for error in ERRORS[_kind(call)]:
            yield Case(int(number), f"{call.rstrip('+')} {path}", error, store)


def judge(place: Workplace, case: Case, expected: dict[str, object], findings: Findings) -> None:
    """Run a case, and the command again without a fault."""

    def find(what: str, text: str) -> None:
        findings.counted[what] += 1
        findings.texts.append(f"{what}: {case}\n{text[-1200:]}")
        print(findings.texts[-1], file=sys.stderr, flush=True)

    place.clear(store=case.store)
    place.set_fault(case)
    status, text = place.run()
    place.set_fault(None)
    if text.startswith("hang: "):
        find("hangs", text)
    elif "Traceback" in text or "internal error in qbed" in text or status not in (0, 1, 2):
        find("tracebacks", f"status {status}\n{text}{_logs(place)}")
    elif status == 0:
        findings.counted["same results"] += 1
        if place.results() != expected:
            find("differing results", text)
        return
    elif os.strerror(case.error).lower() not in text.lower() and not (case.lasting and "full" in text):
        find("messages without the cause", text)
    else:
        findings.counted["messages"] += 1
    status, text = place.run()  # nothing is left that stops it
    if status or place.results() != expected:
        find("failures afterwards", f"status {status}\n{text}{_logs(place)}")


def _logs(place: Workplace) -> str:
    return "".join(path.read_text() for path in (place.cache / "faults").glob("*"))


def attack(folder: Path, count: int, seed: int) -> Findings:
    """Run the traced run, and then so many cases, chosen at random."""
    from qbed import cli
    from qbed.report import make_report  # noqa: F401 - a case does not import what it needs again
    from qbed.runs import experiment  # noqa: F401

    cli.load_commands()
    place = Workplace(folder)
    chosen, expected = list[Case](), dict[str, object]()
    for store in (False, True):
        place.clear(store=store)
        place.set_fault(None)
        place.trace.write_text("")
        status, text = place.run()
        assert status == 0, text
        chosen += cases(place.trace.read_text(), store=store)
        if not store:
            expected = place.results()
            shutil.copytree(place.cache / "cells", place.stored)
    findings = Findings(Counter({"cases of all": len(chosen)}))
    for case in random.Random(seed).sample(chosen, min(count, len(chosen))):
        findings.counted["cases"] += 1
        judge(place, case, expected, findings)
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1 << 30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if "FAULT_FILE" not in os.environ:
        return _restart()
    findings = attack(Path(os.environ["FAULT_FOLDER"]), options.cases, options.seed)
    print(json.dumps(findings.counted))
    if options.json:
        options.json.write_text(json.dumps(findings.counted) + "\n")
    return int(bool(findings.texts))


def _restart() -> int:
    """Run this program with the library that fails calls."""
    with tempfile.TemporaryDirectory(prefix="qbed-calls-") as folder:
        library = Path(folder, "failing_calls.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        fault = Path(folder, "fault")
        fault.write_bytes(bytes(FAULT.size))
        Path(folder, "work").mkdir()
        environment = os.environ | {
            "LD_PRELOAD": str(library), "FAULT_FILE": str(fault), "FAULT_TRACE": f"{folder}/trace",
            "FAULT_FOLDER": f"{folder}/work", "QBED_STORE": "1 GB", "NO_COLOR": "1",
        }  # fmt: skip
        return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
