// SPDX-License-Identifier: Apache-2.0
/* Each object that a controller can write, read or be notified of. The first 16 bits of a packet select a test. */
#include <core.p4>
#include <v1model.p4>

typedef bit<9> port_t;
const port_t CPU = 510;

@controller_header("packet_out")
header packet_out_h {
    port_t egress_port;
    bit<7> padding;
}

@controller_header("packet_in")
header packet_in_h {
    port_t ingress_port;
    bit<7> reason;
}

header probe_h {
    bit<16> kind;
    bit<32> address;
    bit<12> low;
    bit<4> flags;
    bit<16> flow;
}

struct learned_t {
    bit<32> address;
    port_t port;
}

struct headers_t {
    packet_out_h packet_out;
    packet_in_h packet_in;
    probe_h probe;
}

struct metadata_t {
    bit<2> colour;
}

parser ProbeParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<16>>(4) probes;

    state start {
        transition select(standard.ingress_port) {
            CPU: parse_packet_out;
            default: parse_kind;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_kind;
    }
    state parse_kind {
        transition select(packet.lookahead<bit<16>>()) {
            probes: parse_probe;
            default: accept;
        }
    }
    state parse_probe {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control ProbeIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(16, CounterType.packets_and_bytes) port_counter;
    meter(8, MeterType.bytes) port_meter;
    direct_counter(CounterType.packets_and_bytes) host_counter;
    direct_meter<bit<2>>(MeterType.packets) host_meter;
    register<bit<48>>(8) last_seen;
    register<int<12>>(4) balance;
    action_profile(16) hops;
    action_selector(HashAlgorithm.crc16, 16, 16) paths;

    action drop() { mark_to_drop(standard); }
    action forward(port_t port) { standard.egress_spec = port; }
    action multicast(bit<16> group) { standard.mcast_grp = group; }
    action learn() { digest<learned_t>(1, { hdr.probe.address, standard.ingress_port }); }
    action host_forward(port_t port) {
        host_meter.read(meta.colour);
        standard.egress_spec = port;
    }

    table hosts {
        key = { hdr.probe.address: exact; }
        actions = { host_forward; @defaultonly learn; @tableonly drop; }
        default_action = learn();
        counters = host_counter;
        meters = host_meter;
        support_timeout = true;
        size = 64;
    }
    table routes {
        key = { hdr.probe.address: lpm; }
        actions = { forward; multicast; drop; }
        size = 1024;
    }
    table rules {
        key = {
            hdr.probe.flags: ternary;
            hdr.probe.low: range;
            hdr.probe.flow: optional;
        }
        actions = { forward; drop; NoAction; }
        const default_action = NoAction();
        size = 32;
    }
    table fixed {
        key = { hdr.probe.kind: exact; }
        actions = { forward; drop; }
        const entries = {
            0x0102: forward(7);
            0x0103: drop();
        }
    }
    table by_hop {
        key = { hdr.probe.flow: exact; }
        actions = { forward; drop; }
        implementation = hops;
    }
    table by_path {
        key = {
            hdr.probe.kind: exact;
            hdr.probe.flow: selector;
        }
        actions = { forward; multicast; }
        implementation = paths;
    }

    apply {
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else if (hdr.probe.isValid()) {
            port_counter.count((bit<32>) standard.ingress_port & 15);
            port_meter.execute_meter((bit<32>) standard.ingress_port & 7, meta.colour);
            last_seen.write((bit<32>) hdr.probe.flow & 7, standard.ingress_global_timestamp);
            balance.write((bit<32>) hdr.probe.flow & 3, (int<12>) hdr.probe.low);
            if (!hosts.apply().hit) {
                routes.apply();
            }
            rules.apply();
            fixed.apply();
            by_hop.apply();
            by_path.apply();
        } else {
            standard.egress_spec = CPU;
        }
    }
}

control ProbeEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == CPU) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard.ingress_port;
            hdr.packet_in.reason = (bit<7>) standard.instance_type;
        }
    }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) { apply { } }

control ProbeDeparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr); }
}

V1Switch(ProbeParser(), NoChecksum(), ProbeIngress(), ProbeEgress(), NoChecksum(), ProbeDeparser()) main;
