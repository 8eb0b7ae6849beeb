// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Numbers of up to 64 bits in a row of bytes, big endian, at any bit.
//!
//! A row that `Place` accesses ends with `PADDING` extra bytes, so that a window of 16 bytes is always inside it.

pub(crate) const PADDING: usize = 16;

/// A number's position in a row, and the smallest window of bytes that contains it. One load reads the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The window's first byte. A PHV has at most 2^16 bytes.
    pub at: u16,
    pub window: Window,
    /// Bits of the window before the number.
    pub leading: u8,
    /// Bits of the window after the number.
    pub trailing: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Window {
    Byte,
    Short,
    Word,
    /// Exactly six bytes, such as an Ethernet address. A window of eight bytes would include adjacent fields.
    SixBytes,
    Long,
    Double,
}

impl Window {
    const ALL: [Window; 6] =
        [Window::Byte, Window::Short, Window::Word, Window::SixBytes, Window::Long, Window::Double];

    #[inline(always)]
    pub fn bits(self) -> u32 {
        match self {
            Window::Byte => 8,
            Window::Short => 16,
            Window::Word => 32,
            Window::SixBytes => 48,
            Window::Long => 64,
            Window::Double => 128,
        }
    }
}

/// `N` bytes from `at` on as an array. An out-of-range `at`, which `Program::check` rejects, gives zeroes.
#[inline(always)]
fn window<const N: usize>(row: &[u8], at: u16) -> [u8; N] {
    row.get(at as usize..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

#[inline(always)]
fn window_mut<const N: usize>(row: &mut [u8], at: u16) -> Option<&mut [u8; N]> {
    row.get_mut(at as usize..).and_then(|rest| rest.first_chunk_mut::<N>())
}

/// A mask of the lowest `width` bits.
#[inline(always)]
pub(crate) fn ones(width: u32) -> u64 {
    match width {
        0 => 0,
        1..=63 => (1 << width) - 1,
        _ => u64::MAX,
    }
}

#[inline(always)]
pub(crate) fn byte(row: &[u8], at: u16) -> u64 {
    u64::from(row.get(at as usize).copied().unwrap_or(0))
}

#[inline(always)]
pub(crate) fn short(row: &[u8], at: u16) -> u64 {
    u64::from(u16::from_be_bytes(window(row, at)))
}

#[inline(always)]
pub(crate) fn word(row: &[u8], at: u16) -> u64 {
    u64::from(u32::from_be_bytes(window(row, at)))
}

#[inline(always)]
pub(crate) fn six_bytes(row: &[u8], at: u16) -> u64 {
    match row.get(usize::from(at)..).and_then(|rest| rest.first_chunk()) {
        Some([a, b, c, d, e, f]) => {
            u64::from(u32::from_be_bytes([*a, *b, *c, *d])) << 16 | u64::from(u16::from_be_bytes([*e, *f]))
        }
        None => 0,
    }
}

#[inline(always)]
pub(crate) fn put_six_bytes(row: &mut [u8], at: u16, value: u64) {
    put_word(row, at, value >> 16);
    put_short(row, at.saturating_add(4), value);
}

#[inline(always)]
pub(crate) fn long(row: &[u8], at: u16) -> u64 {
    u64::from_be_bytes(window(row, at))
}

#[inline(always)]
pub(crate) fn put_byte(row: &mut [u8], at: u16, value: u64) {
    if let Some(byte) = row.get_mut(at as usize) {
        *byte = value as u8;
    }
}

#[inline(always)]
pub(crate) fn put_short(row: &mut [u8], at: u16, value: u64) {
    if let Some(bytes) = window_mut(row, at) {
        *bytes = (value as u16).to_be_bytes();
    }
}

#[inline(always)]
pub(crate) fn put_word(row: &mut [u8], at: u16, value: u64) {
    if let Some(bytes) = window_mut(row, at) {
        *bytes = (value as u32).to_be_bytes();
    }
}

#[inline(always)]
pub(crate) fn put_long(row: &mut [u8], at: u16, value: u64) {
    if let Some(bytes) = window_mut(row, at) {
        *bytes = value.to_be_bytes();
    }
}

/// Copies the first and the last `N` bytes: all of a slice of `N` to `2 * N` bytes.
#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else { return };
    to.first_chunk_mut::<N>().into_iter().for_each(|to| *to = *first);
    to.last_chunk_mut::<N>().into_iter().for_each(|to| *to = *last);
}

/// Copies a slice like `copy_from_slice`, but without a call of memcpy for the sizes of most headers.
#[inline(always)]
pub(crate) fn copy_few(to: &mut [u8], from: &[u8]) {
    match from.len() {
        _ if to.len() != from.len() => {}
        8..=16 => copy_ends::<8>(to, from),
        17..=32 => copy_ends::<16>(to, from),
        33..=64 => copy_ends::<32>(to, from),
        _ => to.copy_from_slice(from),
    }
}

impl Place {
    /// The place of `width` bits (1 to 64) from bit `at` on.
    pub fn new(at: u32, width: u32) -> Place {
        let leading = at % 8;
        let window = Window::ALL
            .into_iter()
            .find(|window| match window {
                Window::SixBytes => leading == 0 && width == 48,
                _ => leading + width <= window.bits(),
            })
            .unwrap_or(Window::Double);
        let trailing = window.bits().saturating_sub(leading + width);
        let at = u16::try_from(at / 8).unwrap_or(u16::MAX);
        Place { at, window, leading: leading as u8, trailing: trailing as u8 }
    }

    pub fn width(self) -> u32 {
        self.window.bits().saturating_sub(self.leading.into()).saturating_sub(self.trailing.into())
    }

    /// Whether the number has all bits of its window.
    pub fn fills_window(self) -> bool {
        self.leading == 0 && self.trailing == 0
    }

    #[inline(always)]
    pub fn load(self, row: &[u8]) -> u64 {
        let at = self.at;
        let wide = match self.window {
            Window::Double => {
                let value = u128::from_be_bytes(window(row, at));
                return (value << (self.leading & 127) >> ((self.leading + self.trailing) & 127)) as u64;
            }
            Window::Byte => byte(row, at) << 56,
            Window::Short => short(row, at) << 48,
            Window::Word => word(row, at) << 32,
            Window::SixBytes => six_bytes(row, at) << 16,
            Window::Long => long(row, at),
        };
        self.extract(wide)
    }

    /// The number from a window that was shifted to the upper end of `wide`.
    #[inline(always)]
    fn extract(self, wide: u64) -> u64 {
        wide << (self.leading & 63) >> (64u32.wrapping_sub(self.inline_width()) & 63)
    }

    #[inline(always)]
    fn inline_width(self) -> u32 {
        self.window.bits().wrapping_sub(u32::from(self.leading)).wrapping_sub(u32::from(self.trailing))
    }

    /// A number that has all bits of a window.
    #[inline(always)]
    pub fn full_window(window: Window, at: u16) -> Place {
        Place { at, window, leading: 0, trailing: 0 }
    }

    /// Stores the value's low bits and leaves the other bits of the window unchanged.
    #[inline(always)]
    pub fn store(self, row: &mut [u8], value: u64) {
        let mask = ones(self.inline_width());
        let (value, trailing) = (value & mask, u32::from(self.trailing) & 63);
        let (ones, bits, at) = (mask << trailing, value << trailing, self.at);
        match self.window {
            Window::Byte => put_byte(row, at, byte(row, at) & !ones | bits),
            Window::Short => put_short(row, at, short(row, at) & !ones | bits),
            Window::Word => put_word(row, at, word(row, at) & !ones | bits),
            Window::SixBytes => put_six_bytes(row, at, value),
            Window::Long => put_long(row, at, long(row, at) & !ones | bits),
            Window::Double => {
                let trailing = u32::from(self.trailing) & 127;
                if let Some(bytes) = window_mut::<16>(row, at) {
                    let rest = u128::from_be_bytes(*bytes) & !(u128::from(mask) << trailing);
                    *bytes = (rest | u128::from(value) << trailing).to_be_bytes();
                }
            }
        }
    }
}

/// Sign-extends a number of `width` bits.
#[inline(always)]
pub(crate) fn signed(value: u64, width: u32) -> i64 {
    let unused = 64u32.saturating_sub(width) & 63;
    ((value << unused) as i64) >> unused
}

/// Up to 64 bits of a row without padding, from any bit on. Bits after the row's end are zero.
pub(crate) fn peek(row: &[u8], at: u64, width: u32) -> u64 {
    let (first, leading) = ((at / 8) as usize, (at % 8) as u32);
    let mut value: u128 = 0;
    for index in 0..9 {
        value = value << 8 | u128::from(row.get(first.saturating_add(index)).copied().unwrap_or(0));
    }
    ((value >> 72u32.saturating_sub(leading + width)) as u64) & ones(width)
}

/// Loads a number of any width at any bit into limbs, the lowest first.
pub(crate) fn load_limbs(row: &[u8], at: u32, width: u32, limbs: &mut [u64]) {
    let mut left = width;
    for limb in limbs {
        let bits = left.min(64);
        left -= bits;
        *limb = if bits == 0 { 0 } else { Place::new(at.saturating_add(left), bits).load(row) };
    }
}

/// Stores limbs, the lowest first, as a number of any width at any bit.
pub(crate) fn store_limbs(row: &mut [u8], at: u32, width: u32, limbs: &[u64]) {
    let mut left = width;
    let mut limbs = limbs.iter();
    while left > 0 {
        let bits = left.min(64);
        left -= bits;
        Place::new(at.saturating_add(left), bits).store(row, limbs.next().copied().unwrap_or(0));
    }
}

/// Copies bits within a row.
pub(crate) fn copy_bits(row: &mut [u8], to: u32, from: u32, width: u32) {
    if to % 8 == 0 && from % 8 == 0 && width % 8 == 0 {
        let (to, from, bytes) = (to as usize / 8, from as usize / 8, width as usize / 8);
        if to.max(from) + bytes <= row.len() {
            row.copy_within(from..from + bytes, to);
        }
        return;
    }
    let mut done = 0;
    while done < width {
        let bits = (width - done).min(64);
        let value = Place::new(from + done, bits).load(row);
        Place::new(to + done, bits).store(row, value);
        done += bits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn string(row: &[u8]) -> Vec<u8> {
        row.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect()
    }

    fn number(bits: &[u8]) -> u64 {
        bits.iter().fold(0, |value, bit| value << 1 | u64::from(*bit))
    }

    fn row() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 48)
    }

    proptest! {
        #[test]
        fn a_load_returns_the_bits_and_a_store_changes_no_others(
            row in row(),
            at in 0..150u32,
            width in 1..65u32,
            value: u64,
        ) {
            let (place, before) = (Place::new(at, width), string(&row));
            let (first, end) = (at as usize, (at + width) as usize);
            prop_assert_eq!(place.width(), width);
            prop_assert_eq!(place.load(&row), number(&before[first..end]));
            prop_assert_eq!(peek(&row, at.into(), width), number(&before[first..end]));
            let mut changed = row;
            place.store(&mut changed, value);
            let after = string(&changed);
            prop_assert_eq!(number(&after[first..end]), value & ones(width));
            prop_assert_eq!((&after[..first], &after[end..]), (&before[..first], &before[end..]));
        }

        #[test]
        fn limbs_contain_the_bits_from_the_end(row in row(), at in 0..100u32, width in 1..150u32, values: [u64; 3]) {
            let before = string(&row);
            let (first, end) = (at as usize, (at + width) as usize);
            let mut limbs = [7; 3];
            load_limbs(&row, at, width, &mut limbs);
            let expected: Vec<u64> = before[first..end].rchunks(64).map(number).collect();
            prop_assert_eq!(&limbs[..expected.len()], expected.as_slice());
            prop_assert!(limbs[expected.len()..].iter().all(|limb| *limb == 0));
            let mut changed = row;
            store_limbs(&mut changed, at, width, &values);
            load_limbs(&changed, at, width, &mut limbs);
            prop_assert_eq!(limbs[0], values[0] & ones(width));
            let after = string(&changed);
            prop_assert_eq!((&after[..first], &after[end..]), (&before[..first], &before[end..]));
        }

        #[test]
        fn a_copy_has_all_bits(row in row(), to in 0..8u32, from in 130..170u32, width in 1..120u32) {
            let before = string(&row);
            let mut changed = row;
            copy_bits(&mut changed, to, from, width);
            let (to, from, width) = (to as usize, from as usize, width as usize);
            let mut expected = before.clone();
            expected[to..to + width].copy_from_slice(&before[from..from + width]);
            prop_assert_eq!(string(&changed), expected);
        }
    }

    #[test]
    fn few_bytes_are_copied_whole() {
        let from: Vec<u8> = (1..=80).collect();
        for length in 0..from.len() {
            let mut to = vec![0; length + 1];
            copy_few(&mut to[..length], &from[..length]);
            assert_eq!((&to[..length], to[length]), (&from[..length], 0));
        }
    }

    #[test]
    fn loads_after_the_end_are_zero_and_stores_are_ignored() {
        let mut row = vec![0xff; 4];
        assert_eq!(Place::new(40, 16).load(&row), 0);
        Place::new(40, 16).store(&mut row, 1);
        assert_eq!(peek(&row, 24, 16), 0xff00);
        assert_eq!(signed(0x1ff, 9), -1);
        assert_eq!(signed(0xff, 9), 255);
        assert_eq!(row, [0xff; 4]);
    }
}
