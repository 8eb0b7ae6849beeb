# SPDX-License-Identifier: Apache-2.0
"""Tests of an algorithm without a kernel: a C file in user space, under sanitizers."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from qbed.base.locations import sources_folder
from qbed.schemes.generate import generated

_FLAGS = (
    *("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Wno-unused-parameter"),
    *("-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
"""As in kernel/tests/Makefile."""


def run_algorithm_test(file: Path) -> None:
    """Compile a test of a scheme or congestion control, `NAME/tests/test_*.c`, and run it. AssertionError has the
    compiler's or the test's messages.

    It can include `unit.h`, which has EXPECT_EQUAL() and RUN(), the headers of `NAME/kernel`, generated ones, and
    those of `kernel/include`.
    """
    kernel = sources_folder() / "kernel"
    folder = file.resolve().parents[1]
    with tempfile.TemporaryDirectory(prefix="qbed-test-") as name:
        work = Path(name)
        for path, text in generated("kernel").items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text)
        folders = (kernel / "tests", kernel / "include", kernel / "include/uapi", folder / "kernel", work / folder.name)
        options = [f"-I{path}" for path in folders]
        _run([os.environ.get("CC", "cc"), *_FLAGS, *options, "-o", str(work / "test"), str(file)])
        _run([str(work / "test")])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
