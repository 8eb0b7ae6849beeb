// SPDX-License-Identifier: Apache-2.0
// What the queues of one cell did: a row a queue, a column a piece of the lab's time. The heat map and the curves read it.

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
    this.packets = new Float64Array(size); // that left
    this.most = new Float64Array(cell.queues.length);
    this.highest = 1;
    this.end = 0;                          // columns that have come
    this.flows = new Map();
    this.version = 0;
  }

  // Columns may come in two pieces: they are put together.
  queues(said) {
    for (let i = 0; i < said.queue.length; i++) {
      if (said.bin[i] >= COLUMNS) continue;
      const queue = said.queue[i], at = queue * COLUMNS + said.bin[i];
      this.min[at] = this.ns[at] ? Math.min(this.min[at], said.min[i]) : said.min[i];
      this.max[at] = this.ns[at] ? Math.max(this.max[at], said.max[i]) : said.max[i];
      this.bytes[at] += said.mean[i] * said.ns[i];
      this.ns[at] += said.ns[i];
      this.sent[at] += said.dequeued_bytes[i];
      this.packets[at] += said.dequeued[i];
      if (said.max[i] > this.most[queue]) this.most[queue] = said.max[i];
      if (said.max[i] > this.highest) this.highest = said.max[i];
      if (said.bin[i] >= this.end) this.end = said.bin[i] + 1;
    }
    this.version++;
  }

  rates(said) {
    for (let i = 0; i < said.flow.length; i++) {
      if (!this.flows.has(said.flow[i])) this.flows.set(said.flow[i], new Float64Array(COLUMNS).fill(NaN));
      if (said.bin[i] < COLUMNS) this.flows.get(said.flow[i])[said.bin[i]] = said.bps[i];
    }
    this.version++;
  }

  mean(queue, column) {
    const at = queue * COLUMNS + column;
    return this.ns[at] ? this.bytes[at] / this.ns[at] : NaN;
  }

  // The queue's curve: times in ms, and the least, mean and most bytes.
  curve(queue) {
    const times = [], least = [], mean = [], most = [], ms = this.cell.bin_ns / 1e6;
    for (let column = 0; column < Math.max(this.end, 1); column++) {
      const at = queue * COLUMNS + column, known = this.ns[at] > 0;
      times.push(column * ms);
      least.push(known ? this.min[at] : null);
      mean.push(known ? this.bytes[at] / this.ns[at] : null);
      most.push(known ? this.max[at] : null);
    }
    return [times, least, mean, most];
  }

  // Bits a second that left a queue, over the last columns; each packet costs so many bytes more on the wire.
  pace(queue, overhead, columns = 8) {
    let sent = 0, ns = 0;
    for (let column = Math.max(0, this.end - columns); column < this.end; column++) {
      const at = queue * COLUMNS + column;
      sent += this.sent[at] + overhead * this.packets[at];
      ns += this.ns[at];
    }
    return ns ? sent * 8e9 / ns : 0;
  }
}
