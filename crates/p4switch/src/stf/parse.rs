// SPDX-License-Identifier: Apache-2.0
//! The parser of STF files.

use super::words::Words;
use super::{Call, Check, Comparison, Line, Pattern, Result, Statement, SyntaxError};

const KEYWORDS: &[&str] = &[
    "add",
    "all",
    "bytes",
    "check_counter",
    "expect",
    "no_packet",
    "packet",
    "packets",
    "remove",
    "setdefault",
    "wait",
    "mirroring_add",
    "mirroring_add_mc",
    "mirroring_delete",
    "mirroring_get",
    "mc_mgrp_create",
    "mc_node_create",
    "mc_node_update",
    "mc_node_associate",
    "counter_read",
    "counter_write",
    "register_read",
    "register_write",
    "register_reset",
    "meter_get_rates",
    "meter_set_rates",
    "meter_array_set_rates",
    "set_queue_depth",
    "set_queue_rate",
    "set_crc16_parameters",
    "set_crc32_parameters",
];

/// Parse a file's statements.
pub fn parse(text: &str) -> std::result::Result<Vec<Line>, SyntaxError> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(first) = line.split_whitespace().next() else { continue };
        if KEYWORDS.contains(&first.to_ascii_lowercase().as_str()) {
            statements.push((number, line.to_owned()));
        } else if let Some((_, statement)) = statements.last_mut() {
            statement.push(' ');
            statement.push_str(line);
        } else {
            return Err(SyntaxError { line: number, reason: format!("unknown statement {first}") });
        }
    }
    let numbered = |(number, text): (usize, String)| match statement(&text) {
        Ok(statement) => Ok(Line { number, statement }),
        Err(reason) => Err(SyntaxError { line: number, reason }),
    };
    statements.into_iter().map(numbered).collect()
}

fn statement(text: &str) -> Result<Statement> {
    let (keyword, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let keyword = keyword.to_ascii_lowercase();
    match keyword.as_str() {
        "packet" => {
            let (port, data) = port_and_data(rest)?;
            Ok(Statement::Packet { port, bytes: hex(&data)? })
        }
        "expect" => {
            let (port, data) = port_and_data(rest)?;
            let pattern = if data.is_empty() { None } else { Some(Pattern::parse(&data)?) };
            Ok(Statement::Expect { port, pattern })
        }
        _ => {
            let mut words = Words::new(rest)?;
            let statement = command(&keyword, &mut words)?;
            match words.next() {
                None => Ok(statement),
                Some(word) => Err(format!("unexpected {word:?} after {keyword}")),
            }
        }
    }
}

fn command(keyword: &str, words: &mut Words) -> Result<Statement> {
    Ok(match keyword {
        "add" => add(words)?,
        "setdefault" => Statement::SetDefault { table: words.word()?, call: call(words)? },
        "no_packet" => Statement::NoPacket,
        "wait" => Statement::Wait,
        "remove" => {
            let target = words.word()?;
            match target.eq_ignore_ascii_case("all") {
                true => Statement::RemoveAll,
                false => return Err(format!("remove {target}: only `remove all` exists")),
            }
        }
        "check_counter" => check_counter(words)?,
        "mirroring_add" => Statement::MirroringAdd { session: words.number()?, port: words.number()? },
        "mirroring_add_mc" => {
            Statement::MirroringAddGroup { session: words.number()?, group: words.number()? }
        }
        "mirroring_delete" => Statement::MirroringDelete { session: words.number()? },
        "mirroring_get" => {
            let _session: u16 = words.number()?;
            Statement::Nothing
        }
        "mc_mgrp_create" => Statement::CreateGroup { group: words.number()? },
        "mc_node_create" => Statement::CreateNode { instance: words.number()?, ports: words.numbers()? },
        "mc_node_update" => Statement::UpdateNode { node: words.number()?, ports: words.numbers()? },
        "mc_node_associate" => Statement::AssociateNode { group: words.number()?, node: words.number()? },
        "counter_read" => Statement::CounterRead { counter: words.word()?, index: words.number()? },
        "counter_write" => {
            let (counter, index) = (words.word()?, words.number()?);
            // In simple_switch_CLI's order.
            Statement::CounterWrite { counter, index, packets: words.number()?, bytes: words.number()? }
        }
        "register_read" => Statement::RegisterRead { register: words.word()?, index: words.number()? },
        "register_write" => {
            Statement::RegisterWrite { register: words.word()?, index: words.number()?, value: words.word()? }
        }
        "register_reset" => Statement::RegisterReset { register: words.word()? },
        "meter_get_rates" => Statement::MeterRead { meter: words.word()?, index: words.number()? },
        "meter_set_rates" => {
            let (meter, index) = (words.word()?, words.number()?);
            Statement::MeterWrite { meter, index: Some(index), rates: rates(words)? }
        }
        "meter_array_set_rates" => {
            Statement::MeterWrite { meter: words.word()?, index: None, rates: rates(words)? }
        }
        "set_queue_depth" | "set_queue_rate" => {
            return Err(format!(
                "{keyword}: a queue of p4switch is first in, first out and never full; \
                 in a lab, `buffer` sets its length and the link its rate"
            ))
        }
        "set_crc16_parameters" | "set_crc32_parameters" => {
            return Err(format!(
                "{keyword}: a custom CRC keeps BMv2's initial parameters (those of crc16 and crc32), since neither \
                 BMv2's JSON nor P4Runtime carries others"
            ))
        }
        other => return Err(format!("unknown statement {other}")),
    })
}

fn add(words: &mut Words) -> Result<Statement> {
    let table = words.word()?;
    let mut priority = None;
    let mut keys = Vec::new();
    loop {
        let word = words.word()?;
        match words.peek() {
            Some("(") => {
                let call = Call { action: word, arguments: arguments(words)? };
                let name = match words.peek() {
                    Some("=") => {
                        words.expect("=")?;
                        Some(words.word()?)
                    }
                    _ => None,
                };
                return Ok(Statement::Add { table, priority, keys, call, name });
            }
            Some(":") => {
                words.expect(":")?;
                let mut value = words.word()?;
                if words.peek() == Some("/") {
                    words.expect("/")?;
                    value = format!("{value}/{}", words.word()?);
                }
                keys.push((word, value));
            }
            _ if priority.is_none() && keys.is_empty() => {
                priority =
                    Some(word.parse().map_err(|_| format!("{word:?} is neither a priority nor a key"))?);
            }
            _ => return Err(format!("{word:?} is neither a key nor an action")),
        }
    }
}

fn call(words: &mut Words) -> Result<Call> {
    Ok(Call { action: words.word()?, arguments: arguments(words)? })
}

fn arguments(words: &mut Words) -> Result<Vec<(String, String)>> {
    words.expect("(")?;
    let mut arguments = Vec::new();
    while words.peek() != Some(")") {
        if !arguments.is_empty() {
            words.expect(",")?;
        }
        let name = words.word()?;
        words.expect(":")?;
        arguments.push((name, words.word()?));
    }
    words.expect(")")?;
    Ok(arguments)
}

fn check_counter(words: &mut Words) -> Result<Statement> {
    let counter = words.word()?;
    words.expect("(")?;
    let cell = words.word()?;
    words.expect(")")?;
    let mut check = Check { bytes: false, comparison: Comparison::Equal, value: 0 };
    if words.peek().is_some() {
        check.bytes = match words.word()?.to_ascii_lowercase().as_str() {
            "bytes" => true,
            "packets" => false,
            other => return Err(format!("{other}: expected packets or bytes")),
        };
        check.comparison = match words.next().as_deref() {
            Some("==") => Comparison::Equal,
            Some("!=") => Comparison::NotEqual,
            Some("<") => Comparison::Less,
            Some("<=") => Comparison::LessOrEqual,
            Some(">") => Comparison::Greater,
            Some(">=") => Comparison::GreaterOrEqual,
            other => return Err(format!("{other:?} is not a comparison")),
        };
        check.value = words.number()?;
    }
    Ok(Statement::CheckCounter { counter, cell, check })
}

fn rates(words: &mut Words) -> Result<Vec<(String, String)>> {
    let mut rates = Vec::new();
    while words.peek().is_some() {
        let rate = words.word()?;
        words.expect(":")?;
        rates.push((rate, words.word()?));
    }
    match rates.len() {
        2 => Ok(rates),
        count => Err(format!("{count} rates: expected 2")),
    }
}

fn port_and_data(text: &str) -> Result<(u16, String)> {
    let (port, data) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    let port = port.parse().map_err(|_| format!("{port:?} is not a port"))?;
    Ok((port, data.split_whitespace().collect()))
}

fn hex(text: &str) -> Result<Vec<u8>> {
    let digits =
        text.chars().map(|letter| letter.to_digit(16).ok_or_else(|| format!("{letter:?} in a packet")));
    let digits: Vec<u32> = digits.collect::<Result<_>>()?;
    if digits.len() % 2 != 0 {
        return Err(format!("{} digits are not whole bytes", digits.len()));
    }
    Ok(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Statement {
        let mut lines = parse(text).unwrap();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0).statement
    }

    #[test]
    fn packets_and_patterns_are_parsed() {
        assert_eq!(
            parsed("packet 3 01 02 0a0B # three"),
            Statement::Packet { port: 3, bytes: vec![1, 2, 10, 11] }
        );
        let Statement::Expect { port: 4, pattern: Some(pattern) } = parsed("EXPECT 4 0*02 $") else {
            panic!()
        };
        assert_eq!(pattern.mismatch(&[9, 2]), None);
        assert!(pattern.mismatch(&[9, 2, 3]).unwrap().contains("exactly 2 bytes"));
        assert!(pattern.mismatch(&[0x19, 2]).unwrap().contains("byte 0: 19"));
        assert_eq!(parsed("expect 4"), Statement::Expect { port: 4, pattern: None });
    }

    #[test]
    fn a_pattern_without_dollar_is_a_prefix() {
        let Statement::Expect { pattern: Some(pattern), .. } = parsed("expect 0 0102") else { panic!() };
        assert_eq!(pattern.mismatch(&[1, 2, 3]), None);
        assert!(pattern.mismatch(&[1]).is_some());
    }

    #[test]
    fn entries_have_keys_priority_and_name() {
        let Statement::Add { table, priority, keys, call, name } = parsed(
            "add \"ingress.a b\" 100 data.f1:0x****0101 extra$0.h:0b1 dst:10/8\n  act(val:0x7f, port:2) = A",
        ) else {
            panic!()
        };
        assert_eq!((table.as_str(), priority, name.as_deref()), ("ingress.a b", Some(100), Some("A")));
        let keys: Vec<_> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(keys, ["data.f1=0x****0101", "extra$0.h=0b1", "dst=10/8"]);
        assert_eq!(call.arguments, [("val".into(), "0x7f".into()), ("port".into(), "2".into())]);
    }

    #[test]
    fn control_plane_commands_are_parsed() {
        assert_eq!(parsed("mc_node_create 7 8 9"), Statement::CreateNode { instance: 7, ports: vec![8, 9] });
        let check = Check { bytes: true, comparison: Comparison::GreaterOrEqual, value: 39 };
        let wanted = Statement::CheckCounter { counter: "cnt".into(), cell: "$A".into(), check };
        assert_eq!(parsed("check_counter cnt($A) bytes >= 39"), wanted);
        let Statement::MeterWrite { index: Some(2), rates, .. } =
            parsed("meter_set_rates m 2 0.000005:4 0.00002:5")
        else {
            panic!()
        };
        assert_eq!(rates[1], ("0.00002".into(), "5".into()));
    }

    #[test]
    fn syntax_errors_have_their_line() {
        for (text, line, reason) in [
            ("wait\nfly 3", 1, "unexpected \"fly\" after wait"),
            ("# nothing\nfly 3", 2, "unknown statement fly"),
            ("packet 1 123", 1, "3 digits are not whole bytes"),
            ("packet x 12", 1, "is not a port"),
            ("wait\nadd t a:1", 2, "the statement is incomplete"),
            ("mirroring_add 1 70000", 1, "is not a number in range"),
            (
                "set_queue_rate 100 1",
                1,
                "set_queue_rate: a queue of p4switch is first in, first out and never full",
            ),
            ("wait\nset_queue_depth 5", 2, "set_queue_depth: a queue of p4switch is first in, first out"),
            ("counter_read c fast", 1, "is not a number in range"),
            ("mirroring_add 1 2 9", 1, "after mirroring_add"),
            ("counter_read c 4294967296", 1, "is not a number in range"),
            (
                "set_crc16_parameters calc 0x1021 0xffff 0 false false",
                1,
                "a custom CRC keeps BMv2's initial parameters",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.reason.contains(reason), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "((add|expect|packet|wait|mc_node_create|check_counter|set_queue_rate) [a-f0-9 :()*$=,./\"x\\[\\]]{0,30}\n?){0,6}") {
            let _ = parse(&text);
        }
    }
}
