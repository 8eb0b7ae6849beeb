// SPDX-License-Identifier: Apache-2.0
// Finer columns of the part of an ended cell that is shown, once the view has come to rest.

import {follow} from './api.js';
import {Series} from './series.js';

/** @import {Timeline} from './timeline.js' */
/** @typedef {{replace(series: Series): void}} Chart */

const ZOOMED = 0.5, MARGIN = 0.25, COARSE = 4;

/** The window whose columns suit a view, or null if those of the whole cell do. @param {number} from @param {number} to
 * @param {number} duration @returns {[number, number] | null} */
export function windowOf(from, to, duration) {
  const width = to - from;
  if (width > ZOOMED * duration) return null;
  return [Math.max(0, Math.floor(from - MARGIN * width)), Math.min(duration, Math.ceil(to + MARGIN * width))];
}

export class Detail {
  /** @param {Timeline} timeline @param {Chart[]} charts */
  constructor(timeline, charts) {
    this.timeline = timeline;
    this.charts = charts;
    /** @type {Series | null} */
    this.whole = null;
    /** @type {[number, number] | null} */
    this.window = null;
    this.request = new AbortController();
    this.seen = -1;
  }

  /** Whether the window's columns suit the view. */
  get suits() {
    const {window, timeline: {from, to}} = this;
    return window !== null && window[0] <= from && window[1] >= to && window[1] - window[0] <= COARSE * (to - from);
  }

  /** Called some times a second. @param {Series | null} whole the shown cell @param {string} path of its samples */
  update(whole, path) {
    const {timeline} = this, moved = this.seen !== timeline.version;
    this.seen = timeline.version;
    if (whole !== this.whole) this.reset(whole);
    if (!whole?.ended || !(whole.rows.size || whole.flows.size) || this.suits) return;
    const window = windowOf(timeline.from, timeline.to, timeline.duration);
    if (window === null || moved) {
      if (this.window) this.reset(whole);
    } else this.read(whole, path, window);
  }

  /** Shows the columns of the whole cell again. @param {Series | null} whole */
  reset(whole) {
    this.request.abort();
    this.whole = whole;
    this.window = null;
    if (whole) for (const chart of this.charts) chart.replace(whole);
  }

  /** @param {Series} whole @param {string} path @param {[number, number]} window */
  read(whole, path, window) {
    this.reset(whole);
    this.window = window;
    const {signal} = this.request = new AbortController();
    /** @type {Series | null} */
    let series = null;
    follow(`${path}?from_ns=${window[0]}&until_ns=${window[1]}`, signal, (event, data) => {
      if (signal.aborted) return;
      if (event === 'cell') series = new Series(data);
      if (event === 'queues') series?.queues(data);
      if (event === 'flows') series?.rates(data);
      if (event !== 'cell-end' || !series) return;
      series.ended = true;
      series.highest = whole.highest;  // the same colours
      for (const chart of this.charts) chart.replace(series);
    }).catch(error => console.warn(error));
  }
}
