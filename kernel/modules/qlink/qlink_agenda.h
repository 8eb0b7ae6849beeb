/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pending deadlines: the next QLINK_NEAR in a sorted ring, all later ones in a
 * heap. The order is that of the heap, but the ring also allows looking ahead,
 * to prefetch what the following deadlines access.
 */
#ifndef _QLINK_AGENDA_H
#define _QLINK_AGENDA_H

#include "qlink_heap.h"

#define QLINK_NEAR 16u		/* a power of two */

struct qlink_agenda {
	struct qlink_deadline near[QLINK_NEAR];	/* a ring that starts at near_first */
	u32 near_first;
	u32 near_used;
	struct qlink_heap later;		/* none is before any of near[] */
};

static inline struct qlink_deadline *
qlink_agenda_slot(struct qlink_agenda *agenda, u32 place)
{
	return &agenda->near[(agenda->near_first + place) % QLINK_NEAR];
}

/* The deadline at position @place, or NULL if the ring does not hold it. */
static inline const struct qlink_deadline *
qlink_agenda_at(struct qlink_agenda *agenda, u32 place)
{
	return place < agenda->near_used ? qlink_agenda_slot(agenda, place) : NULL;
}

static inline const struct qlink_deadline *
qlink_agenda_top(struct qlink_agenda *agenda)
{
	return qlink_agenda_at(agenda, 0);
}

static inline void qlink_agenda_push(struct qlink_agenda *agenda,
				     struct qlink_deadline entry)
{
	u32 place = agenda->near_used;

	if (place == QLINK_NEAR) {
		const struct qlink_deadline *last = qlink_agenda_slot(agenda, place - 1);

		if (!qlink_deadline_before(&entry, last)) {
			qlink_heap_push(&agenda->later, qlink_heap_pack(&agenda->later, &entry));
			return;
		}
		qlink_heap_push(&agenda->later, qlink_heap_pack(&agenda->later, last));
		place--;
	} else {
		unsigned __int128 packed = qlink_heap_pack(&agenda->later, &entry);

		if (agenda->later.used && packed >= agenda->later.entries[0]) {
			qlink_heap_push(&agenda->later, packed);
			return;
		}
		agenda->near_used++;
	}
	while (place && qlink_deadline_before(&entry, qlink_agenda_slot(agenda, place - 1))) {
		*qlink_agenda_slot(agenda, place) = *qlink_agenda_slot(agenda, place - 1);
		place--;
	}
	*qlink_agenda_slot(agenda, place) = entry;
}

static inline void qlink_agenda_refill(struct qlink_agenda *agenda)
{
	while (agenda->near_used < QLINK_NEAR && agenda->later.used) {
		*qlink_agenda_slot(agenda, agenda->near_used++) =
			qlink_heap_unpack(&agenda->later, agenda->later.entries[0]);
		qlink_heap_pop(&agenda->later);
	}
}

static inline void qlink_agenda_pop(struct qlink_agenda *agenda)
{
	agenda->near_first = (agenda->near_first + 1) % QLINK_NEAR;
	agenda->near_used--;
	qlink_agenda_refill(agenda);
}

/* Removes all deadlines of @owner (compared under @mask). O(n), not for the hot path. */
static inline void qlink_agenda_remove(struct qlink_agenda *agenda,
				       unsigned long owner, unsigned long mask)
{
	u32 kept = 0;
	u32 i;

	for (i = 0; i < agenda->near_used; i++) {
		struct qlink_deadline entry = *qlink_agenda_slot(agenda, i);

		if ((entry.owner & mask) != owner)
			*qlink_agenda_slot(agenda, kept++) = entry;
	}
	agenda->near_used = kept;
	qlink_heap_remove(&agenda->later, owner, mask);
	qlink_agenda_refill(agenda);
}

#endif /* _QLINK_AGENDA_H */
