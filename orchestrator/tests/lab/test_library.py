# SPDX-License-Identifier: Apache-2.0
"""`qbed labs`, `qbed new`, and labs by their names."""

import subprocess
import sys
from pathlib import Path

import pytest

from qbed.base.errors import LabError
from qbed.base.locations import labs_folder
from qbed.campaign.file import load_campaign
from qbed.lab.library import CAMPAIGN, LAB, create, entries, find, names
from qbed.network.load import load_lab


def qbed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qbed", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_lab_is_listed_with_its_question_and_profiles() -> None:
    found = {entry.name: entry for entry in entries()}
    assert sorted(found) == names() == sorted(path.name for path in labs_folder().iterdir() if (path / LAB).exists())
    assert found["dumbbell"].question.startswith("How long is the queue of a shared link")
    assert found["dumbbell"].profiles == ("quick", "paper", "switch", "kernels") and found["dumbbell"].needs == ()
    assert found["bgp-clos"].needs == ("FRR",)
    assert found["incast"].others == ("containers.yml", "introduction.yml", "published.yml", "release.yml", "sizes.yml")


def test_the_list_is_printed(tmp_path: Path) -> None:
    shown = qbed(tmp_path, "labs").stdout
    assert all(name in shown for name in names()) and "quick paper" in shown


@pytest.mark.parametrize("like", names())
def test_a_new_lab_is_like_its_model(tmp_path: Path, like: str) -> None:
    place = tmp_path / "my-lab"
    create(place, find(Path(like)))
    model = labs_folder() / like
    assert load_lab(place).lab.name == "my-lab"
    assert load_campaign(place / CAMPAIGN)[0].question == load_campaign(model / CAMPAIGN)[0].question
    created, original = ((folder / LAB).read_text().splitlines() for folder in (place, model))
    assert [line for line in created if line != "name: my-lab"] == [
        line for line in original if not line.startswith("name:")
    ]
    assert "--profile" in (place / "README.md").read_text() and "Nothing yet." in (place / "README.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my-lab"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    assert qbed(tmp_path, "new", "mine").stdout == "mine is written: qbed run mine\n"
    before = {path: path.read_text() for path in (tmp_path / "mine").iterdir()}
    again = qbed(tmp_path, "new", "mine", "--like", "incast")
    assert (again.returncode, again.stderr) == (2, "error: mine exists already; choose another name\n")
    assert {path: path.read_text() for path in (tmp_path / "mine").iterdir()} == before
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(LabError, match="link exists already"):
        create(tmp_path / "link", find(Path("dumbbell")))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("new", "My_Lab"), "My_Lab: expected a lab's name: letters a-z, digits and `-`, such as `my-lab`"),
        (("new", "no/mine"), "no: there is no such folder"),
        (("new", "mine", "--like", "incest"), "incest: there is no such folder or file, and no such lab;"),
        (("new", "mine", "--like", "."), "--like .: expected a lab's folder, with a lab.yml"),
        (("run", "dumbell"), "dumbell: there is no such folder or file, and no such lab; did you mean `dumbbell`?"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = qbed(tmp_path, *arguments)
    assert result.returncode == 2 and result.stderr.startswith(f"error: {message}"), result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_a_lab_of_the_library_unless_it_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find(Path("incast")) == labs_folder() / "incast"
    assert find(Path("incast/sizes.yml")) == labs_folder() / "incast" / "sizes.yml"
    assert find(Path("../schemes")) == Path("../schemes") and find(Path("no/lab.yml")) == Path("no/lab.yml")
    (tmp_path / "incast").mkdir()
    assert find(Path("incast")) == Path("incast")
    assert '"lab": "dumbbell"' in qbed(tmp_path, "compile", "dumbbell").stdout
