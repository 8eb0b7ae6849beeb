# SPDX-License-Identifier: Apache-2.0
"""`make audit`: advisories are matched to versions, the wheel has a bill of materials, and two builds are equal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
AUDIT = ROOT / "tools" / "audit"
RUST = """\
```toml
[advisory]
id = "RUSTSEC-2099-0001"
package = "serde"
{more}

[versions]
patched = [{patched}]
```

# A title

Text.
"""
PYTHON = """\
id: PYSEC-2099-1
details: A title.
affected:
- package: {name: DuckDB, ecosystem: PyPI}
  ranges: [{type: ECOSYSTEM, events: [{introduced: "0"}, {fixed: "FIXED"}]}]
"""


@pytest.fixture
def advisories(tmp_path: Path) -> Path:
    for name, folder in (("rustsec", "crates/serde"), ("pypa", "vulns/duckdb")):
        (tmp_path / name / folder).mkdir(parents=True)
    return tmp_path


def audit(advisories: Path, rust: str, python: str) -> tuple[int, dict[str, object]]:
    (advisories / "rustsec/crates/serde/RUSTSEC-2099-0001.md").write_text(rust)
    (advisories / "pypa/vulns/duckdb/PYSEC-2099-1.yaml").write_text(python)
    for name in ("rustsec", "pypa"):
        git = ["git", "-C", str(advisories / name), "-c", "user.name=x", "-c", "user.email=x@example.org"]
        for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "x")):
            subprocess.run([*git, *words], check=True)
    done = subprocess.run(
        [sys.executable, AUDIT, "advisories", "--json", advisories / "audit.json"],
        env=os.environ | {"QBED_ADVISORIES": str(advisories)}, capture_output=True, text=True,
    )  # fmt: skip
    assert not done.stderr
    return done.returncode, json.loads((advisories / "audit.json").read_text())


@pytest.mark.parametrize(
    ("patched", "fixed", "more", "status", "found"),
    [
        ('">= 99.0.0"', "99.0", "", 1, ["vulnerability", "vulnerability"]),
        ('"^99", "~99.1"', "0.1", "", 1, ["vulnerability"]),
        ('"^1.0.1"', "0.1", "", 0, []),
        ('">= 1.0.1, < 2"', "0.1", "", 0, []),
        ("", "0.1", 'informational = "unmaintained"', 0, ["unmaintained"]),
        ("", "0.1", "withdrawn = 2099-01-01", 0, []),
    ],
)
def test_advisories_apply_to_the_locked_versions(
    advisories: Path, patched: str, fixed: str, more: str, status: int, found: list[str]
) -> None:
    rust = RUST.replace("{more}", more).replace("{patched}", patched)
    ended, report = audit(advisories, rust, PYTHON.replace("FIXED", fixed))
    assert ended == status, report
    assert [one["kind"] for one in report["findings"]] == found  # type: ignore[attr-defined]
    assert all(count > 50 for count in report["packages"].values())  # type: ignore[attr-defined]


def test_without_advisories_it_is_skipped(tmp_path: Path) -> None:
    environment = os.environ | {"QBED_ADVISORIES": str(tmp_path)}
    done = subprocess.run([sys.executable, AUDIT, "advisories"], env=environment, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stdout.count("audit: skipped: ") == 2


def build(folder: Path, umask: int) -> Path:
    """Build a wheel with a small bundle, in a separate folder of temporary files."""
    bundle = folder / "bundle"
    for path, text in {
        "toolchain/manifest.json": '{"kernel_version": "6.12.1"}',
        "licenses/crates/serde-1.0.0/LICENSE": "serde 1.0.0: MIT/Apache-2.0\n",
        "labs/z.yml": "z",
        "labs/a.yml": "a",
    }.items():
        (bundle / path).parent.mkdir(parents=True, exist_ok=True)
        (bundle / path).write_text(text)
    (folder / "tmp").mkdir()
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--wheel-dir", folder, ROOT / "orchestrator"], check=True, umask=umask,
        env=os.environ | {"QBED_BUNDLE": str(bundle), "QBED_PLATFORM": "linux_x86_64", "TMPDIR": str(folder / "tmp")},
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_two_builds_of_the_wheel_are_equal_and_have_a_bill_of_materials(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = build(tmp_path / "one", 0o022), build(tmp_path / "two", 0o077)
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(two) as second:
        assert [str(entry) for entry in first.infolist()] == [str(entry) for entry in second.infolist()]
    assert one.read_bytes() == two.read_bytes()
    done = subprocess.run([sys.executable, AUDIT, "sbom", one], check=True, capture_output=True, text=True)
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    refs = [component.get("bom-ref") for component in bill["components"]]
    assert "pkg:cargo/serde@1.0.0" in refs
    assert any(str(ref).startswith("pkg:pypi/duckdb@") for ref in refs)
    assert len(set(refs)) == len(refs)
    (linux,) = [component for component in bill["components"] if component["name"] == "linux"]
    assert linux["version"] == "6.12.1"
