/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forwarding by which a controller can move flows: a flow is in one of 64 buckets, and a table says which buckets leave
 * by another port than the routes give them. What the controller reads: the bytes of each bucket, and the longest queue
 * since it last looked.
 */
#include "headers.p4"

#define BUCKETS 64
#define WATCHED_PORTS 16	/* ports beyond them are neither counted nor balanced */

struct scheme_metadata {
}

#include "metadata.p4"

control SchemeIngress(inout headers hdr, inout metadata meta,
                      inout standard_metadata_t standard_metadata)
{
    /* by the port that the routes give and by bucket: port * BUCKETS + bucket */
    @name(".bucket_bytes") register<bit<48>>(WATCHED_PORTS * BUCKETS) bucket_bytes;

    bit<6> bucket;

    @name(".move") action move(bit<9> port, bit<48> source, bit<48> destination) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.source = source;
        hdr.ethernet.destination = destination;
    }

    /* by the port that the routes give, so that flows of one bucket with different ways stay apart */
    @name(".moved") table moved {
        key = {
            standard_metadata.egress_spec : exact @name("port");
            bucket : exact @name("bucket");
        }
        actions = { move; NoAction; }
        default_action = NoAction();
        size = WATCHED_PORTS * BUCKETS;
    }

    apply {
        bit<16> source_port = 0;
        bit<16> destination_port = 0;
        bit<32> hash_of_flow;
        bit<48> bytes;

        if (hdr.tcp.isValid()) {
            source_port = hdr.tcp.source_port;
            destination_port = hdr.tcp.destination_port;
        } else if (hdr.udp.isValid()) {
            source_port = hdr.udp.source_port;
            destination_port = hdr.udp.destination_port;
        }
        if (hdr.ipv4.isValid())
            hash(hash_of_flow, HashAlgorithm.crc32, 32w0,
                 { hdr.ipv4.source, hdr.ipv4.destination, source_port, destination_port }, 33w0x100000000);
        else
            hash(hash_of_flow, HashAlgorithm.crc32, 32w0,
                 { hdr.ipv6.source, hdr.ipv6.destination, source_port, destination_port }, 33w0x100000000);
        /* not the bits by which forwarding chooses */
        bucket = hash_of_flow[31:26];
        if (standard_metadata.egress_spec < WATCHED_PORTS) {
            bit<32> index = (bit<32>)standard_metadata.egress_spec * BUCKETS + (bit<32>)bucket;
            bucket_bytes.read(bytes, index);
            bucket_bytes.write(index, bytes + (bit<48>)standard_metadata.packet_length);
            moved.apply();
        }
    }
}

control SchemeEgress(inout headers hdr, inout metadata meta,
                     inout standard_metadata_t standard_metadata)
{
    /* by port, in packets; the controller sets it to 0 */
    @name(".longest_queue") register<bit<19>>(WATCHED_PORTS) longest_queue;

    apply {
        bit<19> longest;

        if (standard_metadata.egress_port < WATCHED_PORTS) {
            bit<32> index = (bit<32>)standard_metadata.egress_port;
            longest_queue.read(longest, index);
            if (standard_metadata.enq_qdepth > longest)
                longest_queue.write(index, standard_metadata.enq_qdepth);
        }
    }
}

#include "switch.p4"
