// SPDX-License-Identifier: Apache-2.0
/*
 * Types that P4Info translates, fields of 0 bits, a struct in a header, entries that are only initial. What comes in
 * goes to the controller unless a table sends it elsewhere.
 */
#include <core.p4>
#include <v1model.p4>

@p4runtime_translation("qbed/port", 32)
type bit<9> port_t;
@p4runtime_translation("qbed/time", 24)
type bit<16> stamp_t;
type bit<8> class_t;
const bit<9> CPU = 510;

struct inner_t {
    bit<3> a;
    bit<4> b;
}

@controller_header("packet_out")
header packet_out_h {
    bit<0> nothing;
    port_t egress_port;
    bit<7> padding;
}

@controller_header("packet_in")
header packet_in_h {
    port_t ingress_port;
    inner_t inner;
}

header probe_h {
    port_t port;
    bit<7> padding;
    bit<0> nothing;
    stamp_t stamp;
    class_t class;
    bit<8> number;
}

struct seen_t {
    port_t port;
    bit<0> nothing;
    stamp_t stamp;
    class_t class;
}

struct headers_t {
    packet_out_h packet_out;
    packet_in_h packet_in;
    probe_h probe;
}

struct metadata_t {
    bit<0> nothing;
}

parser TypesParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<8>>(4) classes;

    state start {
        transition select(standard.ingress_port) {
            CPU: parse_packet_out;
            default: parse_probe;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_probe;
    }
    state parse_probe {
        packet.extract(hdr.probe);
        transition select((bit<8>) hdr.probe.class) {
            classes: accept;
            default: accept;
        }
    }
}

control TypesIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<port_t>(4) ports;
    register<stamp_t>(4) stamps;
    counter(512, CounterType.packets) by_port;

    action send(port_t port, bit<0> nothing) {
        standard.egress_spec = (bit<9>) port;
        hdr.probe.nothing = nothing;
    }
    action note(bit<8> number) { hdr.probe.number = number; }
    action drop() { mark_to_drop(standard); }

    table exact_ports {
        key = { hdr.probe.port: exact; }
        actions = { send; drop; }
        size = 16;
    }
    table prefixes {
        key = { hdr.probe.port: lpm; }
        actions = { send; drop; }
        size = 16;
    }
    table masks {
        key = {
            hdr.probe.stamp: ternary;
            hdr.probe.number: range;
        }
        actions = { send; note; drop; }
        size = 16;
        entries = {
            const (_, 1..3): note(7);
            (_, 2): drop();
        }
    }

    apply {
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = (bit<9>) hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            ports.write(0, hdr.probe.port);
            stamps.write(0, hdr.probe.stamp);
            by_port.count((bit<32>) (bit<9>) hdr.probe.port);
            digest<seen_t>(1, { hdr.probe.port, hdr.probe.nothing, hdr.probe.stamp, hdr.probe.class });
            standard.egress_spec = CPU;
            if (!exact_ports.apply().hit) {
                if (!prefixes.apply().hit) {
                    masks.apply();
                }
            }
        }
    }
}

control TypesEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == CPU) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = (port_t) standard.ingress_port;
            hdr.packet_in.inner = { 5, 9 };
        }
    }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TypesDeparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr); }
}

V1Switch(TypesParser(), NoChecksum(), TypesIngress(), TypesEgress(), NoChecksum(), TypesDeparser()) main;
