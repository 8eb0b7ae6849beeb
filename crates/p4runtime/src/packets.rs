// SPDX-License-Identifier: Apache-2.0
//! Packets between switch and controller: their metadata are a header in front of the packet (`@controller_header`).

use crate::bytestring::{bytes_of, decode, encode};
use crate::pipeline::Metadata;
use crate::proto::p4::v1::{PacketIn, PacketMetadata, PacketOut};
use crate::refused::{invalid, Result};

fn header_bytes(fields: &[Metadata]) -> usize {
    fields.iter().map(|field| field.width as usize).sum::<usize>() / 8
}

/// Copies bits, most significant first.
fn copy_bits(from: &[u8], from_bit: usize, to: &mut [u8], to_bit: usize, count: usize) {
    for bit in 0..count {
        let (source, target) = (from_bit + bit, to_bit + bit);
        let value = from[source / 8] >> (7 - source % 8) & 1;
        to[target / 8] |= value << (7 - target % 8);
    }
}

/// None: it is shorter than its header.
pub fn packet_in(fields: &[Metadata], packet: &[u8]) -> Option<PacketIn> {
    let (header, payload) = packet.split_at_checked(header_bytes(fields))?;
    let mut at = 0;
    let metadata = fields.iter().map(|field| {
        let width = field.width as usize;
        let mut value = vec![0; bytes_of(field.width)];
        let spare = value.len() * 8 - width;
        copy_bits(header, at, &mut value, spare, width);
        at += width;
        PacketMetadata { metadata_id: field.id, value: encode(&value) }
    });
    Some(PacketIn { metadata: metadata.collect(), payload: payload.to_vec() })
}

/// The packet with its header in front.
pub fn packet_out(fields: &[Metadata], message: &PacketOut) -> Result<Vec<u8>> {
    if let Some(other) =
        message.metadata.iter().find(|one| !fields.iter().any(|field| field.id == one.metadata_id))
    {
        return Err(invalid(format!("packet_out has no metadata {}", other.metadata_id)));
    }
    let mut packet = vec![0; header_bytes(fields)];
    let mut at = 0;
    for field in fields {
        let mut values = message.metadata.iter().filter(|one| one.metadata_id == field.id);
        let (Some(one), None) = (values.next(), values.next()) else {
            return Err(invalid(format!("packet_out needs {} once", field.name)));
        };
        let value = decode(&one.value, field.width, &field.name)?;
        let width = field.width as usize;
        copy_bits(&value, value.len() * 8 - width, &mut packet, at, width);
        at += width;
    }
    packet.extend_from_slice(&message.payload);
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn fields() -> Vec<Metadata> {
        let field = |id, name: &str, width| Metadata { id, name: name.into(), width };
        vec![field(1, "port", 9), field(2, "reason", 3), field(3, "spare", 4), field(4, "queue", 16)]
    }

    fn metadata(values: &[(u32, &[u8])]) -> Vec<PacketMetadata> {
        values.iter().map(|(id, value)| PacketMetadata { metadata_id: *id, value: value.to_vec() }).collect()
    }

    #[test]
    fn the_header_is_bits() {
        let told = metadata(&[(1, b"\x01\x02"), (2, b"\x05"), (3, b"\x00"), (4, b"\x12\x34")]);
        let out = PacketOut { payload: b"packet".to_vec(), metadata: told.clone() };
        let packet = packet_out(&fields(), &out).unwrap();
        // 1 0000 0010, 101, 0000, 0x1234
        assert_eq!(packet, b"\x81\x50\x12\x34packet");
        assert_eq!(
            packet_in(&fields(), &packet).unwrap(),
            PacketIn { payload: b"packet".to_vec(), metadata: told }
        );
        assert_eq!(packet_in(&fields(), b"\x81\x50\x12"), None);
    }

    #[test]
    fn metadata_have_to_be_those_of_p4info() {
        for (told, code) in [
            (metadata(&[(1, b"\x01"), (2, b"\x05"), (3, b"\x00")]), Code::InvalidArgument),
            (
                metadata(&[(1, b"\x01"), (2, b"\x05"), (3, b"\x00"), (4, b"\x01"), (4, b"\x01")]),
                Code::InvalidArgument,
            ),
            (metadata(&[(1, b"\x01"), (2, b"\x05"), (3, b"\x00"), (5, b"\x01")]), Code::InvalidArgument),
            (metadata(&[(1, b"\x02\x00"), (2, b"\x05"), (3, b"\x00"), (4, b"\x01")]), Code::OutOfRange),
        ] {
            let out = PacketOut { payload: vec![], metadata: told };
            assert_eq!(packet_out(&fields(), &out).unwrap_err().code, code, "{out:?}");
        }
    }
}
