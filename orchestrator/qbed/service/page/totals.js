// SPDX-License-Identifier: Apache-2.0
// A table of a cell's queues by their totals, the fullest first, and what the lab does not record.

import {rate, size} from './timeline.js';

/** @import {Series} from './series.js' */
/** @import {QueueTotals} from './types.d.ts' */

const ROWS = 10;

/** The queues that sent something, the highest maximum first. @param {QueueTotals} queues */
export function fullest(queues, rows = ROWS) {
  return queues.port.map((_, at) => at).filter(at => queues.sent_packets[at] > 0)
    .sort((a, b) => queues.max_bytes[b] - queues.max_bytes[a] || a - b).slice(0, rows);
}

export class TotalsTable {
  /** @param {HTMLTableElement} table @param {HTMLElement} hints @param {(queue: number) => void} chosen */
  constructor(table, hints, chosen) {
    this.table = table;
    this.hints = hints;
    this.chosen = chosen;
    /** @type {Series | null} */
    this.series = null;
    this.drawn = '';
  }

  /** @param {Series | null} series */
  show(series) {
    this.series = series;
    this.drawn = '';
    this.table.hidden = true;
    this.hints.replaceChildren();
  }

  draw() {
    const {series, table} = this, state = `${series?.ended} ${!!series?.totals} ${!!series?.rows.size} ${!!series?.flows.size}`;
    if (!series || this.drawn === state) return;
    this.drawn = state;
    this.hints.replaceChildren(...series.missing().map(text => Object.assign(document.createElement('li'), {textContent: text})));
    table.hidden = !series.totals;
    if (!series.totals) return;
    const {queues} = series.totals, seconds = series.cell.duration_ns / 1e9;
    table.tBodies[0].replaceChildren(...fullest(queues).map(at => {
      const row = document.createElement('tr'), head = row.appendChild(document.createElement('th'));
      head.scope = 'row';
      if (series.rows.has(at)) {
        const button = head.appendChild(document.createElement('button'));
        button.type = 'button';
        button.textContent = queues.port[at];
        button.addEventListener('click', () => this.chosen(at));
      } else head.textContent = queues.port[at];
      const values = [
        size(queues.max_bytes[at]), size(queues.mean_bytes[at]), rate(queues.sent_bytes[at] * 8 / seconds),
        `${queues.dropped_packets[at]}`, `${queues.marked_packets[at]}`,
      ];
      for (const value of values) row.appendChild(document.createElement('td')).textContent = value;
      return row;
    }));
  }
}
