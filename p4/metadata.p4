/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metadata of a packet in a switch. A scheme's program defines
 * `struct scheme_metadata` before it includes this file.
 */
#ifndef QBED_METADATA_P4
#define QBED_METADATA_P4

#include "headers.p4"

struct metadata {
    bit<16> transport_bytes;	/* of the IP packet, behind its header and extensions */
    bit<3> form;		/* FORM_*: of the congestion header */
    scheme_metadata scheme;
}

/* standard_metadata.instance_type */
const bit<32> INSTANCE_NORMAL = 0;
const bit<32> INSTANCE_INGRESS_CLONE = 1;
const bit<32> INSTANCE_RECIRCULATED = 4;

#endif
