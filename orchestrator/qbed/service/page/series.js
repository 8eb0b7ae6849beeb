// SPDX-License-Identifier: Apache-2.0
// The samples of one cell in columns of lab time, by queue and by flow. Every view reads them.

/** @import {Cell, QueueBatch, RateBatch, Totals} from './types.d.ts' */

export const COLUMNS = 512;
export const MAX_ROWS = 100;
const MANY_ROWS = 24;

let made = 0;

/** The columns of one queue. */
class Row {
  constructor() {
    this.min = new Float64Array(COLUMNS).fill(NaN);
    this.max = new Float64Array(COLUMNS).fill(NaN);
    this.bytes = new Float64Array(COLUMNS);  // mean times its duration
    this.ns = new Float64Array(COLUMNS);     // the known part of a column
    this.sent = new Float64Array(COLUMNS);   // bytes
    this.dropped = new Float64Array(COLUMNS);
    this.marked = new Float64Array(COLUMNS);
    this.peak = 0;
  }
}

export class Series {
  /** @param {Cell} cell */
  constructor(cell) {
    this.cell = cell;
    this.id = ++made;
    /** @type {Map<number, Row>} */
    this.rows = new Map();
    this.highest = 1;
    this.end = 0;  // columns that were received
    /** @type {Map<number, Float64Array>} */
    this.flows = new Map();
    /** @type {Totals | null} */
    this.totals = null;
    this.ended = false;
    this.version = 0;
  }

  /** A text that differs whenever what is to be drawn may differ. */
  get state() { return `${this.id} ${this.version}`; }

  /** The instant at which a column begins. @param {number} column */
  time(column) { return this.cell.from_ns + column * this.cell.bin_ns; }

  /** A column may be received in two pieces, which are merged. A sample that is longer than a column also fills the
   * unknown columns before it. @param {QueueBatch} batch */
  queues(batch) {
    for (let i = 0; i < batch.queue.length; i++) {
      const at = batch.bin[i];
      if (at >= COLUMNS) continue;
      let row = this.rows.get(batch.queue[i]);
      if (!row) this.rows.set(batch.queue[i], row = new Row());
      row.min[at] = Number.isNaN(row.min[at]) ? batch.min[i] : Math.min(row.min[at], batch.min[i]);
      row.max[at] = Number.isNaN(row.max[at]) ? batch.max[i] : Math.max(row.max[at], batch.max[i]);
      const wide = Math.min(at + 1, Math.round(batch.ns[i] / this.cell.bin_ns));
      let columns = 1;
      while (columns < wide && row.ns[at - columns] === 0) columns++;
      for (let column = at; column > at - columns; column--) {
        row.bytes[column] += batch.mean[i] * batch.ns[i] / columns;
        row.ns[column] += batch.ns[i] / columns;
        row.sent[column] += batch.dequeued_bytes[i] / columns;
        if (column < at) [row.min[column], row.max[column]] = [batch.min[i], batch.max[i]];
      }
      row.dropped[at] += batch.dropped[i];
      row.marked[at] += batch.marked[i];
      row.peak = Math.max(row.peak, batch.max[i]);
      this.highest = Math.max(this.highest, batch.max[i]);
      this.end = Math.max(this.end, at + 1);
    }
    this.version++;
  }

  /** @param {RateBatch} batch */
  rates(batch) {
    for (let i = 0; i < batch.flow.length; i++) {
      let rates = this.flows.get(batch.flow[i]);
      if (!rates) this.flows.set(batch.flow[i], rates = new Float64Array(COLUMNS).fill(NaN));
      if (batch.bin[i] < COLUMNS) rates[batch.bin[i]] = batch.bps[i];
      this.end = Math.max(this.end, Math.min(COLUMNS, batch.bin[i] + 1));
    }
    this.version++;
  }

  /** @param {Totals} totals */
  conclude(totals) {
    this.totals = totals;
    this.version++;
  }

  /** The queues with a series, in their order. Of many, those that held bytes, and at most `limit`: the fullest. */
  shown(limit = MAX_ROWS) {
    const peak = (/** @type {number} */ queue) => this.rows.get(queue)?.peak ?? 0;
    let known = [...this.rows.keys()];
    if (known.length > MANY_ROWS && known.some(queue => peak(queue) > 0)) known = known.filter(queue => peak(queue) > 0);
    if (known.length > limit) known.sort((a, b) => peak(b) - peak(a) || a - b).length = limit;
    return known.sort((a, b) => a - b);
  }

  /** The column of an instant, or the last one that was received. @param {number | null} ns */
  column(ns) {
    const last = Math.max(0, this.end - 1);
    return ns === null ? last : Math.min(COLUMNS - 1, Math.max(0, Math.floor((ns - this.cell.from_ns) / this.cell.bin_ns)));
  }

  /** Mean bytes in a queue; NaN if unknown. @param {number} queue @param {number} column */
  mean(queue, column) {
    const row = this.rows.get(queue);
    return row && row.ns[column] ? row.bytes[column] / row.ns[column] : NaN;
  }

  /** The queue's curve: times in ms, and the minimum, mean and maximum bytes. @param {number} queue */
  curve(queue) {
    const row = this.rows.get(queue), length = Math.max(this.end, 1);
    const columns = Array.from({length}, (_, column) => column);
    const known = (/** @type {(row: Row, column: number) => number} */ value) =>
      columns.map(column => (row && row.ns[column] > 0 ? value(row, column) : null));
    return [
      columns.map(column => this.time(column) / 1e6), known((found, column) => found.min[column]),
      known((found, column) => found.bytes[column] / found.ns[column]), known((found, column) => found.max[column]),
    ];
  }

  /** Bits per second that left a queue over the columns up to this one. @param {number} queue @param {number} until */
  pace(queue, until = this.end - 1, columns = 8) {
    const row = this.rows.get(queue);
    if (!row) return 0;
    let sent = 0, ns = 0;
    for (let column = Math.max(0, until - columns + 1); column <= until; column++) {
      sent += row.sent[column];
      ns += row.ns[column];
    }
    return ns ? sent * 8e9 / ns : 0;
  }

  /** The use of a queue's link and the depth of the queue at an instant; NaN if unknown. Without an instant: the means
   * over a cell that has ended, the newest values of a cell that runs.
   * @param {number} queue @param {number} rate @param {number | null} ns */
  load(queue, rate, ns) {
    const totals = ns === null && this.totals?.queues;
    if (totals) {
      return {use: Math.min(1, totals.sent_bytes[queue] * 8e9 / this.cell.duration_ns / rate), depth: totals.mean_bytes[queue]};
    }
    if (!this.rows.has(queue)) return {use: NaN, depth: NaN};
    const column = this.column(ns);
    return {use: Math.min(1, this.pace(queue, column) / rate), depth: this.mean(queue, column)};
  }

  /** The depth with the brightest colour in `load`. @param {number | null} ns */
  brightest(ns) {
    const means = ns === null && this.totals?.queues.mean_bytes;
    return means ? means.reduce((most, value) => Math.max(most, value), 1) : this.highest;
  }

  /** The time in which flows last or a queue holds bytes, with a margin; null if there is none. @returns {[number, number] | null} */
  active() {
    let from = Infinity, to = -Infinity;
    for (const row of this.rows.values()) {
      const columns = Array.from(row.max.keys()).filter(column => row.max[column] > 0);
      if (!columns.length) continue;
      from = Math.min(from, this.time(columns[0]));
      to = Math.max(to, this.time(columns[columns.length - 1] + 1));
    }
    const flows = this.totals?.flows;
    flows?.start_ns.forEach((start, at) => {
      from = Math.min(from, start);
      to = Math.max(to, flows.end_ns[at] ?? this.cell.duration_ns);
    });
    if (from >= to) return null;
    const margin = 0.05 * (to - from);
    return [Math.max(0, from - margin), Math.min(this.cell.duration_ns, to + margin)];
  }

  /** Sentences about what was not recorded, and the setting that records it. */
  missing() {
    const found = [];
    if (!this.rows.size && (this.ended || this.end)) {
      found.push('This lab records no series of a queue. `observe: {queues: 100 us}` in lab.yml adds one for each switch port.');
    }
    if (!this.flows.size && (this.ended || this.end)) {
      found.push('This lab records no rates of flows. `observe: {flows: 1 ms}` in lab.yml adds them for TCP flows.');
    }
    return found;
  }
}
