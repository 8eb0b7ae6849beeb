// SPDX-License-Identifier: Apache-2.0
// Paths through the switch: several copies in one queue, resubmission, recirculation, and endless loops. rounds.stf has
// packets and expected results.
#include <core.p4>
#include <v1model.p4>

header way_h { bit<8> way; bit<8> rounds; bit<8> enqueued; bit<8> dequeued; bit<8> instance; bit<8> port; }

struct headers { way_h way; }
struct metadata { @field_list(1) bit<8> rounds; }

parser Read(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.way); transition accept; }
}

control Verify(inout headers hdr, inout metadata meta) { apply { } }

control WaysIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (hdr.way.way == 1) { standard.mcast_grp = 1; }
        else if (hdr.way.way == 2 && meta.rounds < 3) {
            meta.rounds = meta.rounds + 1;
            resubmit_preserving_field_list(1);
        } else if (hdr.way.way == 5) { resubmit_preserving_field_list(1); }
    }
}

control WaysEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    apply {
        hdr.way.enqueued = (bit<8>) standard.enq_qdepth;
        hdr.way.dequeued = (bit<8>) standard.deq_qdepth;
        hdr.way.instance = (bit<8>) standard.instance_type;
        hdr.way.port = (bit<8>) standard.egress_rid;
        if (hdr.way.way == 2) { hdr.way.rounds = meta.rounds; }
        if (hdr.way.way == 3 && meta.rounds < 4) {
            meta.rounds = meta.rounds + 1;
            hdr.way.rounds = meta.rounds;
            recirculate_preserving_field_list(1);
        }
        if (hdr.way.way == 4) { recirculate_preserving_field_list(1); }
        if (hdr.way.way == 6) { clone(CloneType.E2E, 1); }
        if (hdr.way.way == 7 && standard.instance_type == 0) { clone(CloneType.E2E, 2); mark_to_drop(standard); }
    }
}

control Update(inout headers hdr, inout metadata meta) { apply { } }

control Write(packet_out packet, in headers hdr) { apply { packet.emit(hdr.way); } }

V1Switch(Read(), Verify(), WaysIngress(), WaysEgress(), Update(), Write()) main;
