// SPDX-License-Identifier: Apache-2.0
//! Values that the plan encodes as text: prefixes, MAC addresses, bytes.

use serde::{Deserialize, Deserializer};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address with a prefix length, `10.0.0.1/31`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    pub address: IpAddr,
    pub length: u8,
}

impl Prefix {
    pub fn contains(&self, address: IpAddr) -> bool {
        let length = u32::from(self.length);
        match (self.address, address) {
            (IpAddr::V4(prefix), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
                (prefix.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(prefix), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
                (prefix.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not an address with a prefix length");
        let (address, length) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let length: u8 = length.parse().map_err(|_| invalid())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        if length > longest {
            return Err(invalid());
        }
        Ok(Self { address, length })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a MAC address"))
    }
}

/// Bytes, encoded as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hex(pub Vec<u8>);

impl FromStr for Hex {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not a sequence of bytes in hexadecimal");
        if text.len() % 2 != 0 || !text.is_ascii() {
            return Err(invalid());
        }
        let byte = |i| u8::from_str_radix(&text[i..i + 2], 16).map_err(|_| invalid());
        (0..text.len()).step_by(2).map(byte).collect::<Result<_, _>>().map(Self)
    }
}

macro_rules! deserialize_from_text {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
deserialize_from_text!(Prefix, Mac, Hex);

#[cfg(test)]
mod tests {
    use super::Prefix;

    #[test]
    fn a_prefix_contains_its_addresses() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let address = |text: &str| text.parse().unwrap();
        assert!(prefix("10.0.0.4/30").contains(address("10.0.0.7")));
        assert!(!prefix("10.0.0.4/30").contains(address("10.0.0.8")));
        assert!(prefix("0.0.0.0/0").contains(address("192.0.2.1")));
        assert!(!prefix("0.0.0.0/0").contains(address("::1")));
        assert!(
            prefix("fd00::4/126").contains(address("fd00::5")) && prefix("::/0").contains(address("fd00::5"))
        );
        assert!(
            prefix("10.0.0.1/32").contains(address("10.0.0.1"))
                && !prefix("10.0.0.1/32").contains(address("10.0.0.0"))
        );
    }
}
