// SPDX-License-Identifier: Apache-2.0
//! The congestion header (`kernel/include/uapi/qbed/signal.h`): read, written, folded into.
//!
//! docs/wire-format.md has the layout and the rules; tests/wire/vectors.json is what C, Rust and Python agree on.
#![no_std]
#![forbid(unsafe_code)]

/// Of who receives data.
pub const PORT: u16 = 6190;
pub const VERSION: u8 = 1;
pub const HEADER_BYTES: usize = 88;
/// The most bits in which a switch says its part.
pub const MOST_BITS: u8 = 32;

/// In `flags`: a congestion point has sent feedback of this packet.
pub const REFLECTED: u8 = 0x01;
/// In `flags`: the payload of this data packet ends the flow.
pub const LAST: u8 = 0x02;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Data = 1,
    Ack = 2,
    Feedback = 3,
}

/// Which signal the sender asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    None = 0,
    Sum = 1,
    SumOfSquares = 2,
    Max = 3,
    Indicator = 4,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Packets = 0,
    Bytes = 1,
    Nanoseconds = 2,
}

/// Why a payload is no header that one may add to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    UnknownVersion,
    TooShort,
    /// A number that has no meaning.
    Malformed,
}

/// In the order of the wire; the fields are explained in docs/wire-format.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub r#type: Type,
    pub flags: u8,
    pub kind: Kind,
    pub unit: Unit,
    /// In how many a switch may say its part, 1 to 32; any where no signal is asked for.
    pub bits: u8,
    pub hops: u8,
    pub echo_hops: u8,
    pub flow: u32,
    pub feedback: u16,
    pub feedback_bits: u8,
    pub sequence: u64,
    pub offset: u64,
    pub window: u64,
    pub time: u64,
    pub echo_time: u64,
    pub signal: u128,
    pub echo_signal: u128,
}

impl Header {
    /// The header at the beginning of a UDP payload.
    ///
    /// # Errors
    /// It is none of this version, or one that no sender writes.
    pub fn parse(payload: &[u8]) -> Result<Self, Refusal> {
        let version = *payload.first().ok_or(Refusal::TooShort)?;
        if version != VERSION {
            return Err(Refusal::UnknownVersion);
        }
        let mut rest = payload.get(1..HEADER_BYTES).ok_or(Refusal::TooShort)?;
        let [r#type, flags, kind, unit, bits, hops, echo_hops] = take(&mut rest);
        let kind = Kind::of(kind)?;
        if kind != Kind::None && !(1..=MOST_BITS).contains(&bits) {
            return Err(Refusal::Malformed);
        }
        let header = Self {
            r#type: Type::of(r#type)?,
            flags,
            kind,
            unit: Unit::of(unit)?,
            bits,
            hops,
            echo_hops,
            flow: u32::from_be_bytes(take(&mut rest)),
            feedback: u16::from_be_bytes(take(&mut rest)),
            feedback_bits: u8::from_be_bytes(take(&mut rest)),
            sequence: {
                let [_reserved] = take(&mut rest);
                u64::from_be_bytes(take(&mut rest))
            },
            offset: u64::from_be_bytes(take(&mut rest)),
            window: u64::from_be_bytes(take(&mut rest)),
            time: u64::from_be_bytes(take(&mut rest)),
            echo_time: u64::from_be_bytes(take(&mut rest)),
            signal: u128::from_be_bytes(take(&mut rest)),
            echo_signal: u128::from_be_bytes(take(&mut rest)),
        };
        Ok(header)
    }

    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut rest = &mut bytes[..];
        let first = [VERSION, self.r#type as u8, self.flags, self.kind as u8, self.unit as u8, self.bits];
        put(&mut rest, first);
        put(&mut rest, [self.hops, self.echo_hops]);
        put(&mut rest, self.flow.to_be_bytes());
        put(&mut rest, self.feedback.to_be_bytes());
        put(&mut rest, [self.feedback_bits, 0]);
        for word in [self.sequence, self.offset, self.window, self.time, self.echo_time] {
            put(&mut rest, word.to_be_bytes());
        }
        put(&mut rest, self.signal.to_be_bytes());
        put(&mut rest, self.echo_signal.to_be_bytes());
        bytes
    }

    /// One more queue: `part` is its own, of `Indicator` whether it is above the threshold (0 or 1).
    pub fn fold(&mut self, part: u64) {
        let part = u128::from(part);
        self.signal = match self.kind {
            Kind::None => return,
            Kind::Sum => self.signal.saturating_add(part),
            Kind::SumOfSquares => self.signal.saturating_add(part * part),
            Kind::Max | Kind::Indicator => self.signal.max(part),
        };
        self.hops = self.hops.saturating_add(1);
    }
}

impl Type {
    fn of(number: u8) -> Result<Self, Refusal> {
        [Self::Data, Self::Ack, Self::Feedback]
            .into_iter()
            .find(|&t| t as u8 == number)
            .ok_or(Refusal::Malformed)
    }
}

impl Kind {
    fn of(number: u8) -> Result<Self, Refusal> {
        [Self::None, Self::Sum, Self::SumOfSquares, Self::Max, Self::Indicator]
            .into_iter()
            .find(|&k| k as u8 == number)
            .ok_or(Refusal::Malformed)
    }
}

impl Unit {
    fn of(number: u8) -> Result<Self, Refusal> {
        [Self::Packets, Self::Bytes, Self::Nanoseconds]
            .into_iter()
            .find(|&u| u as u8 == number)
            .ok_or(Refusal::Malformed)
    }
}

/// The UDP checksum after the header has changed, of what differs alone (RFC 1624). 0 says that there is none, and stays;
/// a sum that is 0 is sent as 0xffff.
#[must_use]
pub fn checksum(check: u16, before: &[u8; HEADER_BYTES], after: &[u8; HEADER_BYTES]) -> u16 {
    if check == 0 {
        return 0;
    }
    let words = |bytes: &'_ [u8; HEADER_BYTES], flip: u16| -> u32 {
        bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]) ^ flip)).sum()
    };
    let mut sum = u32::from(!check) + words(before, 0xffff) + words(after, 0);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    match !(sum as u16) {
        0 => 0xffff,
        found => found,
    }
}

/// The next N bytes; there are as many as the header has.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let mut found = [0; N];
    let (head, tail) = rest.split_at(N);
    found.copy_from_slice(head);
    *rest = tail;
    found
}

fn put<const N: usize>(rest: &mut &mut [u8], bytes: [u8; N]) {
    let (head, tail) = core::mem::take(rest).split_at_mut(N);
    head.copy_from_slice(&bytes);
    *rest = tail;
}
