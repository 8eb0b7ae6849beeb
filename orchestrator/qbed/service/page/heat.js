// SPDX-License-Identifier: Apache-2.0
// All queues over the lab's time, on a canvas: a row a queue, brighter as it fills. Only what changed is drawn again.

import {COLUMNS} from '/page/series.js';

// Dark blue to yellow, even to the eye and in grey (cividis, five stops).
const STOPS = [[0, 34, 78], [67, 78, 108], [124, 123, 120], [187, 175, 113], [254, 232, 56]];
const RAMP = Array.from({length: 256}, (_, i) => {
  const at = i / 255 * (STOPS.length - 1), k = Math.min(Math.floor(at), STOPS.length - 2), f = at - k;
  return STOPS[k].map((value, c) => Math.round(value + f * (STOPS[k + 1][c] - value)));
});

export class Heat {
  constructor(canvas, under, chosen) {
    this.canvas = canvas;
    this.under = under;
    this.chosen = chosen;               // called with a queue that is to be drawn as a curve, or not any more
    this.picture = document.createElement('canvas');
    this.view = [0, 1];                 // which part of the time is seen
    this.row = 0;
    this.series = null;
    this.drawn = -1;
    this.follows = true;
    this.listen();
  }

  show(series) {
    this.series = series;
    this.row = Math.min(this.row, series.cell.queues.length - 1);
    this.picture.width = COLUMNS;
    this.picture.height = series.cell.queues.length;
    this.pixels = new ImageData(COLUMNS, series.cell.queues.length);
    this.drawn = -1;
  }

  zoom(factor, around = 0.5) {
    const [from, to] = this.view, at = from + (to - from) * around;
    const width = Math.min(1, Math.max(0.01, (to - from) * factor));
    this.move(Math.min(1 - width, Math.max(0, at - width * around)), width);
  }

  pan(share) {
    const width = this.view[1] - this.view[0];
    this.move(Math.min(1 - width, Math.max(0, this.view[0] + share * width)), width);
  }

  move(from, width) {
    this.view = [from, from + width];
    this.drawn = -1;
  }

  showAll() { this.move(0, 1); }

  // Draws what has come since the last time; cheap when nothing has.
  draw() {
    const {series, canvas} = this;
    if (!series || this.drawn === series.version) return;
    this.drawn = series.version;
    const data = this.pixels.data, queues = series.cell.queues.length, scale = 255 / Math.sqrt(series.highest);
    for (let queue = 0; queue < queues; queue++) {
      for (let column = 0; column < series.end; column++) {
        const at = queue * COLUMNS + column, mean = series.ns[at] ? series.bytes[at] / series.ns[at] : NaN;
        const [red, green, blue] = RAMP[Math.min(255, Math.round(Math.sqrt(mean || 0) * scale))];
        data[4 * at] = red; data[4 * at + 1] = green; data[4 * at + 2] = blue;
        data[4 * at + 3] = Number.isNaN(mean) ? 0 : 255;
      }
    }
    this.picture.getContext('2d').putImageData(this.pixels, 0, 0);
    const width = Math.round(canvas.clientWidth * devicePixelRatio), height = Math.round(canvas.clientHeight * devicePixelRatio);
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    const context = canvas.getContext('2d'), used = Math.ceil(series.cell.duration_ns / series.cell.bin_ns);
    context.imageSmoothingEnabled = false;
    context.clearRect(0, 0, width, height);
    context.drawImage(this.picture, this.view[0] * used, 0, (this.view[1] - this.view[0]) * used, queues, 0, 0, width, height);
    context.strokeStyle = '#e69f00';
    context.lineWidth = 2 * devicePixelRatio;
    context.strokeRect(1, this.row * height / queues, width - 2, height / queues);
    this.describe();
  }

  describe(share = null) {
    const {series} = this;
    if (!series) return;
    const name = series.cell.queues[this.row], ms = series.cell.bin_ns / 1e6;
    const column = share === null ? series.end - 1
      : Math.floor((this.view[0] + share * (this.view[1] - this.view[0])) * series.cell.duration_ns / series.cell.bin_ns);
    const mean = column >= 0 && column < COLUMNS ? series.mean(this.row, column) : NaN;
    const now = Number.isNaN(mean) ? 'nothing yet' : `${Math.round(mean).toLocaleString('en')} bytes`;
    this.under.textContent = `${name} at ${(Math.max(0, column) * ms).toFixed(3)} ms of the lab: ${now}; `
      + `at peak ${series.peak[this.row].toLocaleString('en')}`;
  }

  listen() {
    const {canvas} = this;
    const place = event => {
      const box = canvas.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    let held = null;
    canvas.addEventListener('wheel', event => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, place(event)[0]);
    }, {passive: false});
    canvas.addEventListener('pointerdown', event => { held = place(event); canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener('pointermove', event => {
      if (!this.series) return;
      const at = place(event);
      if (held && Math.abs(at[0] - held[0]) > 0.002) { this.pan(held[0] - at[0]); held = [at[0], NaN]; }
      this.choose(Math.floor(at[1] * this.series.cell.queues.length));
      this.describe(at[0]);
    });
    canvas.addEventListener('pointerup', event => {
      if (held && !Number.isNaN(held[1])) this.chosen(this.row);
      held = null;
    });
    canvas.addEventListener('pointercancel', () => { held = null; });
    canvas.addEventListener('keydown', event => this.key(event));
  }

  choose(row) {
    this.row = Math.min(this.series.cell.queues.length - 1, Math.max(0, row));
    this.drawn = -1;
  }

  key(event) {
    if (!this.series) return;
    const does = {
      ArrowUp: () => this.choose(this.row - 1), ArrowDown: () => this.choose(this.row + 1),
      ArrowLeft: () => this.pan(-0.1), ArrowRight: () => this.pan(0.1),
      '+': () => this.zoom(0.8), '=': () => this.zoom(0.8), '-': () => this.zoom(1.25), Home: () => this.showAll(),
      Enter: () => this.chosen(this.row), ' ': () => document.getElementById('pause').click(),
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  }
}
