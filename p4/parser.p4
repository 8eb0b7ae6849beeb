/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One parser, deparser and checksum of IPv4 for all programs. What is cloned at
 * ingress is parsed once more, and simple_switch knows no length of it then.
 */
#ifndef QBED_PARSER_P4
#define QBED_PARSER_P4

#include "metadata.p4"

error {
    BadNetworkHeader	/* no IP header of its version */
}

parser SwitchParser(packet_in packet, out headers hdr, inout metadata meta,
                    inout standard_metadata_t standard_metadata)
{
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_IPV4: ipv4;
            TYPE_IPV6: ipv6;
            TYPE_VLAN: vlan;
            TYPE_SERVICE_VLAN: vlan;
            default: accept;
        }
    }

    state vlan {
        packet.extract(hdr.vlan.next);
        transition select(hdr.vlan.last.type) {
            TYPE_IPV4: ipv4;
            TYPE_IPV6: ipv6;
            TYPE_VLAN: vlan;
            TYPE_SERVICE_VLAN: vlan;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4 && hdr.ipv4.words >= 5, error.BadNetworkHeader);
        meta.transport_bytes = hdr.ipv4.bytes - ((bit<16>)hdr.ipv4.words << 2);
        transition select(hdr.ipv4.words) {
            5: ipv4_transport;
            default: ipv4_options;
        }
    }

    state ipv4_options {
        packet.extract(hdr.ipv4_options, ((bit<32>)hdr.ipv4.words - 5) << 5);
        transition ipv4_transport;
    }

    /* Fragments have no transport header that one could rely on. */
    state ipv4_transport {
        transition select(hdr.ipv4.more_fragments, hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (0, 0, PROTOCOL_TCP): tcp;
            (0, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state ipv6 {
        packet.extract(hdr.ipv6);
        verify(hdr.ipv6.version == 6, error.BadNetworkHeader);
        meta.transport_bytes = hdr.ipv6.bytes;
        transition select(hdr.ipv6.protocol) {
            PROTOCOL_TCP: tcp;
            PROTOCOL_UDP: udp;
            PROTOCOL_HOP_BY_HOP: ipv6_extension;
            PROTOCOL_ROUTING: ipv6_extension;
            PROTOCOL_DESTINATION: ipv6_extension;
            default: accept;
        }
    }

    /* A longer extension is treated as encrypted. */
    state ipv6_extension {
        transition select(packet.lookahead<bit<16>>()[7:0]) {
            0 .. EXTENSION_WORDS - 1: ipv6_extension_extract;
            default: accept;
        }
    }

    state ipv6_extension_extract {
        packet.extract(hdr.extension.next,
                       ((bit<32>)packet.lookahead<bit<16>>()[7:0] << 6) + 48);
        meta.transport_bytes = meta.transport_bytes -
                               (((bit<16>)hdr.extension.last.words + 1) << 3);
        transition select(hdr.extension.last.protocol) {
            PROTOCOL_TCP: tcp;
            PROTOCOL_UDP: udp;
            PROTOCOL_HOP_BY_HOP: ipv6_extension;
            PROTOCOL_ROUTING: ipv6_extension;
            PROTOCOL_DESTINATION: ipv6_extension;
            default: accept;
        }
    }

    state tcp {
        packet.extract(hdr.tcp);
        transition accept;
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.source_port, hdr.udp.destination_port) {
            (SIGNAL_PORT, _): datagram;
            (_, SIGNAL_PORT): datagram;
            default: accept;
        }
    }

    /* A datagram that is longer than its packet has no header (docs/formats.md section 6). */
    state datagram {
        transition select(hdr.udp.bytes > meta.transport_bytes, hdr.udp.bytes) {
            (true, _): accept;
            (_, 0 .. UDP_BYTES - 1): accept;
            (_, UDP_BYTES): too_short;
            default: version;
        }
    }

    state version {
        transition select(packet.lookahead<bit<8>>(), hdr.udp.bytes) {
            (SIGNAL_VERSION, 0 .. UDP_BYTES + SIGNAL_BYTES - 1): too_short;
            (SIGNAL_VERSION, _): signal;
            (SIGNAL_COMPACT, 0 .. UDP_BYTES + COMPACT_BYTES - 1): too_short;
            (SIGNAL_COMPACT, _): compact;
            default: unknown_version;
        }
    }

    state too_short {
        meta.form = FORM_TOO_SHORT;
        transition accept;
    }

    state unknown_version {
        meta.form = FORM_UNKNOWN_VERSION;
        transition accept;
    }

    state signal {
        packet.extract(hdr.signal);
        meta.form = FORM_MALFORMED;
        /* one condition: ranges over four fields would be 76 cases */
        transition select(hdr.signal.type >= SIGNAL_DATA && hdr.signal.type <= SIGNAL_FEEDBACK &&
                          hdr.signal.kind <= SIGNAL_VECTOR && hdr.signal.unit <= SIGNAL_NS &&
                          (hdr.signal.kind == SIGNAL_NONE ||
                           (hdr.signal.bits >= 1 && hdr.signal.bits <= 32))) {
            true: well_formed;
            default: accept;
        }
    }

    state well_formed {
        meta.form = FORM_HEADER;
        transition accept;
    }

    state compact {
        packet.extract(hdr.compact);
        meta.form = FORM_MALFORMED;
        transition select(hdr.compact.type == SIGNAL_DATA[1:0] || hdr.compact.type == SIGNAL_ACK[1:0],
                          hdr.compact.unit, hdr.compact.kind, hdr.compact.bits_less_one) {
            (false, _, _, _): accept;
            (_, 3, _, _): accept;
            (_, _, SIGNAL_NONE[2:0], _): compact_well_formed;
            (_, _, SIGNAL_IND[2:0], _): compact8;
            (_, _, SIGNAL_MAX[2:0], 0 .. 7): compact8;
            (_, _, SIGNAL_MAX[2:0], 8 .. 15): compact16;
            (_, _, SIGNAL_MAX[2:0], _): compact32;
            (_, _, SIGNAL_SUM[2:0], 0 .. 7 - COMPACT_SUM_BITS): compact8;
            (_, _, SIGNAL_SUM[2:0], 8 - COMPACT_SUM_BITS .. 15 - COMPACT_SUM_BITS): compact16;
            (_, _, SIGNAL_SUM[2:0], 16 - COMPACT_SUM_BITS .. 31 - COMPACT_SUM_BITS): compact32;
            (_, _, SIGNAL_SUM[2:0], _): compact64;
            default: accept;
        }
    }

    state compact8 {
        transition select(hdr.udp.bytes) {
            0 .. UDP_BYTES + COMPACT_BYTES: too_short;
            default: compact8_extract;
        }
    }

    state compact16 {
        transition select(hdr.udp.bytes) {
            0 .. UDP_BYTES + COMPACT_BYTES + 1: too_short;
            default: compact16_extract;
        }
    }

    state compact32 {
        transition select(hdr.udp.bytes) {
            0 .. UDP_BYTES + COMPACT_BYTES + 3: too_short;
            default: compact32_extract;
        }
    }

    state compact64 {
        transition select(hdr.udp.bytes) {
            0 .. UDP_BYTES + COMPACT_BYTES + 7: too_short;
            default: compact64_extract;
        }
    }

    state compact8_extract {
        packet.extract(hdr.compact8);
        transition compact_well_formed;
    }

    state compact16_extract {
        packet.extract(hdr.compact16);
        transition compact_well_formed;
    }

    state compact32_extract {
        packet.extract(hdr.compact32);
        transition compact_well_formed;
    }

    state compact64_extract {
        packet.extract(hdr.compact64);
        transition compact_well_formed;
    }

    state compact_well_formed {
        meta.form = FORM_COMPACT;
        transition accept;
    }
}

control SwitchVerifyChecksum(inout headers hdr, inout metadata meta)
{
    apply {
        verify_checksum(hdr.ipv4.isValid() && !hdr.ipv4_options.isValid(), {
            hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.bytes,
            hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.more_fragments, hdr.ipv4.fragment,
            hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination
        }, hdr.ipv4.checksum, HashAlgorithm.csum16);
        verify_checksum(hdr.ipv4_options.isValid(), {
            hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.bytes,
            hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.more_fragments, hdr.ipv4.fragment,
            hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination,
            hdr.ipv4_options.options
        }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control SwitchComputeChecksum(inout headers hdr, inout metadata meta)
{
    apply {
        update_checksum(hdr.ipv4.isValid() && !hdr.ipv4_options.isValid(), {
            hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.bytes,
            hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.more_fragments, hdr.ipv4.fragment,
            hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination
        }, hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(hdr.ipv4_options.isValid(), {
            hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.bytes,
            hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.more_fragments, hdr.ipv4.fragment,
            hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination,
            hdr.ipv4_options.options
        }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control SwitchDeparser(packet_out packet, in headers hdr)
{
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv4_options);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.extension);
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
        packet.emit(hdr.signal);
        packet.emit(hdr.compact);
        packet.emit(hdr.compact8);
        packet.emit(hdr.compact16);
        packet.emit(hdr.compact32);
        packet.emit(hdr.compact64);
    }
}

#endif
