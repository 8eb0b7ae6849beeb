// SPDX-License-Identifier: Apache-2.0
//! Names and values of STF commands in the engine's form.

use num_bigint::BigInt;
use qbed_p4engine::control::Rates;
use qbed_p4engine::program::{ActionCall, Key, Match, MatchKind, Parameter, Program, Table};

use super::Result;
use crate::stf::{self, Call};

/// The index of a name in a list, or of the only name that ends in it.
pub(super) fn find_by_suffix<'a>(
    kind: &str,
    name: &str,
    names: impl Iterator<Item = &'a str>,
) -> Result<usize> {
    let names: Vec<&str> = names.collect();
    if let Some(index) = names.iter().position(|known| *known == name) {
        return Ok(index);
    }
    let ends: Vec<usize> = (0..names.len()).filter(|index| names[*index].ends_with(name)).collect();
    match ends.as_slice() {
        [index] => Ok(*index),
        [] => Err(format!("no {kind} {name}")),
        [first, second, ..] => {
            Err(format!("{kind} {name} is ambiguous: {} or {}", names[*first], names[*second]))
        }
    }
}

pub(super) fn action_call(program: &Program, table: &Table, call: &Call) -> Result<ActionCall> {
    let names = table.actions.iter().map(|action| program.actions[*action as usize].name.as_str());
    let action = table.actions[find_by_suffix("action", &call.action, names)?];
    let parameters = &program.actions[action as usize].parameters;
    for (name, _) in &call.arguments {
        if !parameters.iter().any(|parameter| parameter.name == *name) {
            return Err(format!("{} has no parameter {name}", call.action));
        }
    }
    let value = |parameter: &Parameter| {
        let given = call.arguments.iter().rev().find(|(name, _)| *name == parameter.name);
        let (name, text) =
            given.ok_or_else(|| format!("{}: no argument for {}", call.action, parameter.name))?;
        bytes(&number(text)?, parameter.width).map_err(|why| format!("{name}: {why}"))
    };
    Ok(ActionCall { action, arguments: parameters.iter().map(value).collect::<Result<_>>()? })
}

/// The index of a key by its name, with p4c's spellings of a stack's element (`extra$0.h`) and a header's validity.
pub(super) fn key_index(keys: &[Key], name: &str) -> Result<usize> {
    let name = match name.split_once('$') {
        Some((before, rest)) if rest.starts_with(|letter: char| letter.is_ascii_digit()) => {
            let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
            format!("{before}[{}]{}", &rest[..end], &rest[end..])
        }
        _ => name.to_owned(),
    };
    let exactly = |wanted: &str| keys.iter().position(|key| key.name == wanted);
    let valid =
        name.strip_suffix("valid").filter(|rest| rest.ends_with('.')).map(|rest| format!("{rest}$valid$"));
    let ends = |key: &Key| {
        key.name.ends_with(&format!(".{name}"))
            || key.name.ends_with(&format!(".{name}$"))
            || (name == "valid" && key.name.ends_with(".$valid$"))
    };
    exactly(&name)
        .or_else(|| exactly(&format!("{name}$")))
        .or_else(|| exactly(&format!("{name}.$valid$")))
        .or_else(|| exactly(&valid?))
        .or_else(|| keys.iter().rposition(ends))
        .or_else(|| if name == "valid" { exactly("$valid$") } else { None })
        .ok_or_else(|| format!("no key {name}"))
}

pub(super) fn wildcard(program: &Program, key: &Key) -> Match {
    let width = program.fields[key.field as usize].width;
    let zero = vec![0; width.div_ceil(8) as usize];
    match key.kind {
        MatchKind::Exact => Match::Exact(zero),
        MatchKind::Lpm => Match::Lpm { value: zero, length: 0 },
        MatchKind::Ternary => Match::Ternary { mask: zero.clone(), value: zero },
        MatchKind::Range => Match::Range { low: zero, high: bytes(&ones(width), width).unwrap_or_default() },
        MatchKind::Optional => Match::Optional(None),
    }
}

pub(super) fn parse_match(program: &Program, key: &Key, text: &str) -> Result<Match> {
    let width = program.fields[key.field as usize].width;
    let value = |text: &str| bytes(&number(text)?, width);
    Ok(match key.kind {
        MatchKind::Exact => Match::Exact(value(text)?),
        MatchKind::Optional => Match::Optional(Some(value(text)?)),
        MatchKind::Lpm => {
            let (prefix, length) = match text.split_once('/') {
                Some((prefix, length)) => (prefix.to_owned(), number(length)?),
                None => (text.replace('*', "0"), BigInt::from(prefix_length(text, width))),
            };
            let length = u16::try_from(length).ok().filter(|length| u32::from(*length) <= width);
            Match::Lpm { value: value(&prefix)?, length: length.ok_or("prefix longer than the field")? }
        }
        MatchKind::Ternary => {
            // p4c's runner compares the written digits only.
            let (prefix, digits) = text.split_at(text.len().min(2));
            let digit = match prefix {
                "0x" | "0X" => "f",
                "0b" | "0B" => "1",
                "0o" | "0O" => "7",
                _ => return Ok(Match::Ternary { value: value(text)?, mask: bytes(&ones(width), width)? }),
            };
            let mask: String = digits.chars().map(|letter| if letter == '*' { "0" } else { digit }).collect();
            let (text, mask) = (format!("{prefix}{}", digits.replace('*', "0")), format!("{prefix}{mask}"));
            let mask = number(&mask)? & ones(width);
            Match::Ternary { value: value(&text)?, mask: bytes(&mask, width)? }
        }
        MatchKind::Range => match text.split_once("..") {
            Some((low, high)) => Match::Range { low: value(low)?, high: value(high)? },
            None => Match::Range { low: value(text)?, high: value(text)? },
        },
    })
}

/// Prefix length of a value that is written with its significant digits only.
fn prefix_length(text: &str, width: u32) -> u32 {
    let bits = match text.get(..2) {
        Some("0x" | "0X") => 4,
        Some("0b" | "0B") => 1,
        Some("0o" | "0O") => 3,
        _ => return width,
    };
    let digits = text[2..].chars().filter(|letter| *letter != '*').count() as u32;
    digits.saturating_mul(bits).min(width)
}

pub(super) fn number(text: &str) -> Result<BigInt> {
    stf::number(text).ok_or_else(|| format!("{text:?} is not a number"))
}

fn ones(width: u32) -> BigInt {
    (BigInt::from(1) << width) - 1
}

/// A value of `width` bits in whole bytes, big endian.
pub(super) fn bytes(value: &BigInt, width: u32) -> Result<Vec<u8>> {
    if value > &ones(width) {
        return Err(format!("{value:#x} does not fit into {width} bits"));
    }
    let (_, digits) = value.to_bytes_be();
    let mut padded = vec![0; (width.div_ceil(8) as usize).saturating_sub(digits.len())];
    padded.extend(digits);
    padded.truncate(width.div_ceil(8) as usize);
    Ok(padded)
}

/// Meter rates (in units per microsecond) with their bursts: the committed pair, then the peak pair.
pub(super) fn meter_rates(rates: &[(String, String)]) -> Result<Rates> {
    let pair = |index: usize| -> Result<(u64, u64)> {
        let (rate, burst) = rates.get(index).ok_or("expected two rates")?;
        let units: f64 = rate.parse().map_err(|_| format!("{rate:?} is not a rate"))?;
        let burst = u64::try_from(number(burst)?).map_err(|_| format!("{burst:?} is not a burst"))?;
        Ok(((units * 1e6).round() as u64, burst))
    };
    let ((committed, committed_burst), (peak, peak_burst)) = (pair(0)?, pair(1)?);
    Ok(Rates { committed, committed_burst, peak, peak_burst })
}
