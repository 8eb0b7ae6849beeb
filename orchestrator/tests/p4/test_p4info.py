# SPDX-License-Identifier: Apache-2.0
"""P4Info in protobuf's text format: what is read, what is refused, and what reading it imports."""

import subprocess
import sys

import pytest

from qbed.base.locations import schemes_folder
from qbed.p4.p4info import Action, InfoError, MatchField, Register, Table, p4info

TABLE = """
tables {
  preamble { id: 1 name: "Ingress.t" alias: "t" }
  match_fields { id: 1 name: "k" bitwidth: 9 match_type: RANGE }
  action_refs { id: 2 }
  action_refs { id: 3 scope: DEFAULT_ONLY }
  const_default_action_id: 3
  size: 64
  of_a_later_version: 1
}
actions { preamble { id: 2 name: "a" } params { id: 1 name: "p" bitwidth: 48 } }
actions { preamble { id: 3 name: "NoAction" } }
registers { preamble { id: 4 name: "r" } type_spec { bitstring { bit { bitwidth: 32 } } } size: 8 }
"""


def test_tables_actions_and_registers_are_read() -> None:
    info = p4info(TABLE)
    actions = (Action("a", "a", {"p": 48}, "TABLE_AND_DEFAULT"), Action("NoAction", "NoAction", {}, "DEFAULT_ONLY"))
    match = {"k": MatchField("k", 9, "RANGE")}
    assert info.tables == (Table("Ingress.t", "t", match, actions, 64, False, False, True, False),)
    assert info.registers == (Register("r", "r", 8, 32, False),)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "tables {",
        "tables: 3",
        "\0",
        TABLE.replace('name: "Ingress.t"', ""),
        TABLE.replace('name: "k"', ""),
        TABLE.replace("match_type: RANGE", 'other_match_type: "selector"'),
        TABLE.replace("action_refs { id: 2 }", "action_refs { id: 9 }"),
        "registers { type_spec { " + "tuple { members { " * 90_000,
    ],
    ids=range(9),
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InfoError, match="it is not P4Info in protobuf's text format"):
        p4info(text)


def test_protobuf_is_imported_for_programs_only_and_grpc_never() -> None:
    code = (
        "import sys; from pathlib import Path; import qbed.cli.run; from qbed.p4.p4info import p4info;"
        "assert 'google.protobuf' not in sys.modules; p4info(Path(sys.argv[1]).read_text());"
        "assert 'google.protobuf' in sys.modules and not {'grpc', 'finsy'} & sys.modules.keys()"
    )
    path = schemes_folder() / "ecn" / "p4" / "ecn.p4info.txtpb"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
