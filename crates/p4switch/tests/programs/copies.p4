// SPDX-License-Identifier: Apache-2.0
// Copies that p4c makes: standard metadata for a function with an `inout` parameter, and actions of tables that share an
// action selector. Also a table's key in a header that was made invalid. copies.stf has packets and expected results.
#include <core.p4>
#include <v1model.p4>

header request_h { bit<8> kind; bit<8> choice; bit<8> mark; }

struct headers { request_h request; request_h inner; }
struct metadata { }

parser Read(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.request); packet.extract(hdr.inner); transition accept; }
}

control Verify(inout headers hdr, inout metadata meta) { apply { } }

// Drops requests of kind 1.
bit<8> refuse(in bit<8> kind, inout standard_metadata_t standard) {
    if (kind == 1) { mark_to_drop(standard); }
    if (kind == 2) { standard.egress_spec = 5; }
    return kind + 1;
}

control CopiesIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    action_selector(HashAlgorithm.identity, 32w16, 32w8) ways;
    action send(bit<9> port) { standard.egress_spec = port; }
    action mark(bit<8> value) { hdr.request.mark = value; }
    table first {
        key = { hdr.request.kind: exact; hdr.request.choice: selector; }
        actions = { send; mark; }
        implementation = ways;
    }
    table second {
        key = { hdr.request.kind: exact; hdr.request.choice: selector; }
        actions = { send; mark; }
        implementation = ways;
    }
    action note(bit<8> value) { hdr.request.mark = value; }
    table inner {
        key = { hdr.inner.mark: exact; }
        actions = { note; NoAction; }
        const default_action = NoAction();
        const entries = {
            8w0: note(0xa0);
            8w7: note(0xa7);
        }
    }
    apply {
        standard.egress_spec = 1;
        hdr.request.choice = refuse(hdr.request.kind, standard);
        first.apply();
        second.apply();
        if (hdr.request.kind == 3) { hdr.inner.setInvalid(); }
        inner.apply();
    }
}

control CopiesEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) { apply { } }

control Update(inout headers hdr, inout metadata meta) { apply { } }

control Write(packet_out packet, in headers hdr) { apply { packet.emit(hdr.request); packet.emit(hdr.inner); } }

V1Switch(Read(), Verify(), CopiesIngress(), CopiesEgress(), Update(), Write()) main;
