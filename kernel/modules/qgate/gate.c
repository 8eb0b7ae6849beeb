// SPDX-License-Identifier: GPL-2.0-only
/*
 * The gate between a lab and its host: /dev/qgate on a host file descriptor.
 *
 * A write is sent to the host immediately. A blocking read waits in the host,
 * with the whole kernel: virtual time stands still until the host replies. So a
 * lab can be controlled from the wall clock without virtual time passing in
 * between.
 *
 * A kernel whose time follows the wall clock cannot block like that: it opens
 * the gate with O_NONBLOCK and polls it.
 *
 * The device can be mapped: a page whose first word is CLOCK_MONOTONIC in ns,
 * read without a system call. A clock that follows wall time cannot be mapped.
 *
 * The descriptor is inherited and named on the kernel's command line
 * (qgate=FD), so a guest cannot choose another one.
 */
#include <linux/errno.h>
#include <linux/fs.h>
#include <linux/interrupt.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/time-internal.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <irq_kern.h>
#include <irq_user.h>
#include <os.h>

#include "qgate.h"

#define QGATE_CHUNK	65536

static int qgate_fd = -1;
module_param_named(fd, qgate_fd, int, 0444);
MODULE_PARM_DESC(fd, "host file descriptor of a stream socket (qgate= of the kernel's command line)");

static DEFINE_MUTEX(qgate_lock);
static char *qgate_buffer;

/* Interrupt of a gate opened with O_NONBLOCK, else -1 */
static int qgate_irq = -1;
/* Data may be available since the last read that found none. */
static bool qgate_readable;
static DECLARE_WAIT_QUEUE_HEAD(qgate_wait);

static irqreturn_t qgate_interrupt(int irq, void *device)
{
	WRITE_ONCE(qgate_readable, true);
	wake_up_interruptible(&qgate_wait);
	return IRQ_HANDLED;
}

static int qgate_open(struct inode *inode, struct file *file)
{
	int irq;

	if (!(file->f_flags & O_NONBLOCK))
		return 0;
	if (qgate_irq >= 0)
		return -EBUSY;
	qgate_readable = true;
	irq = um_request_irq(UM_IRQ_ALLOC, qgate_fd, IRQ_READ, qgate_interrupt, 0,
			     "qgate", &qgate_fd);
	if (irq < 0)
		return irq;
	qgate_irq = irq;
	return 0;
}

static int qgate_release(struct inode *inode, struct file *file)
{
	if (file->f_flags & O_NONBLOCK && qgate_irq >= 0) {
		um_free_irq(qgate_irq, &qgate_fd);
		qgate_irq = -1;
	}
	return 0;
}

static __poll_t qgate_poll(struct file *file, poll_table *wait)
{
	poll_wait(file, &qgate_wait, wait);
	return EPOLLOUT | EPOLLWRNORM |
	       (READ_ONCE(qgate_readable) ? EPOLLIN | EPOLLRDNORM : 0);
}

static ssize_t qgate_read(struct file *file, char __user *buffer, size_t count,
			  loff_t *pos)
{
	int n;

	count = min_t(size_t, count, QGATE_CHUNK);
	mutex_lock(&qgate_lock);
	/* Clear the flag first: data that arrives after the read sets it again. */
	if (qgate_irq >= 0)
		WRITE_ONCE(qgate_readable, false);
	do {
		n = os_read_file(qgate_fd, qgate_buffer, count);
	} while (n == -EINTR);
	if (n > 0)
		WRITE_ONCE(qgate_readable, true);
	if (n > 0 && copy_to_user(buffer, qgate_buffer, n))
		n = -EFAULT;
	mutex_unlock(&qgate_lock);
	return n;
}

static ssize_t qgate_write(struct file *file, const char __user *buffer,
			   size_t count, loff_t *pos)
{
	int n = 0, sent = 0;

	count = min_t(size_t, count, QGATE_CHUNK);
	mutex_lock(&qgate_lock);
	if (copy_from_user(qgate_buffer, buffer, count))
		n = -EFAULT;
	while (n >= 0 && sent < count) {
		n = os_write_file(qgate_fd, qgate_buffer + sent, count - sent);
		if (n == -EAGAIN) {
			/* The host's socket buffer is full. */
			schedule_timeout_uninterruptible(1);
			n = 0;
		}
		if (n == -EINTR)
			n = 0;
		if (n > 0)
			sent += n;
	}
	mutex_unlock(&qgate_lock);
	return sent ? sent : n;
}

static int qgate_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct page *page = time_travel_page();

	if (!page)
		return -ENODEV;
	if (vma->vm_flags & VM_WRITE)
		return -EPERM;
	vm_flags_clear(vma, VM_MAYWRITE);
	return vm_insert_page(vma, vma->vm_start, page);
}

static const struct file_operations qgate_fops = {
	.owner	= THIS_MODULE,
	.open	= qgate_open,
	.release = qgate_release,
	.poll	= qgate_poll,
	.read	= qgate_read,
	.write	= qgate_write,
	.mmap	= qgate_mmap,
	.llseek	= noop_llseek,
};

static struct miscdevice qgate_device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "qgate",
	.mode	= 0600,
	.fops	= &qgate_fops,
};

static int __init qgate_init(void)
{
	int err;

	if (qgate_fd < 0)
		return -ENODEV;
	qgate_buffer = kmalloc(QGATE_CHUNK, GFP_KERNEL);
	if (!qgate_buffer)
		return -ENOMEM;
	err = misc_register(&qgate_device);
	if (err) {
		kfree(qgate_buffer);
		return err;
	}
	qgate_console_register();
	return 0;
}

static void __exit qgate_exit(void)
{
	qgate_console_unregister();
	misc_deregister(&qgate_device);
	kfree(qgate_buffer);
}

module_init(qgate_init);
module_exit(qgate_exit);
MODULE_DESCRIPTION("A lab's gate to its host");
MODULE_LICENSE("GPL");
