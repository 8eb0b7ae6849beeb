// SPDX-License-Identifier: Apache-2.0
// Curves by uPlot, with the view and the cursor of the timeline: of the chosen queues, and of the flows' rates.

import uPlot from './uPlot.js';
import {CURVES, style} from './colours.js';

/** @import {Series} from './series.js' */
/** @import {Timeline} from './timeline.js' */

const MAX_CURVES = 8, MAX_FLOWS = 24, HEIGHT = 220;

/** A chart over the lab's time. */
class Chart {
  /** @param {HTMLElement} place @param {Timeline} timeline @param {string} unit @param {uPlot.Series[]} series @param {uPlot.Band[]} bands */
  constructor(place, timeline, unit, series, bands = []) {
    this.timeline = timeline;
    this.place = place;
    this.drawn = '';
    this.setting = false;
    const ink = () => style('--ink'), line = () => style('--line');
    const look = {stroke: ink, grid: {stroke: line, width: 1}, ticks: {stroke: line, width: 1}};
    this.plot = new uPlot({
      width: this.width(), height: HEIGHT, bands,
      axes: [{...look, label: 'time in the lab (ms)'}, {...look, label: unit, size: 76}],
      series: [{label: 'time (ms)'}, ...series],
      scales: {x: {time: false}, y: {range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.05 : 1]}},
      cursor: {y: false, drag: {x: true, y: false}, points: {show: false}},
      hooks: {
        setCursor: [plot => {
          const left = plot.cursor.left ?? -1;
          if (!this.setting && left >= 0) timeline.point(plot.posToVal(left, 'x') * 1e6);
        }],
        setScale: [(plot, name) => {
          const {min, max} = plot.scales[name];
          if (!this.setting && name === 'x' && min != null && max != null) timeline.view(min * 1e6, max * 1e6);
        }],
      },
    }, /** @type {uPlot.AlignedData} */ ([[0], ...series.map(() => [null])]), place);
    this.plot.over.addEventListener('dblclick', () => timeline.showAll());
  }

  width() { return Math.max(240, this.place.clientWidth); }

  /** @param {string} version @param {() => unknown[][]} data */
  draw(version, data) {
    const {plot, timeline} = this;
    this.setting = true;  // what follows is not the user's
    if (plot.width !== this.width()) plot.setSize({width: this.width(), height: HEIGHT});
    if (this.drawn !== version) plot.setData(/** @type {uPlot.AlignedData} */ (data()), false);
    this.drawn = version;
    plot.setScale('x', {min: timeline.from / 1e6, max: timeline.to / 1e6});
    const left = timeline.cursor === null ? -10 : plot.valToPos(timeline.cursor / 1e6, 'x');
    plot.setCursor({left, top: HEIGHT / 3}, false);
    queueMicrotask(() => { this.setting = false; });  // uPlot's hooks run at the end of this task
  }

  remove() { this.plot.destroy(); }
}

export class Curves {
  /** @param {HTMLElement} place @param {Timeline} timeline @param {() => void} changed called when a queue is chosen or not any more */
  constructor(place, timeline, changed) {
    this.place = place;
    this.timeline = timeline;
    this.changed = changed;
    /** @type {number[]} */
    this.chosen = [];
    /** @type {Map<number, {place: HTMLElement, chart: Chart}>} */
    this.charts = new Map();
    /** @type {Series | null} */
    this.series = null;
    /** @type {Series | null} */
    this.other = null;  // another cell to compare with
    this.drawn = '';
    this.automatic = true;
  }

  /** @param {Series | null} series */
  show(series) {
    this.series = series;
    this.clear();
    if (series) this.chosen = this.chosen.filter(queue => queue < series.cell.queues.length);
    this.drawn = '';
  }

  /** Show the same cell by other columns. @param {Series} series */
  replace(series) { this.series = series; }

  /** @param {Series | null} other */
  compare(other) {
    this.other = other;
    this.clear();
    this.drawn = '';
  }

  clear() {
    for (const {chart} of this.charts.values()) chart.remove();
    this.charts.clear();
    this.place.replaceChildren();
  }

  /** @param {number} queue */
  toggle(queue) {
    this.automatic = false;
    this.set(this.chosen.includes(queue) ? this.chosen.filter(entry => entry !== queue) : [...this.chosen, queue]);
  }

  /** @param {number[]} queues */
  set(queues) {
    this.chosen = queues.slice(-MAX_CURVES);
    this.drawn = '';
    this.changed();
  }

  /** The fullest queue, unless the user has chosen one. @param {Series} series */
  chooseFullest(series) {
    if (!this.automatic || this.chosen.length) return;
    const [fullest] = series.shown(1);
    if (fullest !== undefined && (series.rows.get(fullest)?.peak ?? 0) > 0) this.set([fullest]);
  }

  draw() {
    const {series, other, timeline} = this;
    const state = `${series?.state} ${other?.state} ${timeline.version} ${this.place.clientWidth}`;
    if (!series || this.drawn === state) return;
    this.chooseFullest(series);
    this.drawn = state;
    for (const [queue, {chart, place}] of [...this.charts]) {
      if (!this.chosen.includes(queue)) { chart.remove(); place.remove(); this.charts.delete(queue); }
    }
    this.chosen.forEach((queue, at) => {
      if (!this.charts.has(queue)) this.charts.set(queue, this.make(series, queue, CURVES[at % CURVES.length]));
      this.charts.get(queue)?.chart.draw(`${series.state} ${other?.state}`, () => this.data(series, queue));
    });
  }

  /** @param {Series} series @param {number} queue @param {string} colour */
  make(series, queue, colour) {
    const place = this.place.appendChild(document.createElement('figure')), name = series.cell.queues[queue];
    place.dataset.queue = name;
    place.setAttribute('aria-label', `Bytes in ${name} over the lab's time`);
    const cell = this.other ? ` (cell ${series.cell.cell})` : '';
    /** @type {uPlot.Series[]} */
    const lines = [
      {label: 'minimum', stroke: 'transparent'}, {label: `mean${cell}`, stroke: colour, width: 2},
      {label: 'maximum', stroke: colour, width: 0.5},
    ];
    if (this.other) lines.push({label: `mean (cell ${this.other.cell.cell})`, stroke: style('--ink'), width: 2, dash: [6, 4]});
    return {place, chart: new Chart(place, this.timeline, `${name} (bytes)`, lines, [{series: [3, 1], fill: `${colour}33`}])};
  }

  /** @param {Series} series @param {number} queue */
  data(series, queue) {
    const data = series.curve(queue);
    if (!this.other) return data;
    const {other} = this, same = other.cell.queues.indexOf(series.cell.queues[queue]);
    return [...data, (data[0]).map(ms => {
      const mean = same < 0 ? NaN : other.mean(same, other.column((ms ?? 0) * 1e6 + series.cell.bin_ns / 2));
      return Number.isNaN(mean) ? null : mean;
    })];
  }
}

export class Rates {
  /** @param {HTMLElement} place @param {Timeline} timeline */
  constructor(place, timeline) {
    this.place = place;
    this.timeline = timeline;
    /** @type {Chart | null} */
    this.chart = null;
    /** @type {Series | null} */
    this.series = null;
    this.count = 0;
    this.drawn = '';
  }

  /** @param {Series | null} series */
  show(series) {
    this.series = series;
    this.chart?.remove();
    this.chart = null;
    this.count = 0;
    this.drawn = '';
  }

  /** Show the same cell by other columns. @param {Series} series */
  replace(series) { this.series = series; }

  draw() {
    const {series, timeline} = this;
    const state = `${series?.state} ${timeline.version} ${this.place.clientWidth}`;
    if (!series || this.drawn === state) return;
    this.place.hidden = !series.flows.size;
    if (this.place.hidden) return;
    this.drawn = state;
    const flows = [...series.flows].slice(0, MAX_FLOWS);
    if (flows.length !== this.count) {
      this.chart?.remove();
      this.count = flows.length;
      this.chart = new Chart(this.place, timeline, 'Mbit/s', flows.map(([flow], at) => (
        {label: `flow ${flow}`, stroke: CURVES[at % CURVES.length], width: 1.5, spanGaps: true})));
    }
    this.chart?.draw(series.state, () => {
      const times = Array.from({length: Math.max(1, series.end)}, (_, column) => series.time(column) / 1e6);
      return [times, ...flows.map(([, rates]) => times.map((_, at) => (Number.isNaN(rates[at]) ? null : rates[at] / 1e6)))];
    });
  }
}
