/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The congestion point of Quantized Congestion Notification.
 *
 * Pan, Prabhakar, Laxmikantha: QCN: Quantized Congestion Notification (slides):
 * "Sample packets with probability p. Compute Fb = -[(q - q_eq) + w q_delta].
 * If Fb < 0, and if Fb value is smaller (more negative) than Fb value in the
 * packet header, then overwrite [...]. If Fb < 0, then reflect Fb value
 * probabilistically back to the source with a bias which increases with Fb. Set
 * the 'frame-reflected' bit." README.md lists the choices where they
 * contradict themselves. Code and header store the congestion -Fb, which is
 * never negative; 0 is no congestion.
 */
#ifndef _QCN_ALGORITHM_H
#define _QCN_ALGORITHM_H

#include "qcn_scheme.h"

#define QCN_ONE 1000000000u	/* the probability 1 */
#define QCN_MAX_BITS 16

struct qcn_vars {
	u32 last_packets;	/* queue length at the last sample or arrival: reference of q_delta */
};

static inline bool qcn_fits(const struct qcn_params *params, u32 queue_packets, u32 queue_bytes,
			    u32 packet_bytes)
{
	return queue_packets < params->buffer_packets &&
	       (u64)queue_bytes + packet_bytes <= params->buffer_bytes;
}

/* -Fb of a packet that arrives at a queue of @queue_packets, or 0 if Fb is not negative. */
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
 * Range of -Fb for q_off up to q_eq and q_delta up to 2 q_eq, the slides'
 * "-q_eq and 2 q_eq".
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

/* Returns true with @probability. @random: a random 32-bit integer */
static inline bool qcn_chance(u32 probability, u32 random)
{
	return ((u64)random * QCN_ONE) >> 32 < probability;
}

/* "Sampling function = linearly increases with |Fb| from 1--25%" */
static inline u32 qcn_sampling(const struct qcn_params *params, u64 congestion)
{
	u64 range = params->max_sampling - params->min_sampling;

	return params->min_sampling +
	       range * qcn_in_scale(params, congestion) / qcn_full_scale(params);
}

static inline u32 qcn_max_level(u8 bits)
{
	return (1u << (bits < QCN_MAX_BITS ? bits : QCN_MAX_BITS)) - 1;
}

/* Rounded up: congestion is never quantized to 0. */
static inline u16 qcn_quantized(const struct qcn_params *params, u64 congestion)
{
	u64 scale = qcn_full_scale(params);

	return (qcn_in_scale(params, congestion) * qcn_max_level(params->bits) + scale - 1) / scale;
}

/*
 * True if this queue's @level is worse than the packet's, which may be from
 * another quantizer.
 */
static inline bool qcn_is_worse(u16 level, u8 bits, u16 other, u8 other_bits)
{
	if (!other_bits)
		return level > 0;	/* not written by any congestion point */
	return (u64)level * qcn_max_level(other_bits) > (u64)other * qcn_max_level(bits);
}

static inline u32 qcn_reflection(const struct qcn_params *params, u16 quantized)
{
	if (!params->biased)
		return params->reflect;
	return (u64)params->reflect * quantized / qcn_max_level(params->bits);
}

/* Records the queue length that a packet found. */
static inline void qcn_arrived(const struct qcn_params *params, struct qcn_vars *vars,
			       u32 queue_packets, bool sampled)
{
	if (sampled || !params->between_samples)
		vars->last_packets = queue_packets;
}

#endif /* _QCN_ALGORITHM_H */
