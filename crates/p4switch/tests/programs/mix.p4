// SPDX-License-Identifier: Apache-2.0
// Everything that the loader compiles: wide numbers, stacks with indices, a union, a varbit, value sets, registers,
// counters, meters, digests, clones, hashes, checksums and every kind of key. mix.stf has packets and expected results.
#include <core.p4>
#include <v1model.p4>

header kind_h { bit<8> kind; bit<8> count; }
header wide_h { bit<128> left; bit<128> right; }
header item_h { bit<8> value; }
header options_h { bit<8> length; varbit<64> data; bit<8> behind; }
header short_h { bit<16> number; }
header long_h { bit<32> number; }
header ipv4_h {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> length; bit<16> id; bit<3> flags; bit<13> offset;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> source; bit<32> destination;
}
header out_h { bit<32> a; int<8> b; bit<8> c; bit<16> d; }

header_union number_u { short_h short; long_h long; }

struct headers {
    kind_h kind; wide_h wide; item_h[4] items; options_h options; number_u number; ipv4_h ipv4; out_h info;
}
struct kept_t { bit<8> kind; bit<32> number; }
struct metadata {
    @field_list(1) bit<32> kept;
    bit<8> index; bit<8> last; bit<32> hash; bit<2> colour; bool flag; bit<16> class;
}

parser Read(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    value_set<bit<8>>(4) known;
    state start { packet.extract(hdr.kind); transition select(hdr.kind.kind) {
        1: wide; 2: items; 3: options; 4: number; 5: ipv4; 8 &&& 0xf8: peek; known: wide; default: accept; } }
    state wide { packet.extract(hdr.wide); transition accept; }
    state items { packet.extract(hdr.items.next); meta.last = (bit<8>) hdr.items.lastIndex; transition select(hdr.items.last.value) { 0: accept; default: items; } }
    state options {
        packet.extract(hdr.options, (bit<32>) packet.lookahead<bit<8>>() * 8);
        verify(hdr.options.length != 7, error.HeaderTooShort);
        transition accept;
    }
    state number { transition select(packet.lookahead<bit<8>>()) { 0: short; default: long; } }
    state short { packet.extract(hdr.number.short); transition accept; }
    state long { packet.extract(hdr.number.long); transition accept; }
    state ipv4 { packet.extract(hdr.ipv4); transition accept; }
    state peek { meta.kept = packet.lookahead<bit<32>>(); packet.advance(32); transition accept; }
}

control Verify(inout headers hdr, inout metadata meta) { apply {
    verify_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id,
        hdr.ipv4.flags, hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
        hdr.ipv4.checksum, HashAlgorithm.csum16);
} }

control MixIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    register<bit<32>>(16) seen;
    register<bit<128>>(4) largest;
    counter(16, CounterType.packets_and_bytes) arrived;
    meter(4, MeterType.packets) rate;
    direct_counter(CounterType.packets) routed;

    action drop() { mark_to_drop(standard); }
    action send(bit<9> port) { standard.egress_spec = port; routed.count(); }
    action classify(bit<16> class) { meta.class = class; }
    action arithmetic() {
        hdr.wide.left = hdr.wide.left + hdr.wide.right;
        hdr.wide.right = (hdr.wide.left >> 64) ^ (hdr.wide.right << 8);
        largest.write(1, hdr.wide.left);
        if (hdr.wide.left > hdr.wide.right) { hdr.kind.count = 1; } else { hdr.kind.count = 2; }
    }
    action shuffle() {
        meta.index = hdr.kind.count & 3;
        hdr.items[meta.index].value = hdr.items[meta.index].value + 0x10;
        hdr.items.push_front(1);
        hdr.items[0].setValid();
        hdr.items[0].value = meta.last;
    }
    action count() {
        bit<32> before;
        seen.read(before, (bit<32>) hdr.kind.kind);
        seen.write((bit<32>) hdr.kind.kind, before |+| 1);
        arrived.count((bit<32>) hdr.kind.kind);
        rate.execute_meter((bit<32>) 0, meta.colour);
        meta.kept = before;
    }
    table routes {
        key = { hdr.ipv4.destination: lpm; }
        actions = { send; drop; }
        default_action = drop();
        counters = routed;
    }
    table classes {
        key = { hdr.kind.kind: exact; hdr.ipv4.tos: ternary; hdr.ipv4.length: range; hdr.ipv4.protocol: optional; }
        actions = { classify; NoAction; }
        const entries = {
            (5, 0x04 &&& 0x0c, 0 .. 99, 6): classify(1);
            (5, _, 100 .. 200, _): classify(2);
            (5, _, _, _): classify(3);
        }
        const default_action = NoAction();
    }
    action mark() { hdr.kind.count = 0x55; }
    table elements {
        key = { hdr.items[meta.index].value: exact; }
        actions = { mark; NoAction; }
        const entries = { 0x01: mark(); }
        const default_action = NoAction();
    }
    apply {
        count();
        standard.egress_spec = 1;
        if (hdr.kind.kind == 1) { arithmetic(); }
        else if (hdr.kind.kind == 2) { shuffle(); elements.apply(); }
        else if (hdr.number.short.isValid()) {
            bit<16> number = hdr.number.short.number;
            hdr.number.long.setValid();
            hdr.number.long.number = (bit<32>) number << 4;
        } else if (hdr.ipv4.isValid()) {
            classes.apply();
            if (!routes.apply().hit) { standard.egress_spec = 7; }
            hdr.ipv4.ttl = hdr.ipv4.ttl |-| 1;
            hash(meta.hash, HashAlgorithm.crc32, 32w10, { hdr.ipv4.source, hdr.ipv4.destination }, 32w100);
            clone_preserving_field_list(CloneType.I2E, 5, 1);
            digest<kept_t>(1, { hdr.kind.kind, meta.kept });
        }
        if (standard.checksum_error == 1) { drop(); }
    }
}

control MixEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    action report() {
        hdr.info.setValid();
        hdr.info.a = meta.kept;
        hdr.info.b = (int<8>) hdr.kind.count - 8s2;
        hdr.info.c = hdr.info.b < 0 ? 8w1 : 8w0;
        hdr.info.d = meta.class;
    }
    apply {
        if (hdr.kind.kind >= 3) { report(); }
        if (standard.instance_type == 1) { hdr.kind.count = 0xcc; truncate((bit<32>) 6); }
        if (hdr.options.isValid() && standard.parser_error != error.NoError) { hdr.kind.count = 0xee; }
    }
}

control Update(inout headers hdr, inout metadata meta) { apply {
    update_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id,
        hdr.ipv4.flags, hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
        hdr.ipv4.checksum, HashAlgorithm.csum16);
} }

control Write(packet_out packet, in headers hdr) { apply {
    packet.emit(hdr.kind); packet.emit(hdr.info); packet.emit(hdr.wide); packet.emit(hdr.items); packet.emit(hdr.options);
    packet.emit(hdr.number); packet.emit(hdr.ipv4);
} }

V1Switch(Read(), Verify(), MixIngress(), MixEgress(), Update(), Write()) main;
