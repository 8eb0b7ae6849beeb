// SPDX-License-Identifier: GPL-2.0-only
/*
 * dctcp1: DCTCP whose window may fall to one segment and whose alpha starts at
 * 0. The algorithm: dctcp1_algorithm.h. Its receivers acknowledge each segment
 * immediately, since a sender with a window of one segment would wait for a
 * delayed ACK.
 *
 * dctcp_ect1: the same with ECT(1) on established connections, the L4S
 * codepoint (RFC 9331, section 4.1). The kernel sends ECT(0), and supports only
 * that before 7.0, so the codepoint is changed only while a segment is built
 * into a packet.
 */
#include <linux/module.h>

#include <net/inet_ecn.h>
#include <net/tcp.h>

#include "dctcp1_algorithm.h"
#include "dctcp1_parameters.h"

#ifndef TCP_ECN_OK	/* kernels with AccECN */
#define TCP_ECN_OK TCP_ECN_MODE_ANY
#endif

struct dctcp1 {
	struct dctcp1_vars vars;
	u32 una;		/* snd_una up to which ACKs are counted */
	u32 round_end;		/* an ACK from here on ends the round */
};

/* Fallback for connections that did not negotiate ECN. */
static struct tcp_congestion_ops dctcp1_without_ecn __read_mostly = {
	.ssthresh = tcp_reno_ssthresh,
	.cong_avoid = tcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE,
	.name = "dctcp1-reno",
};

static void dctcp1_init(struct sock *sk)
{
	struct dctcp1 *ca = inet_csk_ca(sk);

	if (!(tcp_sk(sk)->ecn_flags & TCP_ECN_OK)) {
		inet_csk(sk)->icsk_ca_ops = &dctcp1_without_ecn;
		return;
	}
	*ca = (struct dctcp1) {
		.una = tcp_sk(sk)->snd_una,
		.round_end = tcp_sk(sk)->snd_nxt,
	};
}

static void dctcp1_in_ack_event(struct sock *sk, u32 flags)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct dctcp1 *ca = inet_csk_ca(sk);

	dctcp1_on_ack(&ca->vars, tp->snd_una - ca->una, flags & CA_ACK_ECE);
	ca->una = tp->snd_una;
	if (!before(tp->snd_una, ca->round_end)) {
		dctcp1_on_round(&ca->vars, dctcp1_gain_shift);
		ca->round_end = tp->snd_nxt;
	}
}

/* Called once per round trip with marks, and when a loss is detected. */
static u32 dctcp1_ssthresh(struct sock *sk)
{
	struct dctcp1 *ca = inet_csk_ca(sk);

	return dctcp1_cut(&ca->vars, tcp_snd_cwnd(tcp_sk(sk)));
}

/* Called after dctcp1_ssthresh() if the cause is a loss. */
static void dctcp1_on_loss(struct sock *sk)
{
	struct dctcp1 *ca = inet_csk_ca(sk);

	tcp_sk(sk)->snd_ssthresh = dctcp1_halve(&ca->vars, tcp_snd_cwnd(tcp_sk(sk)));
}

static void dctcp1_set_state(struct sock *sk, u8 state)
{
	if (state == TCP_CA_Recovery && inet_csk(sk)->icsk_ca_state != TCP_CA_Recovery)
		dctcp1_on_loss(sk);
}

/* The next ACK is sent immediately and echoes the mark of this segment only. */
static void dctcp1_echo_mark(struct sock *sk, bool marked)
{
	if (marked)
		tcp_sk(sk)->ecn_flags |= TCP_ECN_DEMAND_CWR;
	else
		tcp_sk(sk)->ecn_flags &= ~TCP_ECN_DEMAND_CWR;
	inet_csk(sk)->icsk_ack.pending |= ICSK_ACK_NOW;
}

static void dctcp1_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	switch (event) {
	case CA_EVENT_ECN_IS_CE:
	case CA_EVENT_ECN_NO_CE:
		dctcp1_echo_mark(sk, event == CA_EVENT_ECN_IS_CE);
		break;
	case CA_EVENT_LOSS:
		dctcp1_on_loss(sk);
		break;
	default:
		break;
	}
}

/* Transmit functions by address family: IPv4, IPv6, and IPv4 on an IPv6 socket. */
enum dctcp1_path { DCTCP1_IPV4, DCTCP1_IPV6, DCTCP1_MAPPED, DCTCP1_PATHS };
static const struct inet_connection_sock_af_ops *dctcp1_original_ops[DCTCP1_PATHS];
static struct inet_connection_sock_af_ops dctcp1_ect1_ops[DCTCP1_PATHS];

static enum dctcp1_path dctcp1_path(const struct sock *sk)
{
	const struct inet_connection_sock_af_ops *path = inet_csk(sk)->icsk_af_ops;

	if (sk->sk_family == AF_INET)
		return DCTCP1_IPV4;
	return path->net_header_len == sizeof(struct iphdr) ? DCTCP1_MAPPED : DCTCP1_IPV6;
}

static int dctcp1_xmit(struct sock *sk, struct sk_buff *skb, struct flowi *flow)
{
	enum dctcp1_path path = dctcp1_path(sk);
	u8 *dsfield = &inet_sk(sk)->tos;
	u8 tos;
	int err;

#if IS_ENABLED(CONFIG_IPV6)
	if (path == DCTCP1_IPV6)
		dsfield = &inet6_sk(sk)->tclass;
#endif
	tos = *dsfield;
	if ((tos & INET_ECN_MASK) == INET_ECN_ECT_0)
		*dsfield = (tos & ~INET_ECN_MASK) | INET_ECN_ECT_1;
	err = dctcp1_original_ops[path]->queue_xmit(sk, skb, flow);
	*dsfield = tos;
	return err;
}

static void dctcp1_init_ect1(struct sock *sk)
{
	const struct inet_connection_sock_af_ops *original = inet_csk(sk)->icsk_af_ops;
	enum dctcp1_path path = dctcp1_path(sk);

	dctcp1_init(sk);
	if (inet_csk(sk)->icsk_ca_ops == &dctcp1_without_ecn || original->queue_xmit == dctcp1_xmit)
		return;
	if (!dctcp1_original_ops[path]) {
		dctcp1_ect1_ops[path] = *original;
		dctcp1_ect1_ops[path].queue_xmit = dctcp1_xmit;
		/* publish the pointer after the copy is complete */
		smp_store_release(&dctcp1_original_ops[path], original);
	}
	inet_csk(sk)->icsk_af_ops = &dctcp1_ect1_ops[path];
}

static void dctcp1_release_ect1(struct sock *sk)
{
	if (inet_csk(sk)->icsk_af_ops->queue_xmit == dctcp1_xmit)
		inet_csk(sk)->icsk_af_ops = dctcp1_original_ops[dctcp1_path(sk)];
}

static struct tcp_congestion_ops dctcp1 __read_mostly = {
	.init = dctcp1_init,
	.in_ack_event = dctcp1_in_ack_event,
	.cwnd_event = dctcp1_cwnd_event,
	.ssthresh = dctcp1_ssthresh,
	.cong_avoid = tcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.set_state = dctcp1_set_state,
	.flags = TCP_CONG_NEEDS_ECN | TCP_CONG_NON_RESTRICTED,	/* any node may choose it */
	.owner = THIS_MODULE,
	.name = "dctcp1",
};

static struct tcp_congestion_ops dctcp_ect1 __read_mostly = {
	.init = dctcp1_init_ect1,
	.release = dctcp1_release_ect1,
	.in_ack_event = dctcp1_in_ack_event,
	.cwnd_event = dctcp1_cwnd_event,
	.ssthresh = dctcp1_ssthresh,
	.cong_avoid = tcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.set_state = dctcp1_set_state,
	.flags = TCP_CONG_NEEDS_ECN | TCP_CONG_NON_RESTRICTED,	/* any node may choose it */
	.owner = THIS_MODULE,
	.name = "dctcp_ect1",
};

static int __init dctcp1_register(void)
{
	int err;

	BUILD_BUG_ON(sizeof(struct dctcp1) > ICSK_CA_PRIV_SIZE);
	err = tcp_register_congestion_control(&dctcp1);
	if (err)
		return err;
	err = tcp_register_congestion_control(&dctcp_ect1);
	if (err)
		tcp_unregister_congestion_control(&dctcp1);
	return err;
}

static void __exit dctcp1_unregister(void)
{
	tcp_unregister_congestion_control(&dctcp_ect1);
	tcp_unregister_congestion_control(&dctcp1);
}

module_init(dctcp1_register);
module_exit(dctcp1_unregister);
MODULE_DESCRIPTION("DCTCP with windows of one segment");
MODULE_LICENSE("GPL");
