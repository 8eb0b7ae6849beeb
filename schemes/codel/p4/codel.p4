/* SPDX-License-Identifier: Apache-2.0 */
/* CoDel: a packet that its control law selects is marked CE, or dropped if it is not ECN-capable. */
#include "headers.p4"

struct scheme_metadata {
}

#include "controlled_delay.p4"
#include "marking.p4"

control SchemeIngress(inout headers hdr, inout metadata meta,
                      inout standard_metadata_t standard_metadata)
{
    apply {
    }
}

control SchemeEgress(inout headers hdr, inout metadata meta,
                     inout standard_metadata_t standard_metadata)
{
    Codel() codel;
    ReadEcn() read_ecn;
    SetCe() set_ce;
    bit<32> target;
    bit<32> interval;
    bit<1> marks;

    /* by egress port */
    @name(".marked") counter(PORTS, CounterType.packets) marked;
    @name(".dropped") counter(PORTS, CounterType.packets) dropped;

    @name(".law") action law(bit<32> target_us, bit<32> interval_us, bit<1> ecn) {
        target = target_us;
        interval = interval_us;
        marks = ecn;
    }

    @name(".codel") table codel_settings {
        key = { standard_metadata.egress_port : exact @name("port"); }
        actions = { law; }
        default_action = law(5000, 100000, 1);
        size = PORTS;
    }

    apply {
        bool signals;
        bit<2> ecn;

        codel_settings.apply();
        codel.apply(standard_metadata, target, interval, signals);
        if (signals) {
            read_ecn.apply(hdr, ecn);
            if (marks == 0 || ecn == ECN_NOT_CAPABLE) {
                dropped.count((bit<32>)standard_metadata.egress_port);
                mark_to_drop(standard_metadata);
            } else {
                set_ce.apply(hdr);
                marked.count((bit<32>)standard_metadata.egress_port);
            }
        }
    }
}

#include "switch.p4"
