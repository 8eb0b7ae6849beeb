// SPDX-License-Identifier: Apache-2.0
//! PacketIn and PacketOut: their metadata are a header in front of the packet (`@controller_header`).

use crate::bytestring::{bytes_of, encode};
use crate::controller_header::ControllerHeader;
use crate::error::{invalid, Result};
use crate::proto::p4::v1::{PacketIn, PacketMetadata, PacketOut};

/// Copies bits, most significant first.
fn copy_bits(from: &[u8], from_bit: usize, to: &mut [u8], to_bit: usize, count: usize) {
    for bit in 0..count {
        let (source, target) = (from_bit + bit, to_bit + bit);
        let value = from[source / 8] >> (7 - source % 8) & 1;
        to[target / 8] |= value << (7 - target % 8);
    }
}

/// Convert a packet to a PacketIn. None if it is shorter than the header.
pub fn packet_in(header: &ControllerHeader, packet: &[u8]) -> Option<PacketIn> {
    let (bits, payload) = packet.split_at_checked(header.bytes)?;
    let metadata = header.fields.iter().map(|field| {
        let width = field.widths.program;
        let mut value = vec![0; bytes_of(width)];
        let spare = value.len() * 8 - width as usize;
        copy_bits(bits, field.at, &mut value, spare, width as usize);
        PacketMetadata { metadata_id: field.id, value: encode(&value) }
    });
    Some(PacketIn { metadata: metadata.collect(), payload: payload.to_vec() })
}

/// Convert a PacketOut to a packet with the header in front.
pub fn packet_out(header: &ControllerHeader, message: &PacketOut) -> Result<Vec<u8>> {
    if let Some(other) =
        message.metadata.iter().find(|given| !header.fields.iter().any(|field| field.id == given.metadata_id))
    {
        return Err(invalid(format!("packet_out has no metadata {}", other.metadata_id)));
    }
    let mut packet = vec![0; header.bytes];
    for field in &header.fields {
        let mut values = message.metadata.iter().filter(|given| given.metadata_id == field.id);
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(invalid(format!("packet_out needs {} once", field.name)));
        };
        let value = field.widths.decode(&value.value, &field.name)?;
        let width = field.widths.program as usize;
        copy_bits(&value, value.len() * 8 - width, &mut packet, field.at, width);
    }
    packet.extend_from_slice(&message.payload);
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytestring::Widths;
    use crate::controller_header::Metadata;
    use tonic::Code;

    fn header() -> ControllerHeader {
        let field = |id, name: &str, at, width| {
            let name = name.into();
            Metadata { id, name, at, widths: Widths::untranslated(width) }
        };
        let fields = vec![
            field(1, "port", 0, 9),
            field(2, "reason", 9, 3),
            field(3, "spare", 12, 4),
            field(4, "queue", 16, 16),
        ];
        ControllerHeader { fields, bytes: 4 }
    }

    fn metadata(values: &[(u32, &[u8])]) -> Vec<PacketMetadata> {
        values.iter().map(|(id, value)| PacketMetadata { metadata_id: *id, value: value.to_vec() }).collect()
    }

    #[test]
    fn headers_are_encoded_and_decoded() {
        let fields = metadata(&[(1, b"\x01\x02"), (2, b"\x05"), (3, b"\x00"), (4, b"\x12\x34")]);
        let out = PacketOut { payload: b"packet".to_vec(), metadata: fields.clone() };
        let packet = packet_out(&header(), &out).unwrap();
        // 1 0000 0010, 101, 0000, 0x1234
        assert_eq!(packet, b"\x81\x50\x12\x34packet");
        assert_eq!(
            packet_in(&header(), &packet).unwrap(),
            PacketIn { payload: b"packet".to_vec(), metadata: fields }
        );
        assert_eq!(packet_in(&header(), b"\x81\x50\x12"), None);
    }

    #[test]
    fn other_metadata_than_those_of_p4info_are_refused() {
        for (fields, code) in [
            (metadata(&[(1, b"\x01"), (2, b"\x05"), (3, b"\x00")]), Code::InvalidArgument),
            (
                metadata(&[(1, b"\x01"), (2, b"\x05"), (3, b"\x00"), (4, b"\x01"), (4, b"\x01")]),
                Code::InvalidArgument,
            ),
            (metadata(&[(1, b"\x01"), (2, b"\x05"), (3, b"\x00"), (5, b"\x01")]), Code::InvalidArgument),
            (metadata(&[(1, b"\x02\x00"), (2, b"\x05"), (3, b"\x00"), (4, b"\x01")]), Code::OutOfRange),
        ] {
            let out = PacketOut { payload: vec![], metadata: fields };
            assert_eq!(packet_out(&header(), &out).unwrap_err().code, code, "{out:?}");
        }
    }
}
