// SPDX-License-Identifier: Apache-2.0
// The queues with a series over the lab's time, on a canvas: a row for each queue, brighter as it fills.

import {RAMP, depthLevel, style, surface} from './colours.js';
import {COLUMNS} from './series.js';
import {size, ticks, time} from './timeline.js';

/** @import {Series} from './series.js' */
/** @import {Timeline} from './timeline.js' */

const LABEL_ROWS = 11, AXIS = 22;

export class Heat {
  /** @param {HTMLCanvasElement} canvas @param {HTMLElement} under @param {Timeline} timeline
   *  @param {(queue: number) => void} chosen called with a queue whose curve is to be shown or hidden */
  constructor(canvas, under, timeline, chosen) {
    this.canvas = canvas;
    this.under = under;
    this.timeline = timeline;
    this.chosen = chosen;
    this.picture = document.createElement('canvas');
    this.picture.width = COLUMNS;
    this.row = 0;
    this.automatic = true;  // the fullest queue is selected until the user selects one
    /** @type {number[]} */
    this.queues = [];
    /** @type {Series | null} */
    this.series = null;
    this.drawn = '';
    this.left = 0;
    this.listen();
  }

  /** @param {Series | null} series */
  show(series) {
    this.series = series;
    this.queues = [];
    this.drawn = '';
    this.canvas.hidden = true;
    this.under.textContent = '';
  }

  /** Show the same cell by other columns. @param {Series} series */
  replace(series) { this.series = series; }

  /** Draws what has changed since the last time; cheap if nothing has. */
  draw() {
    const {series, canvas, timeline} = this;
    const state = `${series?.state} ${timeline.version} ${this.row} ${canvas.clientWidth}`;
    if (!series || this.drawn === state) return;
    this.drawn = state;
    this.queues = series.shown();
    canvas.hidden = !this.queues.length;
    if (canvas.hidden) return;
    if (this.automatic) this.row = this.queues.indexOf(series.shown(1)[0]);
    this.row = Math.max(0, Math.min(this.row, this.queues.length - 1));
    this.paint(series);
    const {context, width, height} = surface(canvas), rows = this.queues.length, bottom = height - AXIS, high = bottom / rows;
    context.fillStyle = style('--ink');
    const names = this.queues.map(queue => series.cell.queues[queue]);
    const labelled = high >= LABEL_ROWS && width > 500;
    this.left = labelled ? Math.min(160, 10 + Math.max(...names.map(name => context.measureText(name).width))) : 0;
    const scale = 1 / series.cell.bin_ns, wide = width - this.left;
    context.imageSmoothingEnabled = false;
    context.drawImage(
      this.picture, (timeline.from - series.cell.from_ns) * scale, 0, (timeline.to - timeline.from) * scale, rows, this.left, 0, wide, bottom,
    );
    context.textBaseline = 'middle';
    if (labelled) names.forEach((name, row) => context.fillText(name, 0, (row + 0.5) * high, this.left - 6));
    drawAxis(context, timeline, this.left, width, bottom);
    context.strokeStyle = '#e69f00';
    context.lineWidth = 2;
    context.strokeRect(this.left + 1, this.row * high, wide - 2, high);
    drawCursor(context, timeline, this.left, width, bottom);
    this.describe();
  }

  /** Paints a pixel for each queue and column. @param {Series} series */
  paint(series) {
    const rows = this.queues.length, pixels = new ImageData(COLUMNS, rows), data = pixels.data;
    this.queues.forEach((queue, at) => {
      const row = series.rows.get(queue);
      for (let column = 0; row && column < series.end; column++) {
        if (!row.ns[column]) continue;
        const [red, green, blue] = RAMP[depthLevel(row.bytes[column] / row.ns[column], series.highest)];
        const place = 4 * (at * COLUMNS + column);
        data[place] = red; data[place + 1] = green; data[place + 2] = blue; data[place + 3] = 255;
      }
    });
    if (this.picture.height !== rows) this.picture.height = rows;
    /** @type {CanvasRenderingContext2D} */ (this.picture.getContext('2d')).putImageData(pixels, 0, 0);
  }

  describe() {
    const {series, timeline} = this, queue = this.queues[this.row];
    if (!series || queue === undefined) return;
    const column = series.column(timeline.cursor), row = series.rows.get(queue), mean = series.mean(queue, column);
    const now = Number.isNaN(mean) ? 'unknown' : size(mean);
    const lost = row ? `, ${row.dropped[column]} drops, ${row.marked[column]} marks in ${time(series.cell.bin_ns)}` : '';
    this.under.textContent = `${series.cell.queues[queue]} at ${time(timeline.cursor ?? series.time(column))}: `
      + `${now}${lost}; peak ${size(row?.peak ?? 0)}`;
  }

  listen() {
    const {canvas, timeline} = this;
    const place = (/** @type {MouseEvent} */ event) => {
      const box = canvas.getBoundingClientRect();
      const across = (event.clientX - box.left - this.left) / Math.max(1, box.width - this.left);
      return [Math.min(1, Math.max(0, across)), (event.clientY - box.top) / Math.max(1, box.height - AXIS)];
    };
    /** @type {number | null} */
    let held = null;
    let moved = false;
    canvas.addEventListener('wheel', event => {
      event.preventDefault();
      timeline.zoom(event.deltaY > 0 ? 1.25 : 0.8, place(event)[0]);
    }, {passive: false});
    canvas.addEventListener('pointerdown', event => {
      [held] = place(event);
      moved = false;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', event => {
      if (!this.series) return;
      const [across, down] = place(event);
      if (held !== null && Math.abs(across - held) > 0.002) {
        timeline.pan(held - across);
        held = across;
        moved = true;
      }
      this.select(Math.floor(down * this.queues.length));
      timeline.point(timeline.at(across));
    });
    canvas.addEventListener('pointerup', () => {
      if (held !== null && !moved && this.queues.length) this.chosen(this.queues[this.row]);
      held = null;
    });
    canvas.addEventListener('pointercancel', () => { held = null; });
    canvas.addEventListener('keydown', event => this.key(event));
  }

  /** @param {number} row */
  select(row) {
    this.automatic = false;
    this.row = Math.min(this.queues.length - 1, Math.max(0, row));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const {timeline, series} = this;
    if (!series || event.ctrlKey || event.altKey || event.metaKey) return;
    const step = () => Math.max(series.cell.bin_ns, (timeline.to - timeline.from) / 50);
    const cursor = () => timeline.cursor ?? series.time(series.column(null));
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowUp: () => this.select(this.row - 1), ArrowDown: () => this.select(this.row + 1),
      ArrowLeft: () => (event.shiftKey ? timeline.pan(-0.1) : timeline.point(cursor() - step())),
      ArrowRight: () => (event.shiftKey ? timeline.pan(0.1) : timeline.point(cursor() + step())),
      '+': () => timeline.zoom(0.8), '=': () => timeline.zoom(0.8), '-': () => timeline.zoom(1.25),
      Home: () => timeline.showAll(), Enter: () => this.chosen(this.queues[this.row]),
      ' ': () => document.getElementById('pause')?.click(),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }
}

/** An axis of the lab's time with round instants. @param {CanvasRenderingContext2D} context @param {Timeline} timeline
 *  @param {number} left @param {number} right @param {number} top */
export function drawAxis(context, timeline, left, right, top) {
  context.fillStyle = style('--faint');
  context.strokeStyle = style('--line');
  context.lineWidth = 1;
  context.textBaseline = 'top';
  for (const tick of ticks(timeline.from, timeline.to, Math.max(2, (right - left) / 110))) {
    const x = left + timeline.share(tick) * (right - left), text = time(tick);
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + 4);
    context.stroke();
    const wide = context.measureText(text).width;
    context.fillText(text, Math.min(right - wide, Math.max(left, x - wide / 2)), top + 6);
  }
}

/** @param {CanvasRenderingContext2D} context @param {Timeline} timeline @param {number} left @param {number} right @param {number} bottom */
export function drawCursor(context, timeline, left, right, bottom) {
  const at = timeline.cursor === null ? -1 : timeline.share(timeline.cursor);
  if (at < 0 || at > 1) return;
  const x = left + at * (right - left);
  for (const [colour, width] of /** @type {[string, number][]} */ ([[style('--card'), 3], [style('--ink'), 1]])) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, bottom);
    context.stroke();
  }
}
