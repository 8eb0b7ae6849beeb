/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The congestion point of Quantized Congestion Notification.
 *
 * Pan, Prabhakar, Laxmikantha: QCN: Quantized Congestion Notification (slides):
 * "Sample packets with probability p. Compute Fb = -[(q - q_eq) + w q_delta].
 * If Fb < 0, and if Fb value is smaller (more negative) than Fb value in the
 * packet header, then overwrite [...]. If Fb < 0, then reflect Fb value
 * probabilistically back to the source with a bias which increases with Fb. Set
 * the 'frame-reflected' bit." README.md says what was decided where they
 * contradict themselves. Here and in the header stands -Fb, which is never
 * negative: the congestion; 0 is none.
 */
#ifndef _QCN_ALGORITHM_H
#define _QCN_ALGORITHM_H

#include "qcn_scheme.h"

#define QCN_ONE 1000000000u	/* the probability 1 */
#define QCN_MOST_BITS 16

struct qcn_vars {
	u32 last_packets;	/* the queue at the last sample, or arrival: q_delta counts from here */
};

static inline bool qcn_fits(const struct qcn_params *params, u32 queue_packets, u32 queue_bytes,
			    u32 packet_bytes)
{
	return queue_packets < params->buffer_packets &&
	       (u64)queue_bytes + packet_bytes <= params->buffer_bytes;
}

/* -Fb of a packet that finds @queue_packets, or 0 where Fb is not negative. */
static inline u64 qcn_congestion(const struct qcn_params *params, const struct qcn_vars *vars,
				 u32 queue_packets)
{
	s64 equilibrium = params->equilibrium_packets, length = queue_packets, congestion;

	if (params->capped && length > 2 * equilibrium)
		length = 2 * equilibrium;
	congestion = length - equilibrium +
		     params->weight * ((s64)queue_packets - vars->last_packets);
	return congestion > 0 ? congestion : 0;
}

/*
 * With q_off of at most q_eq, and q_delta of at most 2 q_eq: the range of the
 * slides' "-q_eq and 2 q_eq".
 */
static inline u64 qcn_full_scale(const struct qcn_params *params)
{
	if (params->full_scale_packets)
		return params->full_scale_packets;
	return (1 + 2 * (u64)params->weight) * params->equilibrium_packets;
}

static inline u64 qcn_in_scale(const struct qcn_params *params, u64 congestion)
{
	u64 scale = qcn_full_scale(params);

	return congestion < scale ? congestion : scale;
}

/* @random: any of 2^32 */
static inline bool qcn_chance(u32 probability, u32 random)
{
	return ((u64)random * QCN_ONE) >> 32 < probability;
}

/* "Sampling function = linearly increases with |Fb| from 1--25%" */
static inline u32 qcn_sampling(const struct qcn_params *params, u64 congestion)
{
	u64 range = params->sample_most - params->sample_least;

	return params->sample_least +
	       range * qcn_in_scale(params, congestion) / qcn_full_scale(params);
}

static inline u32 qcn_most(u8 bits)
{
	return (1u << (bits < QCN_MOST_BITS ? bits : QCN_MOST_BITS)) - 1;
}

/* Rounded up: what is congestion is never said to be none. */
static inline u16 qcn_quantized(const struct qcn_params *params, u64 congestion)
{
	u64 scale = qcn_full_scale(params);

	return (qcn_in_scale(params, congestion) * qcn_most(params->bits) + scale - 1) / scale;
}

/* Is @own worse than what the packet has already, perhaps of another quantizer? */
static inline bool qcn_worse(u16 own, u8 own_bits, u16 other, u8 other_bits)
{
	if (!other_bits)
		return own > 0;		/* nobody has written yet */
	return (u64)own * qcn_most(other_bits) > (u64)other * qcn_most(own_bits);
}

static inline u32 qcn_reflection(const struct qcn_params *params, u16 quantized)
{
	if (!params->biased)
		return params->reflect;
	return (u64)params->reflect * quantized / qcn_most(params->bits);
}

/* A packet has found @queue_packets. */
static inline void qcn_arrived(const struct qcn_params *params, struct qcn_vars *vars,
			       u32 queue_packets, bool sampled)
{
	if (sampled || !params->between_samples)
		vars->last_packets = queue_packets;
}

#endif /* _QCN_ALGORITHM_H */
