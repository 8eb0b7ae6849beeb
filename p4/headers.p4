/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers that a switch parses. The congestion header is that of
 * docs/formats.md section 6 (kernel/include/uapi/qbed/signal.h).
 */
#ifndef QBED_HEADERS_P4
#define QBED_HEADERS_P4

#include <core.p4>
#include <v1model.p4>

#define PORTS 512		/* as many as the architecture's nine bits name */
#define ETHERNET_BYTES 14
#define VLAN_BYTES 4
#define IPV4_BYTES 20
#define IPV6_BYTES 40

const bit<16> TYPE_IPV4 = 0x0800;
const bit<16> TYPE_IPV6 = 0x86dd;
const bit<16> TYPE_VLAN = 0x8100;
const bit<16> TYPE_SERVICE_VLAN = 0x88a8;

const bit<8> PROTOCOL_HOP_BY_HOP = 0;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;
const bit<8> PROTOCOL_ROUTING = 43;
const bit<8> PROTOCOL_DESTINATION = 60;

const bit<2> ECN_NOT_CAPABLE = 0;
const bit<2> ECN_CE = 3;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header vlan_t {
    bit<16> tag;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> words;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> bytes;
    bit<16> identification;
    bit<2> flags;
    bit<1> more_fragments;
    bit<13> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header ipv4_options_t {
    varbit<320> options;
}

header ipv6_t {
    bit<4> version;
    bit<6> dscp;
    bit<2> ecn;
    bit<20> flow_label;
    bit<16> bytes;
    bit<8> protocol;
    bit<8> hop_limit;
    bit<128> source;
    bit<128> destination;
}

/* Hop by hop, routing or destination options, of at most EXTENSION_WORDS times 8 bytes. */
#define EXTENSION_WORDS 8
header ipv6_extension_t {
    bit<8> protocol;
    bit<8> words;		/* of 8 bytes, without the first */
    varbit<496> content;
}

header tcp_t {
    bit<16> source_port;
    bit<16> destination_port;
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<4> words;
    bit<4> reserved;
    bit<1> cwr;
    bit<1> ece;
    bit<1> urg;
    bit<1> ack;
    bit<1> psh;
    bit<1> rst;
    bit<1> syn;
    bit<1> fin;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

header udp_t {
    bit<16> source_port;
    bit<16> destination_port;
    bit<16> bytes;
    bit<16> checksum;
}

#define UDP_BYTES 8

/* The congestion header */

const bit<16> SIGNAL_PORT = 6190;
const bit<8> SIGNAL_VERSION = 1;
#define SIGNAL_BYTES 88

const bit<8> SIGNAL_DATA = 1;
const bit<8> SIGNAL_ACK = 2;
const bit<8> SIGNAL_FEEDBACK = 3;

const bit<8> SIGNAL_NONE = 0;
const bit<8> SIGNAL_SUM = 1;
const bit<8> SIGNAL_SUM_SQU = 2;
const bit<8> SIGNAL_MAX = 3;
const bit<8> SIGNAL_IND = 4;
const bit<8> SIGNAL_VECTOR = 5;

const bit<8> SIGNAL_PACKETS = 0;
const bit<8> SIGNAL_IN_BYTES = 1;
const bit<8> SIGNAL_NS = 2;

const bit<8> SIGNAL_REFLECTED = 0x01;

header signal_t {
    bit<8> version;
    bit<8> type;
    bit<8> flags;
    bit<8> kind;
    bit<8> unit;
    bit<8> bits;
    bit<8> hops;
    bit<8> echo_hops;
    bit<32> flow;
    bit<16> feedback;
    bit<8> feedback_bits;
    bit<8> reserved;
    bit<64> sequence;
    bit<64> offset;
    bit<64> window;
    bit<64> time;
    bit<64> echo_time;
    bit<64> signal_high;	/* one number of 128 bits */
    bit<64> signal_low;
    bit<128> echo_signal;
}

/* The compact header, and its signal of as many bytes as its bits need. */
const bit<8> SIGNAL_COMPACT = 2;
#define COMPACT_BYTES 20
#define COMPACT_SUM_BITS 4

header compact_t {
    bit<8> version;
    bit<2> type;
    bit<1> last;
    bit<1> forward;
    bit<1> stamped;
    bit<3> kind;
    bit<2> unit;
    bit<1> reserved;
    bit<5> bits_less_one;
    bit<32> flow;
    bit<48> sequence;
    bit<56> position;
}

header compact8_t { bit<8> value; }
header compact16_t { bit<16> value; }
header compact32_t { bit<32> value; }
header compact64_t { bit<64> value; }

struct headers {
    ethernet_t ethernet;
    vlan_t[2] vlan;
    ipv4_t ipv4;
    ipv4_options_t ipv4_options;
    ipv6_t ipv6;
    ipv6_extension_t[2] extension;
    tcp_t tcp;
    udp_t udp;
    signal_t signal;
    compact_t compact;
    compact8_t compact8;
    compact16_t compact16;
    compact32_t compact32;
    compact64_t compact64;
}

/* The result of parsing a datagram of SIGNAL_PORT. */
const bit<3> FORM_NONE = 0;		/* it is not of that port, or damaged */
const bit<3> FORM_HEADER = 1;		/* `signal` is valid, and all its numbers have a meaning */
const bit<3> FORM_UNKNOWN_VERSION = 2;
const bit<3> FORM_TOO_SHORT = 3;
const bit<3> FORM_MALFORMED = 4;	/* `signal` or `compact` is valid, and to be left alone */
const bit<3> FORM_COMPACT = 5;		/* `compact` is valid */

#endif
