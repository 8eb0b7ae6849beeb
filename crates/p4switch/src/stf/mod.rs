// SPDX-License-Identifier: Apache-2.0
//! STF files, as p4c's testdata has them: packets in, packets expected, and what the control plane does between them.
//!
//! A statement begins with its keyword at the beginning of a line and goes on until the next one; `#` begins a comment.

use std::fmt;

/// A statement and the line where it begins, from 1 on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub number: usize,
    pub statement: Statement,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    Packet {
        port: u16,
        bytes: Vec<u8>,
    },
    /// None: whatever it has in it.
    Expect {
        port: u16,
        pattern: Option<Pattern>,
    },
    /// Nothing comes out but what is expected.
    NoPacket,
    Wait,
    Add {
        table: String,
        priority: Option<u32>,
        keys: Vec<(String, String)>,
        call: Call,
        name: Option<String>,
    },
    SetDefault {
        table: String,
        call: Call,
    },
    RemoveAll,
    CheckCounter {
        counter: String,
        cell: String,
        check: Check,
    },
    MirroringAdd {
        session: u16,
        port: u16,
    },
    MirroringAddGroup {
        session: u16,
        group: u16,
    },
    MirroringDelete {
        session: u16,
    },
    CreateGroup {
        group: u16,
    },
    CreateNode {
        instance: u16,
        ports: Vec<u16>,
    },
    UpdateNode {
        node: usize,
        ports: Vec<u16>,
    },
    AssociateNode {
        group: u16,
        node: usize,
    },
    CounterRead {
        counter: String,
        index: u32,
    },
    CounterWrite {
        counter: String,
        index: u32,
        packets: u64,
        bytes: u64,
    },
    RegisterRead {
        register: String,
        index: u32,
    },
    RegisterWrite {
        register: String,
        index: u32,
        value: String,
    },
    RegisterReset {
        register: String,
    },
    MeterRead {
        meter: String,
        index: u32,
    },
    /// None: all of its cells. Rates are units in a microsecond, bursts units.
    MeterWrite {
        meter: String,
        index: Option<u32>,
        rates: Vec<(String, String)>,
    },
    /// Asked of the switch's own command line only.
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub action: String,
    pub arguments: Vec<(String, String)>,
}

/// What a counter's cell must hold: `packets == 3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    pub bytes: bool,
    pub comparison: Comparison,
    pub value: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The beginning of a packet, digit by digit; a `$` at its end: nothing comes behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// None: any digit.
    digits: Vec<Option<u8>>,
    whole: bool,
}

/// What is wrong in a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    pub line: usize,
    pub why: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for Malformed {}

type Result<T> = std::result::Result<T, String>;

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

impl Comparison {
    pub fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self> {
        let (text, whole) = match text.strip_suffix('$') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let digit = |letter: char| match letter {
            '*' => Ok(None),
            letter => {
                let digit = letter.to_digit(16).map(|digit| Some(digit as u8));
                digit.ok_or_else(|| format!("{letter:?} in an expected packet"))
            }
        };
        Ok(Self { digits: text.chars().map(digit).collect::<Result<_>>()?, whole })
    }

    /// Why a packet is another one.
    pub fn mismatch(&self, packet: &[u8]) -> Option<String> {
        let digits = packet.len() * 2;
        if digits < self.digits.len() {
            return Some(format!("{} bytes, expected are {}", packet.len(), self.digits.len().div_ceil(2)));
        }
        if self.whole && digits > self.digits.len() {
            return Some(format!(
                "{} bytes, expected are {} and no more",
                packet.len(),
                self.digits.len().div_ceil(2)
            ));
        }
        let differs = |(index, want): (usize, &Option<u8>)| {
            let byte = packet[index / 2];
            let has = if index % 2 == 0 { byte >> 4 } else { byte & 15 };
            want.filter(|want| *want != has)
                .map(|want| format!("byte {}: {byte:02x}, {want:x} is expected there", index / 2))
        };
        self.digits.iter().enumerate().find_map(differs)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for digit in &self.digits {
            match digit {
                Some(digit) => write!(to, "{digit:x}")?,
                None => write!(to, "*")?,
            }
        }
        write!(to, "{}", if self.whole { "$" } else { "" })
    }
}

/// All statements of a file.
pub fn parse(text: &str) -> std::result::Result<Vec<Line>, Malformed> {
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
            return Err(Malformed { line: number, why: format!("{first} is no statement") });
        }
    }
    let one = |(number, text): (usize, String)| match statement(&text) {
        Ok(statement) => Ok(Line { number, statement }),
        Err(why) => Err(Malformed { line: number, why }),
    };
    statements.into_iter().map(one).collect()
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
            let mut words = Words::of(rest)?;
            let statement = command(&keyword, &mut words)?;
            match words.next() {
                None => Ok(statement),
                Some(word) => Err(format!("{word:?} behind the end of {keyword}")),
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
            let what = words.word()?;
            match what.eq_ignore_ascii_case("all") {
                true => Statement::RemoveAll,
                false => return Err(format!("remove {what}: only all can be removed")),
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
            // As simple_switch_CLI takes them.
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
                "{keyword}: a custom CRC keeps the parameters that BMv2 begins with (those of crc16, crc32): \
                 no JSON and no P4Runtime carries others"
            ))
        }
        other => return Err(format!("{other} is no statement")),
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
            other => return Err(format!("{other}: counters count packets and bytes")),
        };
        check.comparison = match words.next().as_deref() {
            Some("==") => Comparison::Equal,
            Some("!=") => Comparison::NotEqual,
            Some("<") => Comparison::Less,
            Some("<=") => Comparison::LessOrEqual,
            Some(">") => Comparison::Greater,
            Some(">=") => Comparison::GreaterOrEqual,
            other => return Err(format!("{other:?} is no comparison")),
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
        count => Err(format!("{count} rates: two are needed")),
    }
}

fn port_and_data(text: &str) -> Result<(u16, String)> {
    let (port, data) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    let port = port.parse().map_err(|_| format!("{port:?} is no port"))?;
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

/// A number as STF writes it: decimal, 0x, 0b, 0o.
pub fn number(text: &str) -> Option<num_bigint::BigInt> {
    let lower = text.to_ascii_lowercase();
    let (digits, base) = match lower.get(..2) {
        Some("0x") => (&lower[2..], 16),
        Some("0b") => (&lower[2..], 2),
        Some("0o") => (&lower[2..], 8),
        _ => (lower.as_str(), 10),
    };
    // A number of a thousand digits is wider than any field.
    if digits.is_empty() || digits.len() > 5000 || !digits.chars().all(|digit| digit.is_digit(base)) {
        return None;
    }
    num_bigint::BigInt::parse_bytes(digits.as_bytes(), base)
}

/// Words and signs of a statement.
struct Words {
    words: std::vec::IntoIter<String>,
    ahead: Option<String>,
}

impl Words {
    fn of(text: &str) -> Result<Self> {
        let mut words = Vec::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                letter if letter.is_whitespace() => {}
                '"' => {
                    let mut word = String::new();
                    loop {
                        match letters.next() {
                            Some('"') => break,
                            Some(letter) => word.push(letter),
                            None => return Err("a name without its closing quotes".into()),
                        }
                    }
                    words.push(word);
                }
                ':' | ',' | '(' | ')' | '/' => words.push(letter.to_string()),
                '=' | '<' | '>' | '!' => {
                    let mut sign = letter.to_string();
                    sign.extend(letters.next_if_eq(&'='));
                    words.push(sign);
                }
                letter if is_of_word(letter) => {
                    let mut word = letter.to_string();
                    while let Some(letter) = letters.next_if(|letter| is_of_word(*letter)) {
                        word.push(letter);
                    }
                    words.push(word);
                }
                other => return Err(format!("{other:?} has no meaning here")),
            }
        }
        let mut words = words.into_iter();
        let ahead = words.next();
        Ok(Self { words, ahead })
    }

    fn peek(&self) -> Option<&str> {
        self.ahead.as_deref()
    }

    fn next(&mut self) -> Option<String> {
        std::mem::replace(&mut self.ahead, self.words.next())
    }

    fn word(&mut self) -> Result<String> {
        match self.next() {
            Some(word) if word.is_empty() || word.starts_with(is_of_word) || word.contains(' ') => Ok(word),
            Some(sign) => Err(format!("{sign:?} where a name or a number belongs")),
            None => Err("something is missing at its end".into()),
        }
    }

    fn expect(&mut self, sign: &str) -> Result<()> {
        match self.next() {
            Some(word) if word == sign => Ok(()),
            Some(word) => Err(format!("{word:?} where {sign:?} belongs")),
            None => Err(format!("{sign:?} is missing at its end")),
        }
    }

    fn number<T: TryFrom<num_bigint::BigInt>>(&mut self) -> Result<T> {
        let word = self.word()?;
        let value = number(&word).and_then(|value| T::try_from(value).ok());
        value.ok_or_else(|| format!("{word:?} is no number that is possible here"))
    }

    fn numbers<T: TryFrom<num_bigint::BigInt>>(&mut self) -> Result<Vec<T>> {
        let mut numbers = Vec::new();
        while self.peek().is_some() {
            numbers.push(self.number()?);
        }
        Ok(numbers)
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '$' | '.' | '*' | '[' | ']' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Statement {
        let mut lines = parse(text).unwrap();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0).statement
    }

    #[test]
    fn packets_and_what_is_expected() {
        assert_eq!(
            one("packet 3 01 02 0a0B # three"),
            Statement::Packet { port: 3, bytes: vec![1, 2, 10, 11] }
        );
        let Statement::Expect { port: 4, pattern: Some(pattern) } = one("EXPECT 4 0*02 $") else { panic!() };
        assert_eq!(pattern.mismatch(&[9, 2]), None);
        assert!(pattern.mismatch(&[9, 2, 3]).unwrap().contains("and no more"));
        assert!(pattern.mismatch(&[0x19, 2]).unwrap().contains("byte 0: 19"));
        assert_eq!(one("expect 4"), Statement::Expect { port: 4, pattern: None });
    }

    #[test]
    fn a_pattern_without_its_end_is_the_beginning_of_a_packet() {
        let Statement::Expect { pattern: Some(pattern), .. } = one("expect 0 0102") else { panic!() };
        assert_eq!(pattern.mismatch(&[1, 2, 3]), None);
        assert!(pattern.mismatch(&[1]).is_some());
    }

    #[test]
    fn entries_have_keys_a_priority_and_a_name() {
        let Statement::Add { table, priority, keys, call, name } = one(
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
    fn commands_of_the_control_plane() {
        assert_eq!(one("mc_node_create 7 8 9"), Statement::CreateNode { instance: 7, ports: vec![8, 9] });
        let check = Check { bytes: true, comparison: Comparison::GreaterOrEqual, value: 39 };
        let wanted = Statement::CheckCounter { counter: "cnt".into(), cell: "$A".into(), check };
        assert_eq!(one("check_counter cnt($A) bytes >= 39"), wanted);
        let Statement::MeterWrite { index: Some(2), rates, .. } =
            one("meter_set_rates m 2 0.000005:4 0.00002:5")
        else {
            panic!()
        };
        assert_eq!(rates[1], ("0.00002".into(), "5".into()));
    }

    #[test]
    fn what_is_wrong_names_its_line() {
        for (text, line, told) in [
            ("wait\nfly 3", 1, "behind the end of wait"),
            ("# nothing\nfly 3", 2, "fly is no statement"),
            ("packet 1 123", 1, "3 digits are not whole bytes"),
            ("packet x 12", 1, "is no port"),
            ("wait\nadd t a:1", 2, "missing at its end"),
            ("mirroring_add 1 70000", 1, "no number that is possible"),
            (
                "set_queue_rate 100 1",
                1,
                "set_queue_rate: a queue of p4switch is first in, first out and never full",
            ),
            ("wait\nset_queue_depth 5", 2, "set_queue_depth: a queue of p4switch is first in, first out"),
            ("counter_read c fast", 1, "no number that is possible"),
            ("mirroring_add 1 2 9", 1, "behind the end of mirroring_add"),
            ("counter_read c 4294967296", 1, "no number that is possible"),
            ("set_crc16_parameters calc 0x1021 0xffff 0 false false", 1, "a custom CRC keeps the parameters"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.why.contains(told), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "((add|expect|packet|wait|mc_node_create|check_counter|set_queue_rate) [a-f0-9 :()*$=,./\"x\\[\\]]{0,30}\n?){0,6}") {
            let _ = parse(&text);
        }
    }
}
