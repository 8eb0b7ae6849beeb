// SPDX-License-Identifier: Apache-2.0
//! STF files of p4c's testdata: packets in, packets expected, and control-plane commands between them.
//!
//! A statement begins with a keyword at the beginning of a line and ends before the next keyword. `#` begins a comment.

mod parse;
mod words;

use std::fmt;

pub use parse::parse;
pub use words::number;

/// A statement and the number of its first line.
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
    /// `pattern` is None if any packet is expected.
    Expect {
        port: u16,
        pattern: Option<Pattern>,
    },
    /// No packet besides the expected ones.
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
    /// All cells of a meter if `index` is None. Rates are units per microsecond, bursts units.
    MeterWrite {
        meter: String,
        index: Option<u32>,
        rates: Vec<(String, String)>,
    },
    /// A query of simple_switch's command line, ignored.
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub action: String,
    pub arguments: Vec<(String, String)>,
}

/// A condition on a cell of a counter: `packets == 3`.
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

/// The expected prefix of a packet in hexadecimal digits, or the expected packet if the pattern ends in `$`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// None matches any digit.
    digits: Vec<Option<u8>>,
    exact: bool,
}

/// A syntax error and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    pub line: usize,
    pub reason: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for SyntaxError {}

type Result<T> = std::result::Result<T, String>;

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

impl fmt::Display for Comparison {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        })
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self> {
        let (text, exact) = match text.strip_suffix('$') {
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
        Ok(Self { digits: text.chars().map(digit).collect::<Result<_>>()?, exact })
    }

    /// How a packet differs from the pattern. None if it matches.
    pub fn mismatch(&self, packet: &[u8]) -> Option<String> {
        let digits = packet.len() * 2;
        if digits < self.digits.len() {
            return Some(format!("expected {} bytes, found {}", self.digits.len().div_ceil(2), packet.len()));
        }
        if self.exact && digits > self.digits.len() {
            return Some(format!(
                "expected exactly {} bytes, found {}",
                self.digits.len().div_ceil(2),
                packet.len()
            ));
        }
        let differs = |(index, want): (usize, &Option<u8>)| {
            let byte = packet[index / 2];
            let has = if index % 2 == 0 { byte >> 4 } else { byte & 15 };
            want.filter(|want| *want != has)
                .map(|want| format!("byte {}: {byte:02x} where digit {want:x} is expected", index / 2))
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
        write!(to, "{}", if self.exact { "$" } else { "" })
    }
}
