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
 * So that it can be checked, a register remembers whose acknowledgements pass
 * and when the last one did. It serves one flow at a time, which holds it
 * until its acknowledgements have been absent for reverse_timeout_ns: a flow
 * that hashes to a register held by another is marked on the forward path, and
 * no flow ever gets the signal of another. A flow that has ended holds nothing:
 * with its FIN it leaves the register to whoever comes, SYN and RST free it.
 */
#ifndef _RPM_ALGORITHM_H
#define _RPM_ALGORITHM_H

#include "rpm_scheme.h"

/* Signatures that no flow has. */
#define RPM_NOBODY 0u
#define RPM_ANY_FLOW 1u		/* of a register that all flows of a port share */

/* R_C[pos] */
struct rpm_register {
	u64 reverse_ns;		/* when the holder's last acknowledgement passed */
	void *port;		/* whose decisions are pending */
	u32 signature;		/* of the flow that holds the register */
	u32 pending;		/* decisions that no acknowledgement has carried yet */
	bool closing;		/* the holder has said FIN: its last acknowledgements still
				 * carry what is pending, unless another flow takes the register
				 */
};

/* What an acknowledgement may do. */
enum rpm_ack {
	RPM_ACK,		/* carry a decision */
	RPM_ACK_OPENS,		/* it is the SYN-ACK of a new connection: ECE means something else
				 * in it (RFC 3168, 6.1.1), and what is pending is of an earlier one
				 */
	RPM_ACK_TAKEN,		/* it carries a decision of another register */
};

/*
 * Call before each change of stats->pending, and before pending_time_ns is read. The
 * sum of waiting times is the integral of the number that waits, whichever
 * acknowledgement is said to carry which.
 */
static inline void rpm_stats_advance(struct rpm_stats *stats, u64 *changed_ns, u64 now_ns)
{
	stats->pending_time_ns += stats->pending * (now_ns - *changed_ns);
	*changed_ns = now_ns;
}

/* Where the signal of a decision goes. */
enum rpm_path {
	RPM_REVERSE,		/* into the next acknowledgement: the register counts it */
	RPM_FORWARD,		/* stays in the packet: no acknowledgement passes here, or
				 * decisions of another port are pending
				 */
	RPM_COLLISION,		/* stays in the packet: another flow holds the register */
};

/* What happens to an acknowledgement. */
enum rpm_verdict {
	RPM_PASS,
	RPM_MARK,		/* set ECE: the register has been decremented */
};

/* What an acknowledgement that arrives does to the register of its flow. */
struct rpm_arrival {
	enum rpm_verdict verdict;
	void *port;		/* whose decision it carries, or whose are cleared */
	u32 cleared;		/* decisions of an earlier holder or connection, void now */
};

/* A hash has 64 bits: the lower half is the position, the upper the signature. */
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
	return reg->signature != RPM_NOBODY &&
	       now_ns - reg->reverse_ns <= params->reverse_timeout_ns;
}

/* CoDel has decided to signal congestion to a flow: lines 2 to 5. */
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
	reg->port = port;
	reg->pending++;
	return RPM_REVERSE;
}

/* Decisions that nothing will carry any more; returns how many there were. */
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
			return arrival;		/* a collision; decisions count those */
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

/* A packet of the flow itself arrives with FIN. */
static inline void rpm_on_fin(struct rpm_register *reg, u32 signature)
{
	if (reg->signature == signature)
		reg->closing = true;
}

/*
 * The connection is gone (RST), or another one of these ports begins (SYN); returns
 * how many decisions that makes void.
 */
static inline u32 rpm_on_end(struct rpm_register *reg, u32 signature)
{
	if (reg->signature != signature)
		return 0;
	reg->signature = RPM_NOBODY;
	reg->closing = false;
	return rpm_clear(reg);
}

#endif /* _RPM_ALGORITHM_H */
