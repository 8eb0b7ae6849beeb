// SPDX-License-Identifier: GPL-2.0-only
/*
 * dctcp1: DCTCP whose window may fall to one segment and whose alpha begins at 0.
 * The rule: dctcp1_algorithm.h. Its receivers acknowledge each segment at once: a
 * sender with a window of one segment waits for nothing else.
 *
 * dctcp_ect1: the same, as L4S tells its packets (RFC 9331, section 4.1): with
 * ECT(1) from the established connection on. The kernel gives ECT(0), and before 7.0
 * knows nothing else, so the codepoint is another only while a segment becomes
 * a packet.
 */
#include <linux/module.h>

#include <net/inet_ecn.h>
#include <net/tcp.h>

#include "dctcp1_algorithm.h"

#ifndef TCP_ECN_OK	/* kernels that know AccECN, too */
#define TCP_ECN_OK TCP_ECN_MODE_ANY
#endif

struct dctcp1 {
	struct dctcp1_vars vars;
	u32 una;		/* acknowledged and counted up to here */
	u32 round_end;		/* an acknowledgement from here on ends the round */
};

/* Of a connection whose other end has no ECN. */
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
		dctcp1_on_round(&ca->vars);
		ca->round_end = tp->snd_nxt;
	}
}

/* Asked once in a round trip with marks, and where a loss is found. */
static u32 dctcp1_ssthresh(struct sock *sk)
{
	struct dctcp1 *ca = inet_csk_ca(sk);

	return dctcp1_cut(&ca->vars, tcp_snd_cwnd(tcp_sk(sk)));
}

/* A loss has been found, and dctcp1_ssthresh() asked: here it is known why. */
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

/* The acknowledgement that leaves next, at once, echoes this segment's mark and no other. */
static void dctcp1_on_data(struct sock *sk, bool marked)
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
		dctcp1_on_data(sk, event == CA_EVENT_ECN_IS_CE);
		break;
	case CA_EVENT_LOSS:
		dctcp1_on_loss(sk);
		break;
	default:
		break;
	}
}

/* What sends a connection's segments: IPv4, IPv6, and IPv4 by a socket of IPv6. */
enum dctcp1_path { DCTCP1_IPV4, DCTCP1_IPV6, DCTCP1_MAPPED, DCTCP1_PATHS };
static const struct inet_connection_sock_af_ops *dctcp1_plain[DCTCP1_PATHS];
static struct inet_connection_sock_af_ops dctcp1_ect1_path[DCTCP1_PATHS];

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
	u8 own;
	int err;

#if IS_ENABLED(CONFIG_IPV6)
	if (path == DCTCP1_IPV6)
		dsfield = &inet6_sk(sk)->tclass;
#endif
	own = *dsfield;
	if ((own & INET_ECN_MASK) == INET_ECN_ECT_0)
		*dsfield = (own & ~INET_ECN_MASK) | INET_ECN_ECT_1;
	err = dctcp1_plain[path]->queue_xmit(sk, skb, flow);
	*dsfield = own;
	return err;
}

static void dctcp1_init_ect1(struct sock *sk)
{
	const struct inet_connection_sock_af_ops *plain = inet_csk(sk)->icsk_af_ops;
	enum dctcp1_path path = dctcp1_path(sk);

	dctcp1_init(sk);
	if (inet_csk(sk)->icsk_ca_ops == &dctcp1_without_ecn || plain->queue_xmit == dctcp1_xmit)
		return;
	if (!dctcp1_plain[path]) {
		dctcp1_ect1_path[path] = *plain;
		dctcp1_ect1_path[path].queue_xmit = dctcp1_xmit;
		/* whoever finds it finds the copy whole */
		smp_store_release(&dctcp1_plain[path], plain);
	}
	inet_csk(sk)->icsk_af_ops = &dctcp1_ect1_path[path];
}

static void dctcp1_release_ect1(struct sock *sk)
{
	if (inet_csk(sk)->icsk_af_ops->queue_xmit == dctcp1_xmit)
		inet_csk(sk)->icsk_af_ops = dctcp1_plain[dctcp1_path(sk)];
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
