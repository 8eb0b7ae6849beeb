/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reverse path congestion marking: the congestion state registers.
 *
 * Baganal-Krishna, Tran, Kundel, Rizk: Accelerating End-host Congestion
 * Response using P4 Programmable Switches, Algorithm 1:
 *
 *   1: Run CoDel
 *   2: if drop_C == True then
 *   3:     pos <- h(IP_src, IP_dst, IP_prot, p_src, p_dst)
 *   4:     R_C[pos] <- R_C[pos] + 1
 *   5: end if
 *   // When an ACK arrives
 *   6: pos <- h(IP_dst, IP_src, IP_prot, p_dst, p_src)
 *   7: if R_C[pos] >= 1 then
 *   8:     TCP.ECE <- 1
 *   9:     R_C[pos] <- R_C[pos] - 1
 *   10: end if
 *
 * and section III.C: "the bottleneck switch should be on both paths forward
 * and reverse. Checking this condition is straightforward [...] such that RPM
 * can be turned off for flows that do not adhere to this condition."
 *
 * To check this, a register stores the flow whose acknowledgements pass and the
 * time of the last one. It serves one flow at a time, which holds it until no
 * acknowledgement of it was seen for reverse_timeout_ns. A flow that hashes to a
 * register held by another flow is marked on the forward path, so no flow gets
 * the signal of another. After its FIN, a flow's register may be taken over by
 * another flow; SYN and RST free it.
 */
#ifndef _RPM_ALGORITHM_H
#define _RPM_ALGORITHM_H

#include "rpm_scheme.h"

/* Reserved signatures. */
#define RPM_NO_FLOW 0u
#define RPM_ANY_FLOW 1u		/* register shared by all flows of a port */

/* R_C[pos] */
struct rpm_register {
	u64 reverse_ns;		/* time of the holder's last acknowledgement */
	void *port;		/* port of the pending decisions */
	u32 signature;		/* signature of the flow that holds the register */
	u32 pending;		/* decisions not yet carried by an acknowledgement */
	bool closing;		/* the holder sent FIN: its last acknowledgements still carry
				 * pending decisions, unless another flow takes the register
				 */
};

/* Kind of an acknowledgement. */
enum rpm_ack {
	RPM_ACK,		/* may carry a decision */
	RPM_ACK_OPENS,		/* SYN-ACK of a new connection: ECE has another meaning in it (RFC
				 * 3168, 6.1.1), and pending decisions belong to an earlier
				 * connection
				 */
	RPM_ACK_TAKEN,		/* already carries a decision of another register */
};

/*
 * Call before each change of stats->pending, and before pending_time_ns is
 * read. The sum of waiting times is the integral of the number of pending
 * decisions, independent of which acknowledgement carries which.
 */
static inline void rpm_stats_advance(struct rpm_stats *stats, u64 *changed_ns, u64 now_ns)
{
	stats->pending_time_ns += stats->pending * (now_ns - *changed_ns);
	*changed_ns = now_ns;
}

/* Path of a decision's signal. */
enum rpm_path {
	RPM_REVERSE,		/* counted in the register, for the next acknowledgement */
	RPM_FORWARD,		/* CE stays in the packet: no acknowledgement was seen, or decisions
				 * of another port are pending
				 */
	RPM_MERGED,		/* the flow's bit is set already */
	RPM_COLLISION,		/* CE stays in the packet: another flow holds the register */
};

/* Verdict for an acknowledgement. */
enum rpm_verdict {
	RPM_PASS,
	RPM_MARK,		/* set ECE: the register was decremented */
};

/* Effect of an acknowledgement on the register of its flow. */
struct rpm_arrival {
	enum rpm_verdict verdict;
	void *port;		/* port of the decision that it carries, or of the cleared ones */
	u32 cleared;		/* number of discarded decisions of an earlier holder or connection */
};

/* The lower 32 bits of a hash are the position, the upper ones the signature. */
static inline u32 rpm_position(u64 hash, u32 registers)
{
	return (u32)hash & (registers - 1);	/* a power of two */
}

static inline u32 rpm_signature(u64 hash)
{
	u32 signature = hash >> 32;

	return signature > RPM_ANY_FLOW ? signature : RPM_ANY_FLOW + 1;
}

static inline bool rpm_seen(const struct rpm_params *params, const struct rpm_register *reg,
			    u64 now_ns)
{
	return reg->signature != RPM_NO_FLOW &&
	       now_ns - reg->reverse_ns <= params->reverse_timeout_ns;
}

/*
 * The law decided to signal congestion to a flow: lines 2 to 5. With one bit for
 * a flow (section III.C), the next acknowledgement carries all decisions before it.
 */
static inline enum rpm_path rpm_on_congestion(const struct rpm_params *params,
					      struct rpm_register *reg, u32 signature,
					      void *port, u64 now_ns)
{
	if (!rpm_seen(params, reg, now_ns))
		return RPM_FORWARD;
	if (reg->signature != signature)
		return reg->closing ? RPM_FORWARD : RPM_COLLISION;
	if (reg->pending && reg->port != port)
		return RPM_FORWARD;
	if (reg->pending && params->counter == RPM_COUNTER_BIT)
		return RPM_MERGED;
	reg->port = port;
	reg->pending++;
	return RPM_REVERSE;
}

/* Discards pending decisions; returns their number. */
static inline u32 rpm_clear(struct rpm_register *reg)
{
	u32 cleared = reg->pending;

	reg->pending = 0;
	return cleared;
}

/* A packet with an acknowledgement for the flow arrives: lines 6 to 10. */
static inline struct rpm_arrival rpm_on_ack(const struct rpm_params *params,
					    struct rpm_register *reg, u32 signature,
					    enum rpm_ack ack, u64 now_ns)
{
	struct rpm_arrival arrival = { RPM_PASS, reg->port, 0 };

	if (reg->signature != signature) {
		if (!reg->closing && rpm_seen(params, reg, now_ns))
			return arrival;		/* a collision, counted by rpm_on_congestion() */
		reg->signature = signature;
		reg->closing = false;
		arrival.cleared = rpm_clear(reg);
	} else if (ack == RPM_ACK_OPENS && signature != RPM_ANY_FLOW) {
		reg->closing = false;
		arrival.cleared = rpm_clear(reg);
	}
	reg->reverse_ns = now_ns;
	if (reg->pending && ack == RPM_ACK) {
		reg->pending--;
		arrival.verdict = RPM_MARK;
	}
	return arrival;
}

/* A data packet of the flow arrives with FIN. */
static inline void rpm_on_fin(struct rpm_register *reg, u32 signature)
{
	if (reg->signature == signature)
		reg->closing = true;
}

/*
 * The connection was reset (RST), or a new one with the same ports starts
 * (SYN). Returns the number of discarded decisions.
 */
static inline u32 rpm_on_end(struct rpm_register *reg, u32 signature)
{
	if (reg->signature != signature)
		return 0;
	reg->signature = RPM_NO_FLOW;
	reg->closing = false;
	return rpm_clear(reg);
}

#endif /* _RPM_ALGORITHM_H */
