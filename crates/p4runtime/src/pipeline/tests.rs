// SPDX-License-Identifier: Apache-2.0
//! P4Info and programs that fit, and that do not.

use std::path::Path;

use super::*;
use crate::testing;

fn link(config: ForwardingPipelineConfig) -> LinkResult<Pipeline> {
    let program =
        qbed_p4switch::load::load(&config.p4_device_config).map_err(|refused| refused.to_string())?;
    Pipeline::new(config, program)
}

#[test]
fn everything_is_linked() {
    let pipeline = link(testing::everything()).unwrap();
    let table = |name: &str| pipeline.tables.values().find(|table| table.name == name).unwrap();
    let hosts = table("ProbeIngress.hosts");
    assert!(hosts.has_counter && hosts.meter == Some(MeterKind::TwoRates) && hosts.idle_timeout);
    let scopes = hosts.actions.iter().map(|scope| (scope.name.as_str(), scope.in_entries, scope.as_default));
    assert_eq!(
        scopes.collect::<Vec<_>>(),
        [
            ("ProbeIngress.host_forward", true, true),
            ("ProbeIngress.learn", false, true),
            ("ProbeIngress.drop", true, false)
        ]
    );
    let rules = table("ProbeIngress.rules").keys.iter().map(|key| (key.kind, key.widths.program));
    assert_eq!(
        rules.collect::<Vec<_>>(),
        [(MatchKind::Ternary, 4), (MatchKind::Range, 12), (MatchKind::Optional, 16)]
    );
    assert!(table("ProbeIngress.fixed").constant && table("ProbeIngress.rules").constant_default);
    assert_eq!(
        pipeline
            .registers
            .values()
            .find(|register| register.name == "ProbeIngress.balance")
            .unwrap()
            .data_type,
        Type::Signed(12)
    );
    assert_eq!(
        pipeline.digests.values().next().unwrap().data_type,
        Type::Struct(vec![Type::Bits(32), Type::Bits(9)])
    );
    assert_eq!(
        pipeline.packet_in.fields.iter().map(|field| field.widths.program).collect::<Vec<_>>(),
        [9, 7]
    );
}

#[test]
fn the_schemes_are_linked() {
    let schemes = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../schemes");
    let mut linked = 0;
    for scheme in std::fs::read_dir(schemes).unwrap() {
        let folder = scheme.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap();
        if folder.join("p4").is_dir() {
            link(testing::config(&folder.join("p4"), name)).unwrap_or_else(|why| panic!("{name}: {why}"));
            linked += 1;
        }
    }
    assert!(linked >= 7, "{linked}");
}

/// The error after a change of P4Info's text.
fn link_error(from: &str, to: &str) -> String {
    let mut config = testing::everything();
    let text = testing::read(
        &Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap())
            .join("tests/programs/everything.p4info.txtpb"),
    );
    assert!(text.contains(from), "{from}");
    config.p4info = Some(testing::message("p4.config.v1.P4Info", &text.replacen(from, to, 1)));
    link(config).err().unwrap_or_default()
}

#[test]
fn errors_name_the_object() {
    for (from, to, why) in [
        ("name: \"ProbeIngress.routes\"", "name: \"Other.routes\"", "the program has no table Other.routes"),
        (
            "id: 40107066",
            "id: 38360261",
            "ProbeIngress.hosts and ProbeIngress.routes have the same id 0x24954c5",
        ),
        ("bitwidth: 32", "bitwidth: 31", "hdr.probe.address has 31 bits in P4Info, 32 in the program"),
        (
            "match_type: LPM",
            "match_type: EXACT",
            "hdr.probe.address is matched as Exact in P4Info, as Lpm in the program",
        ),
        (
            "is_const_table: true\n  has_initial_entries: true",
            "",
            "table ProbeIngress.fixed has entries in one of P4Info and program only",
        ),
        ("with_selector: true", "", "action profile ProbeIngress.paths has a selector in one of"),
        ("implementation_id: 293973874", "", "table ProbeIngress.by_hop has an action profile in one of"),
        (
            "implementation_id: 293973874",
            "implementation_id: 292499394",
            "ProbeIngress.by_hop has another action profile",
        ),
        (
            "bitwidth: 48",
            "bitwidth: 47",
            "register ProbeIngress.last_seen has [47] bits in P4Info, 48 in the program",
        ),
        (
            "  size: 4\n",
            "  size: 5\n",
            "value set ProbeParser.probes has 5 elements in P4Info, 4 in the program",
        ),
        ("id: 31721190\n", "id: 5\n", "table ProbeIngress.hosts: there is no action 0x5"),
        (
            "name: \"ProbeIngress.learn\"",
            "name: \"learn\"",
            "table ProbeIngress.hosts has no action learn in the program",
        ),
    ] {
        let found = link_error(from, to);
        assert!(found.contains(why), "{from} -> {to}: {found}");
    }
}
