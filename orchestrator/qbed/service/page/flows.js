// SPDX-License-Identifier: Apache-2.0
// Flows by their totals: a bar from start to end for each, and a sentence about all of them.

import {style, surface} from './colours.js';
import {drawAxis, drawCursor} from './heat.js';
import {rate, time} from './timeline.js';

/** @import {Series} from './series.js' */
/** @import {Timeline} from './timeline.js' */
/** @import {FlowTotals} from './types.d.ts' */

const AXIS = 22, MAX_BARS = 400;

/** The value below which a share of the numbers is. @param {number[]} values @param {number} share */
export function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] : NaN;
}

/** A sentence about the flows of a cell. @param {FlowTotals} flows @param {number} count */
export function summary(flows, count) {
  if (!count) return 'This cell has no flows.';
  const times = flows.fct_ns.filter(value => value !== null), goodputs = flows.goodput_bps.filter(value => value !== null);
  const unlimited = flows.status.filter((status, at) => status === 'running' && flows.size_bytes[at] === null).length;
  const complete = flows.status.filter(status => status === 'complete').length, listed = flows.flow.length;
  const counts = unlimited < listed || !unlimited ? [`${complete} complete`] : [];
  if (unlimited) counts.push(`${unlimited} ran to the end (no size limit)`);
  const parts = [`${count} flows, ${counts.join(', ')}`];
  if (count > flows.flow.length) parts[0] += ` of the first ${flows.flow.length}`;
  if (times.length) parts.push(`completion time ${time(quantile(times, 0.5), 3)} (median), ${time(quantile(times, 0.99), 3)} (99th percentile)`);
  if (goodputs.length) parts.push(`goodput ${rate(quantile(goodputs, 0.5))} (median)`);
  const timeouts = flows.timeouts.reduce((/** @type {number} */ sum, value) => sum + (value ?? 0), 0);
  return `${parts.join('; ')}; timeouts: ${timeouts}.`;
}

export class Bars {
  /** @param {HTMLCanvasElement} canvas @param {HTMLElement} text @param {Timeline} timeline */
  constructor(canvas, text, timeline) {
    this.canvas = canvas;
    this.text = text;
    this.timeline = timeline;
    /** @type {Series | null} */
    this.series = null;
    this.drawn = '';
    canvas.addEventListener('pointermove', event => {
      const box = canvas.getBoundingClientRect();
      if (this.series) timeline.point(timeline.at((event.clientX - box.left) / box.width));
    });
  }

  /** @param {Series | null} series */
  show(series) {
    this.series = series;
    this.drawn = '';
    this.text.textContent = '';
    this.canvas.hidden = true;
  }

  draw() {
    const {series, timeline, canvas} = this;
    const state = `${series?.state} ${timeline.version} ${canvas.clientWidth}`;
    if (!series || this.drawn === state) return;
    this.drawn = state;
    const totals = series.totals;
    this.text.textContent = totals ? summary(totals.flows, totals.flow_count) : '';
    canvas.hidden = !totals?.flow_count || series.flows.size > 0;
    if (!totals || canvas.hidden) return;
    const {context, width, height} = surface(canvas), bottom = height - AXIS, {flows} = totals;
    const order = flows.flow.map((_, at) => at).sort((a, b) => flows.start_ns[a] - flows.start_ns[b]).slice(0, MAX_BARS);
    const high = bottom / order.length;
    order.forEach((at, row) => {
      const from = timeline.share(flows.start_ns[at]) * width, end = flows.end_ns[at] ?? series.cell.duration_ns;
      const complete = flows.status[at] === 'complete';
      context.fillStyle = (flows.timeouts[at] ?? 0) > 0 ? '#d55e00' : complete ? '#0072b2' : style('--faint');
      context.fillRect(from, row * high, Math.max(1, timeline.share(end) * width - from), Math.max(0.5, high * 0.8));
    });
    context.clearRect(0, bottom, width, AXIS);
    drawAxis(context, timeline, 0, width, bottom);
    drawCursor(context, timeline, 0, width, bottom);
  }
}
