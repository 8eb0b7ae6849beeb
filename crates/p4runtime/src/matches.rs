// SPDX-License-Identifier: Apache-2.0
//! Match keys: P4Runtime omits fields that match any value, the engine has a `Match` for each field (section "Match
//! Format").

use qbed_p4engine::program::{Match, MatchKind};

use crate::bytestring::{bytes_of, encode, ones, Widths};
use crate::error::{invalid, Result};
use crate::proto::p4::v1::field_match::{Exact, FieldMatchType, Lpm, Optional, Range, Ternary};
use crate::proto::p4::v1::FieldMatch;

/// A field of a table's key or of a value set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyField {
    pub id: u32,
    pub name: String,
    pub kind: MatchKind,
    pub widths: Widths,
    /// An optional match that is ternary in the program, with a mask of all bits or none: p4c's form in BMv2's JSON.
    pub optional_as_ternary: bool,
}

impl KeyField {
    /// The match of any value.
    fn wildcard(&self) -> Result<Match> {
        let zeros = self.zeros();
        Ok(match self.kind {
            MatchKind::Exact => return Err(invalid(format!("{}: an exact match needs a value", self.name))),
            MatchKind::Lpm => Match::Lpm { value: zeros, length: 0 },
            MatchKind::Ternary => Match::Ternary { mask: zeros.clone(), value: zeros },
            MatchKind::Range => Match::Range { low: zeros, high: ones(self.widths.program) },
            MatchKind::Optional => self.optional(None),
        })
    }

    fn zeros(&self) -> Vec<u8> {
        vec![0; bytes_of(self.widths.program)]
    }

    fn optional(&self, value: Option<Vec<u8>>) -> Match {
        let zeros = self.zeros();
        match value {
            value if !self.optional_as_ternary => Match::Optional(value),
            Some(value) => Match::Ternary { value, mask: ones(self.widths.program) },
            None => Match::Ternary { value: zeros.clone(), mask: zeros },
        }
    }

    fn decode(&self, given: &FieldMatchType) -> Result<Match> {
        let of = |value: &[u8]| self.widths.decode(value, &self.name);
        let refuse = |why: &str| Err(invalid(format!("{}: {why}", self.name)));
        let found = match (self.kind, given) {
            (MatchKind::Exact, FieldMatchType::Exact(Exact { value })) => {
                return Ok(Match::Exact(of(value)?))
            }
            (MatchKind::Lpm, FieldMatchType::Lpm(Lpm { value, prefix_len })) => {
                Match::Lpm { value: of(value)?, length: self.prefix_length(*prefix_len)? }
            }
            (MatchKind::Ternary, FieldMatchType::Ternary(Ternary { value, mask })) => {
                Match::Ternary { value: of(value)?, mask: self.mask(mask)? }
            }
            (MatchKind::Range, FieldMatchType::Range(Range { low, high })) => {
                Match::Range { low: of(low)?, high: of(high)? }
            }
            (MatchKind::Optional, FieldMatchType::Optional(Optional { value })) => {
                self.optional(Some(of(value)?))
            }
            _ => return refuse(&format!("expected a match of kind {:?}", self.kind)),
        };
        if found == self.wildcard()? {
            return refuse("a match of any value must be omitted");
        }
        match &found {
            Match::Range { low, high } if low > high => {
                refuse("the range's high value is below its low value")
            }
            Match::Lpm { value, length } if !fits(value, &prefix_mask(self.widths.program, *length)) => {
                refuse("bits are set after the prefix")
            }
            Match::Ternary { value, mask } if !fits(value, mask) => {
                refuse("bits are set outside of the mask")
            }
            _ => Ok(found),
        }
    }

    /// Number of bits that the controller's values have in front of the program's. The linker checks that it is not
    /// negative for LPM fields.
    fn extra_bits(&self) -> i32 {
        self.widths.controller.saturating_sub(self.widths.program) as i32
    }

    fn prefix_length(&self, given: i32) -> Result<u16> {
        let Widths { program, controller } = self.widths;
        if given == 0 {
            return Ok(0);
        }
        if given < 0 || given > controller as i32 {
            return Err(invalid(format!("{}: a prefix of {given} of {controller} bits", self.name)));
        }
        u16::try_from(given - self.extra_bits()).ok().filter(|length| *length > 0).ok_or_else(|| {
            let all = format!("fits all values of the program's {program} bits");
            invalid(format!("{}: a prefix of {given} of {controller} bits {all}", self.name))
        })
    }

    /// Convert a mask. A mask of all bits becomes a mask of all bits of the program, other masks keep their bits.
    fn mask(&self, given: &[u8]) -> Result<Vec<u8>> {
        let Widths { program, controller } = self.widths;
        let mask = Widths::untranslated(controller).decode(given, &self.name)?;
        if mask == ones(controller) {
            return Ok(ones(program));
        }
        self.widths.decode(&mask, &self.name).map_err(|_| {
            let expected = format!("expected all {controller} bits or bits of the program's {program} only");
            invalid(format!("{}: a mask beyond the program's width: {expected}", self.name))
        })
    }

    fn encode(&self, of: &Match) -> Option<FieldMatch> {
        if self.wildcard().is_ok_and(|wildcard| wildcard == *of) {
            return None;
        }
        let field_match_type = match of {
            Match::Exact(value) => FieldMatchType::Exact(Exact { value: encode(value) }),
            Match::Lpm { value, length } => FieldMatchType::Lpm(Lpm {
                value: encode(value),
                prefix_len: i32::from(*length) + self.extra_bits(),
            }),
            Match::Ternary { value, .. } if self.optional_as_ternary => {
                FieldMatchType::Optional(Optional { value: encode(value) })
            }
            Match::Ternary { value, mask } => {
                let exact = *mask == ones(self.widths.program);
                let mask = if exact { ones(self.widths.controller) } else { mask.clone() };
                FieldMatchType::Ternary(Ternary { value: encode(value), mask: encode(&mask) })
            }
            Match::Range { low, high } => {
                FieldMatchType::Range(Range { low: encode(low), high: encode(high) })
            }
            Match::Optional(value) => FieldMatchType::Optional(Optional { value: encode(value.as_ref()?) }),
        };
        Some(FieldMatch { field_id: self.id, field_match_type: Some(field_match_type) })
    }
}

/// Convert a key to the engine's form, in the order of the fields.
pub fn decode_key(fields: &[KeyField], given: &[FieldMatch], of: &str) -> Result<Vec<Match>> {
    for (index, field_match) in given.iter().enumerate() {
        let id = field_match.field_id;
        if !fields.iter().any(|field| field.id == id) {
            return Err(invalid(format!("{of} has no match field {id}")));
        }
        if given[..index].iter().any(|other| other.field_id == id) {
            return Err(invalid(format!("{of}: match field {id} twice")));
        }
    }
    let decode_field =
        |field: &KeyField| match given.iter().find(|field_match| field_match.field_id == field.id) {
            None => field.wildcard(),
            Some(FieldMatch { field_match_type: Some(kind), .. }) => field.decode(kind),
            Some(_) => Err(invalid(format!("{}: a match without a value", field.name))),
        };
    fields.iter().map(decode_field).collect()
}

pub fn encode_key(fields: &[KeyField], key: &[Match]) -> Vec<FieldMatch> {
    fields.iter().zip(key).filter_map(|(field, field_match)| field.encode(field_match)).collect()
}

fn fits(value: &[u8], mask: &[u8]) -> bool {
    value.iter().zip(mask).all(|(value, mask)| value & !mask == 0)
}

/// The mask of the first `length` of `width` bits.
fn prefix_mask(width: u32, length: u16) -> Vec<u8> {
    let rest = width.saturating_sub(u32::from(length));
    let mut mask = ones(width);
    let bytes_cleared = (rest / 8) as usize;
    let bytes = mask.len();
    mask[bytes - bytes_cleared..].fill(0);
    if rest % 8 != 0 {
        mask[bytes - bytes_cleared - 1] &= 0xff << (rest % 8);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn field(kind: MatchKind, width: u32) -> KeyField {
        KeyField {
            id: 7,
            name: "hdr.x.y".into(),
            kind,
            widths: Widths::untranslated(width),
            optional_as_ternary: false,
        }
    }

    fn given(kind: FieldMatchType) -> Vec<FieldMatch> {
        vec![FieldMatch { field_id: 7, field_match_type: Some(kind) }]
    }

    fn lpm(value: &[u8], prefix_len: i32) -> FieldMatchType {
        FieldMatchType::Lpm(Lpm { value: value.to_vec(), prefix_len })
    }

    fn ternary(value: &[u8], mask: &[u8]) -> FieldMatchType {
        FieldMatchType::Ternary(Ternary { value: value.to_vec(), mask: mask.to_vec() })
    }

    fn range(low: &[u8], high: &[u8]) -> FieldMatchType {
        FieldMatchType::Range(Range { low: low.to_vec(), high: high.to_vec() })
    }

    #[test]
    fn matches_are_decoded_and_encoded() {
        for (kind, width, given_match, engine) in [
            (MatchKind::Exact, 9, FieldMatchType::Exact(Exact { value: vec![5] }), Match::Exact(vec![0, 5])),
            (MatchKind::Lpm, 32, lpm(&[10, 0, 0, 0], 8), Match::Lpm { value: vec![10, 0, 0, 0], length: 8 }),
            (MatchKind::Lpm, 12, lpm(&[0x0a, 0xb0], 8), Match::Lpm { value: vec![0x0a, 0xb0], length: 8 }),
            (
                MatchKind::Ternary,
                16,
                ternary(&[4], &[0xff]),
                Match::Ternary { value: vec![0, 4], mask: vec![0, 0xff] },
            ),
            (
                MatchKind::Range,
                12,
                range(&[0], &[0xf, 0xfe]),
                Match::Range { low: vec![0, 0], high: vec![0xf, 0xfe] },
            ),
            (
                MatchKind::Optional,
                8,
                FieldMatchType::Optional(Optional { value: vec![0] }),
                Match::Optional(Some(vec![0])),
            ),
        ] {
            let fields = [field(kind, width)];
            let written = given(given_match);
            assert_eq!(decode_key(&fields, &written, "t").unwrap(), std::slice::from_ref(&engine));
            assert_eq!(encode_key(&fields, &[engine]), written);
        }
    }

    #[test]
    fn optional_matches_may_be_ternary_ones() {
        let fields = [KeyField { optional_as_ternary: true, ..field(MatchKind::Optional, 12) }];
        let written = given(FieldMatchType::Optional(Optional { value: vec![0] }));
        let engine = decode_key(&fields, &written, "t").unwrap();
        assert_eq!(engine, [Match::Ternary { value: vec![0, 0], mask: vec![0xf, 0xff] }]);
        assert_eq!(encode_key(&fields, &engine), written);
        let anything = decode_key(&fields, &[], "t").unwrap();
        assert_eq!(anything, [Match::Ternary { value: vec![0, 0], mask: vec![0, 0] }]);
        assert_eq!(encode_key(&fields, &anything), []);
    }

    fn translated(kind: MatchKind, program: u32, controller: u32) -> [KeyField; 1] {
        [KeyField { widths: Widths { program, controller }, ..field(kind, program) }]
    }

    #[test]
    fn matches_of_translated_types_mean_the_same_values() {
        let exact = |value: &[u8]| FieldMatchType::Exact(Exact { value: value.to_vec() });
        let ones32: &[u8] = &[0xff; 4];
        for (kind, controller, given_match, engine) in [
            (MatchKind::Exact, 32, exact(&[1, 0xfe]), Match::Exact(vec![1, 0xfe])),
            (MatchKind::Lpm, 32, lpm(&[1, 0xfe], 31), Match::Lpm { value: vec![1, 0xfe], length: 8 }),
            (MatchKind::Lpm, 32, lpm(&[0], 24), Match::Lpm { value: vec![0, 0], length: 1 }),
            (
                MatchKind::Ternary,
                32,
                ternary(&[5], ones32),
                Match::Ternary { value: vec![0, 5], mask: vec![1, 0xff] },
            ),
            (
                MatchKind::Ternary,
                32,
                ternary(&[4], &[6]),
                Match::Ternary { value: vec![0, 4], mask: vec![0, 6] },
            ),
            (
                MatchKind::Ternary,
                8,
                ternary(&[5], &[0xff]),
                Match::Ternary { value: vec![0, 5], mask: vec![1, 0xff] },
            ),
            (MatchKind::Range, 32, range(&[2], &[1, 0]), Match::Range { low: vec![0, 2], high: vec![1, 0] }),
        ] {
            let (fields, written) = (translated(kind, 9, controller), given(given_match));
            assert_eq!(decode_key(&fields, &written, "t").unwrap(), std::slice::from_ref(&engine));
            assert_eq!(encode_key(&fields, &[engine]), written);
        }
        for (kind, given_match, code, why) in [
            (MatchKind::Exact, exact(&[2, 0]), Code::OutOfRange, "10 bits for bit<9> in the program"),
            (MatchKind::Lpm, lpm(&[0], 23), Code::InvalidArgument, "fits all values of the program's 9 bits"),
            (MatchKind::Lpm, lpm(&[0], 33), Code::InvalidArgument, "a prefix of 33 of 32 bits"),
            (MatchKind::Lpm, lpm(&[1], 31), Code::InvalidArgument, "bits are set after the prefix"),
            (
                MatchKind::Ternary,
                ternary(&[4], &[2, 6]),
                Code::InvalidArgument,
                "a mask beyond the program's",
            ),
            (MatchKind::Range, range(&[4], ones32), Code::OutOfRange, "32 bits for bit<9> in the program"),
        ] {
            let refused = decode_key(&translated(kind, 9, 32), &given(given_match), "t").unwrap_err();
            assert!(refused.code == code && refused.message.contains(why), "{refused:?}");
        }
    }

    #[test]
    fn wildcards_are_omitted() {
        for kind in [MatchKind::Lpm, MatchKind::Ternary, MatchKind::Range, MatchKind::Optional] {
            let fields = [field(kind, 12)];
            let engine = decode_key(&fields, &[], "t").unwrap();
            assert_eq!(encode_key(&fields, &engine), [], "{kind:?}");
        }
        assert_eq!(
            decode_key(&[field(MatchKind::Exact, 12)], &[], "t").unwrap_err().code,
            Code::InvalidArgument
        );
    }

    #[test]
    fn bad_matches_are_refused() {
        for (kind, given_match, why) in [
            (MatchKind::Lpm, lpm(&[0], 0), "a match of any value"),
            (MatchKind::Lpm, lpm(&[0], -1), "a prefix of -1 of 12 bits"),
            (MatchKind::Lpm, lpm(&[0], 13), "a prefix of 13 of 12 bits"),
            (MatchKind::Lpm, lpm(&[1], 11), "bits are set after the prefix"),
            (MatchKind::Ternary, ternary(&[0], &[0]), "a match of any value"),
            (MatchKind::Ternary, ternary(&[3], &[1]), "bits are set outside of the mask"),
            (MatchKind::Range, range(&[0], &[0xf, 0xff]), "a match of any value"),
            (MatchKind::Range, range(&[2], &[1]), "the range's high value is below its low value"),
            (MatchKind::Optional, lpm(&[1], 12), "expected a match of kind Optional"),
        ] {
            let refused = decode_key(&[field(kind, 12)], &given(given_match), "t").unwrap_err();
            assert_eq!(refused.code, Code::InvalidArgument);
            assert!(refused.message.contains(why), "{}", refused.message);
        }
        let twice = [given(lpm(&[8], 9)), given(lpm(&[8], 9))].concat();
        assert_eq!(
            decode_key(&[field(MatchKind::Lpm, 12)], &twice, "t").unwrap_err().message,
            "t: match field 7 twice"
        );
        let long = given(FieldMatchType::Exact(Exact { value: vec![0x10, 0] }));
        assert_eq!(
            decode_key(&[field(MatchKind::Exact, 12)], &long, "t").unwrap_err().code,
            Code::OutOfRange
        );
    }
}
