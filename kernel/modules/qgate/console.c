// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the kernel says goes to the host with the lab's time before each line,
 * and of a panic also where it was: printk's own stamps count jiffies, and
 * UML's panic prints neither registers nor the stack.
 */
#include <linux/console.h>
#include <linux/kallsyms.h>
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/panic_notifier.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <asm/ptrace.h>

#include "qgate.h"

#define QGATE_MOST_CONSOLES	4
#define QGATE_MOST_CALLERS	24

static unsigned long long qgate_epoch_ns;
module_param_named(epoch, qgate_epoch_ns, ullong, 0444);
MODULE_PARM_DESC(epoch, "the lab's epoch: the time on CLOCK_MONOTONIC, in ns, that the console's lines count from");

struct qgate_console {
	struct console *console;
	void (*write)(struct console *console, const char *text, unsigned int length);
};

static struct qgate_console qgate_consoles[QGATE_MOST_CONSOLES];

static int qgate_stamp(char *to, size_t size)
{
	s64 ns = ktime_get_mono_fast_ns() - qgate_epoch_ns;
	u32 rest;
	u64 seconds = div_u64_rem(abs(ns), NSEC_PER_SEC, &rest);

	return scnprintf(to, size, "[%s%llu.%09u] ", ns < 0 ? "-" : "", seconds, rest);
}

static void qgate_console_write(struct console *console, const char *text, unsigned int length)
{
	const char *end = text + length;
	const struct qgate_console *own = qgate_consoles;
	char stamp[40];
	int stamped = qgate_stamp(stamp, sizeof(stamp));

	while (own->console != console)
		own++;
	while (text < end) {
		const char *line_end = memchr(text, '\n', end - text);
		const char *next = line_end ? line_end + 1 : end;

		own->write(console, stamp, stamped);
		own->write(console, text, next - text);
		text = next;
	}
}

/*
 * Without frame pointers a stack does not say which of its words are return
 * addresses: some of those that are shown are of calls that are over.
 */
static void qgate_show_callers(const unsigned long *stack)
{
	char name[KSYM_SYMBOL_LEN];
	unsigned int shown = 0;

	for (; (unsigned long)stack & (THREAD_SIZE - 1) && shown < QGATE_MOST_CALLERS; stack++) {
		unsigned long address = READ_ONCE_NOCHECK(*stack);

		/* What a call returns to is behind the call: no function begins there. */
		sprint_symbol(name, address);
		if (!strncmp(name, "0x", 2) || strstr(name, "+0x0/"))
			continue;
		pr_emerg("  from %s\n", name);
		shown++;
	}
}

static int qgate_panicked(struct notifier_block *self, unsigned long event, void *why)
{
	struct pt_regs *regs = current->thread.segv_regs;

	if (regs) {
		pr_emerg("  at %pS\n", (void *)PT_REGS_IP(regs));
		qgate_show_callers((unsigned long *)PT_REGS_SP(regs));
	} else {
		qgate_show_callers(__builtin_frame_address(0));
	}
	return NOTIFY_DONE;
}

static struct notifier_block qgate_panic_notifier = {
	.notifier_call	= qgate_panicked,
	.priority	= INT_MAX,	/* UML's, one below, ends the guest */
};

void qgate_hear_console(void)
{
	struct qgate_console *own = qgate_consoles;
	struct console *console;

	atomic_notifier_chain_register(&panic_notifier_list, &qgate_panic_notifier);
	console_list_lock();
	console_lock();
	for_each_console(console) {
		if (!console->write || own == qgate_consoles + QGATE_MOST_CONSOLES)
			continue;
		*own++ = (struct qgate_console){ console, console->write };
		console->write = qgate_console_write;
	}
	console_unlock();
	console_list_unlock();
}

void qgate_leave_console(void)
{
	struct qgate_console *own;

	console_lock();
	for (own = qgate_consoles; own < qgate_consoles + QGATE_MOST_CONSOLES && own->console; own++)
		own->console->write = own->write;
	console_unlock();
	atomic_notifier_chain_unregister(&panic_notifier_list, &qgate_panic_notifier);
}
