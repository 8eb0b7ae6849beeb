# SPDX-License-Identifier: Apache-2.0
"""Generated documentation: up to date, and the schema accepts what the loader accepts."""

import json
import re
from pathlib import Path

import jsonschema
import plan_examples
import pytest

from qbed.campaign import reference as campaign
from qbed.campaign.file import Campaign, load_campaign
from qbed.config.descriptions import json_schema
from qbed.config.source import read
from qbed.lab.reference import page, schema
from qbed.plan import reference as plan
from qbed.plan.model import Plan
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


def test_the_published_schema_of_plans_is_up_to_date() -> None:
    assert (ROOT / "docs" / "plan.schema.json").read_text() == plan.schema_text(), "run: make generate"
    jsonschema.Draft202012Validator.check_schema(plan.schema())


def test_the_published_reference_of_plans_is_up_to_date() -> None:
    formats = (ROOT / "docs" / "formats.md").read_text()
    assert formats == plan.page(formats), "run: make generate"
    without = formats.replace(plan.BEGIN, "")
    with pytest.raises(ValueError, match="expected `<!-- Generated"):
        plan.page(without)


def test_the_example_plans_are_up_to_date() -> None:
    stored = {path.name: path.read_text() for path in plan_examples.FOLDER.iterdir()}
    assert stored == plan_examples.files(), "run: make generate"


def test_the_example_plans_are_valid_and_have_every_field_set_and_unset() -> None:
    found: dict[str, list[set[str]]] = {}
    for name, text in plan_examples.files().items():
        if name == plan_examples.PARTS:
            continue
        jsonschema.validate(json.loads(text), plan.schema())
        assert Plan.loads(text).dumps() == text
        for part, fields in plan_examples.fields_of(text):
            found.setdefault(part, []).append(fields)
    for part, place in {"Plan": plan.schema(), **plan.schema()["$defs"]}.items():
        for field in place["properties"]:
            assert any(field in fields for fields in found[part]), f"{part}.{field} is never set"
            if field not in place.get("required", ()):
                assert any(field not in fields for fields in found[part]), f"{part}.{field} is always set"


def test_the_plan_in_the_documentation_is_valid() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "formats.md").read_text().split("## 2.")[0], re.S)
    jsonschema.validate(json.loads(text), plan.schema())
    assert Plan.loads(text).lab == "dumbbell"


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
    campaigns = json_schema(Campaign)
    models = [("Lab", schema()), *schema()["$defs"].items(), ("Campaign", campaigns), *campaigns["$defs"].items()]
    models += [("Plan", plan.schema()), *plan.schema()["$defs"].items()]
    for name, place in models:
        for field, inner in place.get("properties", {}).items():
            assert inner.get("description"), f"{name}.{field} has no docstring"
