// SPDX-License-Identifier: GPL-2.0-only
/* Additive increase, multiplicative decrease. The algorithm: aimd_algorithm.h. */
#include <linux/module.h>

#include <net/tcp.h>

#include "aimd_algorithm.h"
#include "aimd_parameters.h"

static void aimd_init(struct sock *sk)
{
	struct aimd_vars *vars = inet_csk_ca(sk);

	*vars = (struct aimd_vars) {};
}

/* Called for each ACK that acknowledges new data outside loss recovery. */
static void aimd_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct aimd_vars *vars = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd;

	if (!tcp_is_cwnd_limited(sk))
		return;
	if (tcp_in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	cwnd = aimd_grow(vars, tcp_snd_cwnd(tp), acked, aimd_increase);
	tcp_snd_cwnd_set(tp, min(cwnd, tp->snd_cwnd_clamp));
}

/* Called once per round trip with a loss or marks. */
static u32 aimd_ssthresh(struct sock *sk)
{
	return aimd_cut(inet_csk_ca(sk), tcp_snd_cwnd(tcp_sk(sk)), aimd_decrease);
}

static size_t aimd_get_info(struct sock *sk, u32 ext, int *attr, union tcp_cc_info *info)
{
	const struct aimd_vars *vars = inet_csk_ca(sk);

	return aimd_put_stats(&vars->stats, attr, info);
}

static struct tcp_congestion_ops aimd __read_mostly = {
	.init = aimd_init,
	.cong_avoid = aimd_cong_avoid,
	.ssthresh = aimd_ssthresh,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.get_info = aimd_get_info,
	.flags = TCP_CONG_NON_RESTRICTED,	/* any node may choose it */
	.owner = THIS_MODULE,
	.name = "aimd",
};

static int __init aimd_register(void)
{
	BUILD_BUG_ON(sizeof(struct aimd_vars) > ICSK_CA_PRIV_SIZE);
	return tcp_register_congestion_control(&aimd);
}

static void __exit aimd_unregister(void)
{
	tcp_unregister_congestion_control(&aimd);
}

module_init(aimd_register);
module_exit(aimd_unregister);
MODULE_DESCRIPTION("Additive increase, multiplicative decrease");
MODULE_LICENSE("GPL");
