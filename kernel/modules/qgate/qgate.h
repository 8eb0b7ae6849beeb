/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _QGATE_H
#define _QGATE_H

void qgate_console_register(void);
void qgate_console_unregister(void);

#endif /* _QGATE_H */
