/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * C interface of the engine (crates/p4engine); crates/p4kernel/src/lib.rs has
 * its Rust side. There is one CPU: a pipeline is entered only with bottom
 * halves disabled, or before it is published.
 */
#ifndef _QP4_CORE_H
#define _QP4_CORE_H

#include <linux/types.h>

struct qp4_engine;		/* a loaded program: tables, registers, ... */
struct qp4_context;		/* a packet's headers and metadata between ingress and egress */

/* v1model's instance_type */
enum qp4_instance {
	QP4_NORMAL = 0,
	QP4_INGRESS_CLONE = 1,
	QP4_EGRESS_CLONE = 2,
	QP4_RECIRCULATED = 4,
	QP4_REPLICATED = 5,
	QP4_RESUBMITTED = 6,
};

struct qp4_arrival {
	u64 now_us;
	u32 length;
	u32 checksum;			/* position of a checksum left to the device; U32_MAX: none */
	u16 port;
	u8 instance;
};

enum qp4_forward {
	QP4_DROP = 0,
	QP4_UNICAST = 1,
	QP4_MULTICAST = 2,
};

struct qp4_decision {
	u32 truncate_bytes;		/* U32_MAX: no truncation */
	u16 session;			/* clone session, if `clone` */
	u16 to;				/* port or multicast group */
	u8 forward;
	u8 priority;
	bool clone;
	bool resubmit;
};

struct qp4_departure {
	u64 now_us;
	u64 enqueued_us;
	u32 enqueued_depth;
	u32 dequeued_depth;
	u16 port;
};

struct qp4_emission {
	const u8 *headers;		/* owned by the context, valid until its next use */
	u32 headers_bytes;
	u32 replaced;			/* number of leading bytes of the packet that they replace */
	u32 truncate_bytes;
	u16 session;
	bool clone;
	bool recirculate;
	bool drop;
};

struct qp4_replica {
	u16 port;
	u16 instance;
};

/* Memory allocated by the engine, to be freed by qp4_bytes_free(). */
struct qp4_bytes {
	u8 *data;
	size_t length;
	size_t capacity;
};

/* Returns NULL and sets @error if the image is refused. @owner is passed to qp4_event(). */
struct qp4_engine *qp4_engine_load(const u8 *image, size_t length, void *owner,
				   struct qp4_bytes *error);
void qp4_engine_free(struct qp4_engine *engine);
/* Number of leading bytes of a packet that the program may access; U32_MAX: all. */
u32 qp4_engine_lookahead_bytes(const struct qp4_engine *engine);
/* Whether packets with a checksum left to the device need not be completed. */
bool qp4_engine_defers_checksums(const struct qp4_engine *engine);
struct qp4_context *qp4_context_new(const struct qp4_engine *engine);
void qp4_context_free(struct qp4_context *context);
u32 qp4_context_parsed(const struct qp4_context *context);	/* number of parsed bytes */
/* Position of the checksum that the headers do not have yet; U32_MAX: there is none. */
u32 qp4_context_deferred_checksum(const struct qp4_context *context);
/* Completes the context's checksum, and the headers of @emission if it is not NULL. */
void qp4_engine_complete_checksum(struct qp4_engine *engine, struct qp4_context *context,
				  u16 checksum, struct qp4_emission *emission);
void qp4_bytes_free(struct qp4_bytes *bytes);

/*
 * @packet: its first bytes; the parser gets more by qp4_extend(). A program
 * without qp4_engine_lookahead_bytes() needs all.
 * @from: context that resubmitted or recirculated the packet; NULL: received
 */
void qp4_engine_ingress(struct qp4_engine *engine, struct qp4_context *context, const u8 *packet,
			size_t length, const struct qp4_arrival *arrival,
			const struct qp4_context *from, struct qp4_decision *decision);
/* @from: context that requested the clone at ingress */
void qp4_engine_parse_clone(struct qp4_engine *engine, struct qp4_context *context,
			    const u8 *packet, size_t length, const struct qp4_arrival *arrival,
			    const struct qp4_context *from);
void qp4_engine_egress(struct qp4_engine *engine, struct qp4_context *context, const u8 *packet,
		       size_t length, const struct qp4_departure *departure,
		       struct qp4_emission *emission);
void qp4_context_copy(const struct qp4_engine *engine, const struct qp4_context *from,
		      struct qp4_context *to, u8 instance, u16 rid);
/* Copies a context unchanged, for a duplicate of its packet. */
void qp4_context_duplicate(const struct qp4_context *from, struct qp4_context *to);

/*
 * The @index'th replica of a multicast group or a clone session. Returns false
 * if there is none.
 */
bool qp4_engine_group(const struct qp4_engine *engine, u16 group, u32 index,
		      struct qp4_replica *replica);
bool qp4_engine_session(const struct qp4_engine *engine, u16 session, u32 index,
			struct qp4_replica *replica, u32 *truncate_bytes);

/* Returns false if @request is malformed. */
bool qp4_engine_control(struct qp4_engine *engine, const u8 *request, size_t length,
			struct qp4_bytes *answer);

/* Functions that the engine imports: memory.c, events.c, head.c */
void *qp4_allocate(size_t size, size_t align);
void qp4_deallocate(void *memory);
void *qp4_allocate_code(size_t size);
void qp4_free_code(void *memory);
void __noreturn qp4_panicked(const char *message, size_t length);
u32 qp4_random_u32(void);
void qp4_event(void *owner, u32 kind, u32 id, const u8 *bytes, size_t length);
/* The completed checksum of the engine's packet, in host byte order. */
u16 qp4_checksum(void *owner);
/* More of the engine's packet, with its checksum, valid until the call of the engine returns. NULL: there is no more. */
const u8 *qp4_extend(void *owner, size_t *length);

/* 128-bit division helpers (no libgcc in the kernel) */
__int128_t __divti3(__int128_t value, __int128_t divisor);
__int128_t __modti3(__int128_t value, __int128_t divisor);
__uint128_t __udivti3(__uint128_t value, __uint128_t divisor);
__uint128_t __umodti3(__uint128_t value, __uint128_t divisor);
/* Referenced by Rust's core library, never called: panics do not unwind. */
void __noreturn _Unwind_Resume(void);

#endif /* _QP4_CORE_H */
