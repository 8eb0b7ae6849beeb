# SPDX-License-Identifier: Apache-2.0
"""Generated documentation: up to date, and the schema accepts what the loader accepts."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from qbed.campaign import reference as campaign
from qbed.campaign.file import Campaign, load_campaign
from qbed.config.source import read
from qbed.lab.reference import page, schema
from qbed.telemetry.tables import RESERVED_COLUMNS

ROOT = Path(__file__).parents[3]
LABS = sorted((ROOT / "labs").glob("*/lab.yml"))


def test_the_published_schema_is_up_to_date() -> None:
    published = (ROOT / "docs" / "lab.schema.json").read_text()
    assert published == json.dumps(schema(), indent=1, ensure_ascii=False) + "\n", (
        "run: qbed schema > docs/lab.schema.json"
    )


def test_the_published_reference_is_up_to_date() -> None:
    assert (ROOT / "docs" / "lab-file.md").read_text() == page(), "run: qbed reference > docs/lab-file.md"


def test_the_published_reference_of_campaigns_is_up_to_date() -> None:
    published = (ROOT / "docs" / "campaign.md").read_text()
    assert published == campaign.page(), "run: qbed reference campaign > docs/campaign.md"


def test_every_column_of_the_tables_is_a_name_that_no_axis_has() -> None:
    _, _, names = campaign.page().partition("## Names that no axis has")
    reserved = set(re.findall(r"`(\w+)`", names))
    assert reserved == RESERVED_COLUMNS and {"probe", "lost", "dscp", "query_ns"} <= reserved and "seed" not in reserved


def test_every_campaign_in_the_references_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", campaign.page(), re.S)
    (tmp_path / "campaign.yml").write_text(text)
    assert [claim.paper for claim in load_campaign(tmp_path / "campaign.yml")[0].claims] == [""]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.parent.name)
def test_the_schema_accepts_the_labs(path: Path) -> None:
    jsonschema.validate(read(path).values, schema())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("5 us", "5"),
        ("scheme: droptail", "scheme: dropt"),
        ("buffer", "bufer"),
        ("dumbbell: {", "x: {"),
    ],
)
def test_the_schema_refuses_mistakes(old: str, new: str, tmp_path: Path) -> None:
    text = (ROOT / "labs" / "dumbbell" / "lab.yml").read_text()
    assert old in text
    (tmp_path / "lab.yml").write_text(text.replace(old, new))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(read(tmp_path / "lab.yml").values, schema())


def test_every_field_has_a_description() -> None:
    campaigns = Campaign.model_json_schema()
    models = [("Lab", schema()), *schema()["$defs"].items(), ("Campaign", campaigns), *campaigns["$defs"].items()]
    for name, place in models:
        for field, inner in place.get("properties", {}).items():
            assert inner.get("description"), f"{name}.{field} has no docstring"
