// SPDX-License-Identifier: GPL-2.0-only
/*
 * qrate: reliable flows over UDP, paced by a rate controller. The interfaces are
 * include/uapi/qbed/qrate.h and signal.h.
 *
 *   netlink.c          generic netlink requests, dumps and notifications
 *   reply.c            a flow's attributes in replies
 *   net.c              state of a network namespace
 *   sender.c           start and end of a sender
 *   sender_datapath.c  pacing, acknowledgements, loss detection and retransmission
 *   receiver.c         acknowledgements and QCN's reflection point
 *   path.c             sockets, routes, packets
 *   qrate_*.h          arithmetic without kernel dependencies, tested in user space
 *
 * Senders and receivers exist as long as their network namespace: their state can
 * be read after they have ended.
 */
#include <linux/module.h>

#include "qrate.h"

static int __init qrate_init(void)
{
	int err;

	err = qrate_payload_init();
	if (err)
		return err;
	err = qrate_nets_init();
	if (err)
		goto payload;
	err = genl_register_family(&qrate_family);
	if (err)
		goto pernet;
	return 0;

pernet:
	qrate_nets_exit();
payload:
	qrate_payload_exit();
	return err;
}

static void __exit qrate_exit(void)
{
	genl_unregister_family(&qrate_family);
	qrate_nets_exit();
	rcu_barrier();
	qrate_payload_exit();
}

module_init(qrate_init);
module_exit(qrate_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Reliable flows over UDP, paced by a rate controller");
