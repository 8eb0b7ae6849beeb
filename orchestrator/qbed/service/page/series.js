// SPDX-License-Identifier: Apache-2.0
// The queue samples of one cell: a row per queue, a column per interval of lab time. Read by the heat map and the curves.

export const COLUMNS = 512;

export class Series {
  constructor(cell) {
    this.cell = cell;
    const size = cell.queues.length * COLUMNS;
    this.min = new Float64Array(size).fill(NaN);
    this.max = new Float64Array(size).fill(NaN);
    this.bytes = new Float64Array(size);   // mean times its duration
    this.ns = new Float64Array(size);      // how much of a column is known
    this.sent = new Float64Array(size);    // bytes
    this.peak = new Float64Array(cell.queues.length);
    this.highest = 1;
    this.end = 0;                          // columns that have come
    this.flows = new Map();
    this.version = 0;
  }

  // Columns may come in two pieces: they are put together.
  queues(batch) {
    for (let i = 0; i < batch.queue.length; i++) {
      if (batch.bin[i] >= COLUMNS) continue;
      const queue = batch.queue[i], at = queue * COLUMNS + batch.bin[i];
      this.min[at] = this.ns[at] ? Math.min(this.min[at], batch.min[i]) : batch.min[i];
      this.max[at] = this.ns[at] ? Math.max(this.max[at], batch.max[i]) : batch.max[i];
      this.bytes[at] += batch.mean[i] * batch.ns[i];
      this.ns[at] += batch.ns[i];
      this.sent[at] += batch.dequeued_bytes[i];
      if (batch.max[i] > this.peak[queue]) this.peak[queue] = batch.max[i];
      if (batch.max[i] > this.highest) this.highest = batch.max[i];
      if (batch.bin[i] >= this.end) this.end = batch.bin[i] + 1;
    }
    this.version++;
  }

  rates(batch) {
    for (let i = 0; i < batch.flow.length; i++) {
      if (!this.flows.has(batch.flow[i])) this.flows.set(batch.flow[i], new Float64Array(COLUMNS).fill(NaN));
      if (batch.bin[i] < COLUMNS) this.flows.get(batch.flow[i])[batch.bin[i]] = batch.bps[i];
    }
    this.version++;
  }

  mean(queue, column) {
    const at = queue * COLUMNS + column;
    return this.ns[at] ? this.bytes[at] / this.ns[at] : NaN;
  }

  // The queue's curve: times in ms, and the minimum, mean and maximum bytes.
  curve(queue) {
    const times = [], low = [], mean = [], peak = [], ms = this.cell.bin_ns / 1e6;
    for (let column = 0; column < Math.max(this.end, 1); column++) {
      const at = queue * COLUMNS + column, known = this.ns[at] > 0;
      times.push(column * ms);
      low.push(known ? this.min[at] : null);
      mean.push(known ? this.bytes[at] / this.ns[at] : null);
      peak.push(known ? this.max[at] : null);
    }
    return [times, low, mean, peak];
  }

  // Bits per second that left a queue, over the last columns.
  pace(queue, columns = 8) {
    let sent = 0, ns = 0;
    for (let column = Math.max(0, this.end - columns); column < this.end; column++) {
      const at = queue * COLUMNS + column;
      sent += this.sent[at];
      ns += this.ns[at];
    }
    return ns ? sent * 8e9 / ns : 0;
  }
}
