// SPDX-License-Identifier: GPL-2.0-only
/*
 * Console output to the host: each line is prefixed with the lab time, and a
 * panic is followed by its location. printk's own timestamps count jiffies, and
 * UML's panic prints neither registers nor a stack trace.
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

#define QGATE_MAX_CONSOLES	4
#define QGATE_MAX_CALLERS	24

static unsigned long long qgate_epoch_ns;
module_param_named(epoch, qgate_epoch_ns, ullong, 0444);
MODULE_PARM_DESC(epoch, "origin of the lab time in console lines: CLOCK_MONOTONIC, in ns");

struct qgate_console {
	struct console *console;
	void (*write)(struct console *console, const char *text, unsigned int length);
};

static struct qgate_console qgate_consoles[QGATE_MAX_CONSOLES];

static int qgate_stamp(char *buffer, size_t size)
{
	s64 ns = ktime_get_mono_fast_ns() - qgate_epoch_ns;
	u32 rest;
	u64 seconds = div_u64_rem(abs(ns), NSEC_PER_SEC, &rest);

	return scnprintf(buffer, size, "[%s%llu.%09u] ", ns < 0 ? "-" : "", seconds, rest);
}

static void qgate_console_write(struct console *console, const char *text, unsigned int length)
{
	const char *end = text + length;
	const struct qgate_console *entry = qgate_consoles;
	char stamp[40];
	int stamped = qgate_stamp(stamp, sizeof(stamp));

	while (entry->console != console)
		entry++;
	while (text < end) {
		const char *line_end = memchr(text, '\n', end - text);
		const char *next = line_end ? line_end + 1 : end;

		entry->write(console, stamp, stamped);
		entry->write(console, text, next - text);
		text = next;
	}
}

/*
 * Without frame pointers, return addresses on the stack cannot be identified:
 * some of those shown belong to calls that have returned.
 */
static void qgate_show_callers(const unsigned long *stack)
{
	char name[KSYM_SYMBOL_LEN];
	unsigned int shown = 0;

	for (; (unsigned long)stack & (THREAD_SIZE - 1) && shown < QGATE_MAX_CALLERS; stack++) {
		unsigned long address = READ_ONCE_NOCHECK(*stack);

		/*
		 * A return address is behind the call instruction, so it is never the start of
		 * a function.
		 */
		sprint_symbol(name, address);
		if (!strncmp(name, "0x", 2) || strstr(name, "+0x0/"))
			continue;
		pr_emerg("  from %s\n", name);
		shown++;
	}
}

static int qgate_panic_event(struct notifier_block *self, unsigned long event, void *why)
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
	.notifier_call	= qgate_panic_event,
	.priority	= INT_MAX,	/* before UML's notifier, which ends the guest */
};

void qgate_console_register(void)
{
	struct qgate_console *entry = qgate_consoles;
	struct console *console;

	atomic_notifier_chain_register(&panic_notifier_list, &qgate_panic_notifier);
	console_list_lock();
	console_lock();
	for_each_console(console) {
		if (!console->write || entry == qgate_consoles + QGATE_MAX_CONSOLES)
			continue;
		*entry++ = (struct qgate_console){ console, console->write };
		console->write = qgate_console_write;
	}
	console_unlock();
	console_list_unlock();
}

void qgate_console_unregister(void)
{
	struct qgate_console *entry;

	console_lock();
	for (entry = qgate_consoles; entry < qgate_consoles + QGATE_MAX_CONSOLES && entry->console; entry++)
		entry->console->write = entry->write;
	console_unlock();
	atomic_notifier_chain_unregister(&panic_notifier_list, &qgate_panic_notifier);
}
