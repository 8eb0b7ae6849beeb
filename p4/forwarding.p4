/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing: longest prefix, next hop, and of several next hops one by flow. What
 * the kernel's switch drops is dropped here and counted by why; a switch says
 * nothing of its own (no ICMP), and has permanent neighbours (no ARP).
 */
#ifndef QBED_FORWARDING_P4
#define QBED_FORWARDING_P4

#include "metadata.p4"

/* Positions of the counter `forwarding_drops` */
const bit<32> DROP_NOT_IP = 0;
const bit<32> DROP_BAD_HEADER = 1;
const bit<32> DROP_BAD_CHECKSUM = 2;
const bit<32> DROP_TTL = 3;
const bit<32> DROP_NO_ROUTE = 4;
const bit<32> DROP_NO_NEXT_HOP = 5;
#define FORWARDING_DROPS 8

control Forwarding(inout headers hdr, inout metadata meta,
                   inout standard_metadata_t standard_metadata)
{
    bit<16> hop;	/* the first of `paths` */
    bit<16> paths;	/* 0: no route */
    bit<5> shift;

    @name(".forwarding_drops") counter(FORWARDING_DROPS, CounterType.packets) drops;

    /*
     * Next hops first to first + count - 1, of which a flow takes one, the same
     * in both directions. Layers that choose one after the other get different
     * shifts (0 and 16), so that the one's choice says nothing of the other's.
     */
    @name(".route") action route(bit<16> first, bit<16> count, bit<5> shift_by) {
        hop = first;
        paths = count;
        shift = shift_by;
    }

    @name(".no_route") action no_route() {
        paths = 0;
    }

    @name(".ipv4_routes") table ipv4_routes {
        key = { hdr.ipv4.destination : lpm @name("destination"); }
        actions = { route; no_route; }
        default_action = no_route();
        size = 131072;
    }

    @name(".ipv6_routes") table ipv6_routes {
        key = { hdr.ipv6.destination : lpm @name("destination"); }
        actions = { route; no_route; }
        default_action = no_route();
        size = 131072;
    }

    @name(".send") action send(bit<9> port, bit<48> source, bit<48> destination) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.source = source;
        hdr.ethernet.destination = destination;
    }

    @name(".no_next_hop") action no_next_hop() {
        mark_to_drop(standard_metadata);
        drops.count(DROP_NO_NEXT_HOP);
        exit;
    }

    @name(".next_hops") table next_hops {
        key = { hop : exact @name("hop"); }
        actions = { send; no_next_hop; }
        default_action = no_next_hop();
        size = 65536;
    }

    action drop(bit<32> why) {
        mark_to_drop(standard_metadata);
        drops.count(why);
        exit;
    }

    /* Flow-level: the smaller address and port come first, whichever way the packet goes. */
    action choose(bit<32> hash_of_flow) {
        hop = hop + (bit<16>)((((hash_of_flow >> shift) & 0xffff) * (bit<32>)paths) >> 16);
    }

    apply {
        bit<16> low_port = 0;
        bit<16> high_port = 0;
        bit<8> protocol = 0;
        bit<32> flow_hash = 0;

        hop = 0;
        paths = 0;
        shift = 0;
        if (standard_metadata.parser_error == error.BadNetworkHeader)
            drop(DROP_BAD_HEADER);
        if (hdr.ipv4.isValid()) {
            if (ETHERNET_BYTES + (bit<32>)hdr.ipv4.bytes > standard_metadata.packet_length)
                drop(DROP_BAD_HEADER);
            if (standard_metadata.checksum_error == 1)
                drop(DROP_BAD_CHECKSUM);
            if (hdr.ipv4.ttl <= 1)
                drop(DROP_TTL);
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            protocol = hdr.ipv4.protocol;
            ipv4_routes.apply();
        } else if (hdr.ipv6.isValid()) {
            if (ETHERNET_BYTES + IPV6_BYTES + (bit<32>)hdr.ipv6.bytes > standard_metadata.packet_length)
                drop(DROP_BAD_HEADER);
            if (hdr.ipv6.hop_limit <= 1)
                drop(DROP_TTL);
            hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
            protocol = hdr.ipv6.protocol;
            ipv6_routes.apply();
        } else {
            drop(DROP_NOT_IP);
        }
        if (paths == 0)
            drop(DROP_NO_ROUTE);
        if (paths > 1) {
            if (hdr.tcp.isValid()) {
                low_port = hdr.tcp.source_port;
                high_port = hdr.tcp.destination_port;
            } else if (hdr.udp.isValid()) {
                low_port = hdr.udp.source_port;
                high_port = hdr.udp.destination_port;
            }
            if (low_port > high_port) {
                bit<16> greater = low_port;
                low_port = high_port;
                high_port = greater;
            }
            if (hdr.ipv4.isValid()) {
                bit<32> low = hdr.ipv4.source;
                bit<32> high = hdr.ipv4.destination;
                if (low > high) {
                    low = hdr.ipv4.destination;
                    high = hdr.ipv4.source;
                }
                hash(flow_hash, HashAlgorithm.crc32, 32w0,
                     { low, high, low_port, high_port, protocol }, 33w0x100000000);
            } else {
                bit<128> low = hdr.ipv6.source;
                bit<128> high = hdr.ipv6.destination;
                if (low > high) {
                    low = hdr.ipv6.destination;
                    high = hdr.ipv6.source;
                }
                hash(flow_hash, HashAlgorithm.crc32, 32w0,
                     { low, high, low_port, high_port, protocol }, 33w0x100000000);
            }
            choose(flow_hash);
        }
        next_hops.apply();
    }
}

#endif
