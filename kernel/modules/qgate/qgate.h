/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _QGATE_H
#define _QGATE_H

void qgate_hear_console(void);
void qgate_leave_console(void);

#endif /* _QGATE_H */
