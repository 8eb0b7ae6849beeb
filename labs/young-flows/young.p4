/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Step marking that spares young flows: a packet that finds more than a
 * threshold in the queue is marked CE, unless it is among the first of its
 * flow. A flow that was silent for a while begins anew.
 *
 * Flows are distinguished by CRC-32 of addresses and ports alone. A flow that
 * shares its place with another is old too early, and is marked as by the scheme ecn.
 */
#include "headers.p4"

#define FLOWS 65536

struct scheme_metadata {
}

#include "marking.p4"
#include "metadata.p4"

control SchemeIngress(inout headers hdr, inout metadata meta,
                      inout standard_metadata_t standard_metadata)
{
    apply {
    }
}

/* How many packets of its flow have left before this one. */
control Age(in headers hdr, in bit<48> now, in bit<48> idle, out bit<32> before)
{
    @name(".sent") register<bit<32>>(FLOWS) sent_of;
    @name(".last_seen") register<bit<48>>(FLOWS) last_seen_of;

    apply {
        bit<32> place;
        bit<48> last_seen;

        if (hdr.ipv4.isValid())
            hash(place, HashAlgorithm.crc32, 32w0,
                 { hdr.ipv4.source, hdr.ipv4.destination, hdr.tcp.source_port,
                   hdr.tcp.destination_port }, (bit<32>)FLOWS);
        else
            hash(place, HashAlgorithm.crc32, 32w0,
                 { hdr.ipv6.source, hdr.ipv6.destination, hdr.tcp.source_port,
                   hdr.tcp.destination_port }, (bit<32>)FLOWS);
        sent_of.read(before, place);
        last_seen_of.read(last_seen, place);
        if (now - last_seen > idle)
            before = 0;
        sent_of.write(place, before + 1);
        last_seen_of.write(place, now);
    }
}

control SchemeEgress(inout headers hdr, inout metadata meta,
                     inout standard_metadata_t standard_metadata)
{
    Age() age;
    ReadEcn() read_ecn;
    SetCe() set_ce;
    bit<19> threshold;
    bit<32> young;
    bit<48> idle;

    /* by egress port */
    @name(".marked") counter(PORTS, CounterType.packets) marked;
    @name(".spared") counter(PORTS, CounterType.packets) spared;

    @name(".mark_above") action mark_above(bit<19> packets, bit<32> young_packets, bit<48> idle_us) {
        threshold = packets;
        young = young_packets;
        idle = idle_us;
    }

    @name(".marking") table marking {
        key = { standard_metadata.egress_port : exact @name("port"); }
        actions = { mark_above; }
        default_action = mark_above(20, 100, 10000);
        size = PORTS;
    }

    apply {
        bit<32> before = 0xffffffff;
        bit<2> ecn;

        marking.apply();
        if (hdr.tcp.isValid())
            age.apply(hdr, standard_metadata.egress_global_timestamp, idle, before);
        read_ecn.apply(hdr, ecn);
        if (standard_metadata.enq_qdepth > threshold && ecn != ECN_NOT_CAPABLE && ecn != ECN_CE) {
            if (before < young) {
                spared.count((bit<32>)standard_metadata.egress_port);
            } else {
                set_ce.apply(hdr);
                marked.count((bit<32>)standard_metadata.egress_port);
            }
        }
    }
}

#include "switch.p4"
