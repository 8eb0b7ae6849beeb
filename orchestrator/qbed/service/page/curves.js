// SPDX-License-Identifier: Apache-2.0
// Curves by uPlot: of the chosen queues, and of the flows' rates.

import uPlot from '/page/uPlot.js';

const COLOURS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#6f4e9c', '#8c6d31'];
const MAX_CURVES = 8, MAX_FLOWS = 24;

function ink() { return getComputedStyle(document.body).color; }

function axes(unit) {
  const line = getComputedStyle(document.documentElement).getPropertyValue('--line');
  const look = {stroke: ink, grid: {stroke: line, width: 1}, ticks: {stroke: line, width: 1}};
  return [{...look, label: 'time in the lab (ms)'}, {...look, label: unit, size: 80}];
}

function plot(place, unit, series, bands = []) {
  const options = {
    width: Math.max(300, place.clientWidth), height: 240, axes: axes(unit), series: [{label: 'ms'}, ...series], bands,
    scales: {x: {time: false}}, cursor: {drag: {x: true, y: false}}, legend: {live: true},
  };
  return new uPlot(options, series.length ? [[0], ...series.map(() => [null])] : [[0]], place);
}

export class Curves {
  constructor(place) {
    this.place = place;
    this.chosen = [];
    this.plots = new Map();
  }

  show(series) {
    this.series = series;
    this.clear();
    this.chosen = this.chosen.filter(queue => queue < series.cell.queues.length);
    this.drawn = -1;
  }

  clear() {
    for (const {plot} of this.plots.values()) plot.destroy();
    this.plots.clear();
    this.place.replaceChildren();
  }

  toggle(queue) {
    if (this.chosen.includes(queue)) {
      this.chosen = this.chosen.filter(entry => entry !== queue);
      this.plots.get(queue)?.plot.destroy();
      this.plots.get(queue)?.place.remove();
      this.plots.delete(queue);
    } else {
      this.chosen = [...this.chosen, queue].slice(-MAX_CURVES);
    }
    this.drawn = -1;
  }

  // The fullest queue, unless the user has chosen one.
  usual() {
    if (this.chosen.length || !this.series) return;
    const peak = this.series.peak, fullest = peak.indexOf(Math.max(...peak));
    if (peak[fullest] > 0) this.toggle(fullest);
  }

  draw() {
    if (!this.series || this.drawn === this.series.version) return;
    this.drawn = this.series.version;
    this.usual();
    for (const [queue, entry] of [...this.plots]) {
      if (!this.chosen.includes(queue)) { entry.plot.destroy(); entry.place.remove(); this.plots.delete(queue); }
    }
    this.chosen.forEach((queue, at) => {
      if (!this.plots.has(queue)) {
        const place = this.place.appendChild(document.createElement('div'));
        place.dataset.queue = this.series.cell.queues[queue];
        const colour = COLOURS[at % COLOURS.length];
        const made = plot(place, `${this.series.cell.queues[queue]} (bytes)`, [
          {label: 'min', stroke: 'transparent'}, {label: 'mean', stroke: colour, width: 2}, {label: 'max', stroke: colour, width: 0.5},
        ], [{series: [3, 1], fill: `${colour}33`}]);
        this.plots.set(queue, {place, plot: made});
      }
      this.plots.get(queue).plot.setData(this.series.curve(queue));
    });
  }
}

export class Flows {
  constructor(place) { this.place = place; }

  show(series) {
    this.series = series;
    this.plot?.destroy();
    this.plot = null;
    this.place.textContent = 'No rate of a flow was received yet (observe.flows).';
    this.count = 0;
    this.drawn = -1;
  }

  draw() {
    const {series} = this;
    if (!series || !series.flows.size || this.drawn === series.version) return;
    this.drawn = series.version;
    const flows = [...series.flows].slice(0, MAX_FLOWS);
    if (flows.length !== this.count) {
      this.plot?.destroy();
      this.place.replaceChildren();
      this.count = flows.length;
      this.plot = plot(this.place, 'Mbit/s', flows.map(([flow], at) => (
        {label: `flow ${flow}`, stroke: COLOURS[at % COLOURS.length], width: 1.5, spanGaps: true})));
    }
    const times = [], ms = series.cell.bin_ns / 1e6;
    for (let column = 0; column < Math.max(1, series.end); column++) times.push(column * ms);
    const values = flows.map(([, rates]) => times.map((_, column) => Number.isNaN(rates[column]) ? null : rates[column] / 1e6));
    this.plot.setData([times, ...values]);
  }
}
