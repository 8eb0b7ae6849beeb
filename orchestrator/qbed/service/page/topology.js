// SPDX-License-Identifier: Apache-2.0
// The topology on a canvas: links by their use, nodes by their deepest queue, at the instant under the cursor.

import {USES, depthColour, style, surface, useClass} from './colours.js';
import {layOut} from './layout.js';
import {size, time} from './timeline.js';

/** @import {Series} from './series.js' */
/** @import {Timeline} from './timeline.js' */
/** @import {Layout, Mark, Edge} from './layout.js' */

const ROW = 56, LEAST = 150, MOST = 900, MARGIN = 24, FEW = 60, NEAR = 16;

export class Topology {
  /** @param {HTMLCanvasElement} canvas @param {HTMLElement} under @param {Timeline} timeline @param {(queue: number) => void} chosen */
  constructor(canvas, under, timeline, chosen) {
    this.canvas = canvas;
    this.under = under;
    this.timeline = timeline;
    this.chosen = chosen;
    /** @type {Series | null} */
    this.series = null;
    /** @type {Layout | null} */
    this.layout = null;
    /** @type {Set<number>} */
    this.opened = new Set();
    this.mark = -1;      // the mark under the pointer or the keyboard's focus
    this.laidOut = 0;    // increases with each layout
    this.drawn = '';
    this.names = '';
    this.listen();
  }

  /** @param {Series | null} series */
  show(series) {
    this.series = series;
    this.drawn = '';
    this.canvas.hidden = !series;
    if (!series) return;
    const names = series.cell.nodes.join() + series.cell.links.length;
    if (names === this.names) return;
    this.names = names;
    this.opened.clear();
    this.mark = -1;
    this.place();
  }

  place() {
    this.layout = this.series && layOut(this.series.cell, this.opened);
    this.laidOut++;
    if (this.layout) this.canvas.style.height = `${Math.min(MOST, Math.max(LEAST, this.layout.height * ROW + MARGIN))}px`;
  }

  /** A mark's place in CSS pixels. @param {Mark} mark @param {Layout} layout */
  at(mark, layout) {
    const {clientWidth, clientHeight} = this.canvas;
    return [
      MARGIN + mark.x / layout.width * (clientWidth - 2 * MARGIN),
      MARGIN + mark.y / Math.max(1, layout.height - 1) * (clientHeight - 2 * MARGIN),
    ];
  }

  /** An edge's use in its busier direction. @param {Edge} edge @param {Series} series @param {number | null} ns */
  use(edge, series, ns) {
    let most = NaN;
    for (const link of edge.links) {
      const {queues, rate_bps: rate} = series.cell.links[link];
      for (const queue of queues) {
        const {use} = series.load(queue, rate, ns);
        if (!(use <= most)) most = Number.isNaN(use) ? most : use;
      }
    }
    return most;
  }

  /** The deepest queue of each mark, and its bytes. @param {Series} series @param {Layout} layout @param {number | null} ns */
  depths(series, layout, ns) {
    const found = layout.marks.map(() => ({queue: -1, depth: NaN}));
    for (const {a, b, queues, rate_bps: rate} of series.cell.links) {
      [a, b].forEach((node, end) => {
        const entry = found[layout.markOf[node]], {depth} = series.load(queues[end], rate, ns);
        if (entry.queue < 0 || depth > entry.depth || (Number.isNaN(entry.depth) && !Number.isNaN(depth))) {
          entry.queue = queues[end];
          entry.depth = depth;
        }
      });
    }
    return found;
  }

  draw() {
    const {series, layout, timeline, canvas} = this;
    const state = `${series?.state} ${timeline.version} ${this.laidOut} ${this.mark} ${canvas.clientWidth}`;
    if (!series || !layout || this.drawn === state) return;
    this.drawn = state;
    const {context} = surface(canvas), ns = timeline.cursor;
    const places = layout.marks.map(mark => this.at(mark, layout)), depths = this.depths(series, layout, ns);
    const classes = layout.edges.map(edge => useClass(this.use(edge, series, ns)));
    USES.forEach((entry, index) => {  // busy links are above idle ones
      context.strokeStyle = entry.colour;
      context.lineWidth = entry.width;
      context.beginPath();
      layout.edges.forEach((edge, at) => {
        if (classes[at] !== index) return;
        context.moveTo(places[edge.a][0], places[edge.a][1]);
        context.lineTo(places[edge.b][0], places[edge.b][1]);
      });
      context.stroke();
    });
    const highest = series.brightest(ns);
    const room = (canvas.clientWidth - 2 * MARGIN) / layout.width, few = layout.marks.length <= FEW;
    if (few) this.drawQueues(context, series, layout, places, highest, ns);
    layout.marks.forEach((mark, at) => this.drawMark(context, mark, places[at], depths[at].depth, highest, room, at === this.mark));
    const when = ns !== null ? time(ns) : series.totals ? 'means over the cell' : 'now';
    const about = this.mark < 0 ? `${series.cell.nodes.length} nodes` : this.describe(series, layout, depths);
    this.under.textContent = `${about} (${when})`;
  }

  /** @param {CanvasRenderingContext2D} context @param {Mark} mark @param {number[]} place @param {number} depth
   *  @param {number} highest @param {number} room @param {boolean} focused */
  drawMark(context, mark, [x, y], depth, highest, room, focused) {
    const wide = mark.kind === 'host' ? Math.min(7, Math.max(1.5, room / 3)) : Math.min(9, Math.max(3, room / 3));
    context.fillStyle = depth > 0 ? depthColour(depth, highest) : style('--card');
    context.strokeStyle = focused ? '#e69f00' : style('--faint');
    context.lineWidth = focused ? 4 : 1.5;
    context.beginPath();
    if (mark.kind === 'host') context.arc(x, y, wide, 0, 2 * Math.PI);
    else if (mark.kind === 'switch') context.rect(x - wide, y - wide, 2 * wide, 2 * wide);
    else for (const shift of [4, 2, 0]) context.rect(x - wide + shift, y - wide / 2 - shift, 2 * wide, wide);
    context.fill();
    context.stroke();
    const text = mark.kind === 'rack' && room < 60 ? `${mark.nodes.length}` : mark.label, length = context.measureText(text).width;
    if (length > room * (mark.kind === 'host' ? 1.1 : 1.3) && !(focused && mark.kind !== 'host')) return;
    const [left, top] = mark.kind === 'switch' ? [Math.min(this.canvas.clientWidth - length, x + wide + 4), y - wide - 4]
      : [Math.max(0, x - length / 2), y + wide + 9];
    context.textBaseline = 'middle';
    context.strokeStyle = style('--card');  // a halo over the links
    context.lineWidth = 4;
    context.strokeText(text, left, top);
    context.fillStyle = style('--ink');
    context.fillText(text, left, top);
  }

  /** A dot for each queue, at its end of the link. @param {CanvasRenderingContext2D} context @param {Series} series @param {Layout} layout
   *  @param {number[][]} places @param {number} highest @param {number | null} ns */
  drawQueues(context, series, layout, places, highest, ns) {
    for (const {a, b, queues, rate_bps: rate} of series.cell.links) {
      for (const [from, to, queue] of [[a, b, queues[0]], [b, a, queues[1]]]) {
        const {depth} = series.load(queue, rate, ns), [x, y] = places[layout.markOf[from]], [x2, y2] = places[layout.markOf[to]];
        if (!(depth > 0)) continue;
        context.fillStyle = depthColour(depth, highest);
        context.strokeStyle = style('--ink');
        context.lineWidth = 1;
        context.beginPath();
        context.arc(x + (x2 - x) * 0.25, y + (y2 - y) * 0.25, 3 + 5 * Math.sqrt(depth / highest), 0, 2 * Math.PI);
        context.fill();
        context.stroke();
      }
    }
  }

  /** @param {Series} series @param {Layout} layout @param {{queue: number, depth: number}[]} depths */
  describe(series, layout, depths) {
    const mark = layout.marks[this.mark], ns = this.timeline.cursor, {queue, depth} = depths[this.mark];
    const edges = layout.edges.filter(edge => edge.a === this.mark || edge.b === this.mark);
    const most = Math.max(...edges.map(edge => this.use(edge, series, ns) || 0), 0);
    const name = mark.kind === 'rack' ? `${mark.label} of ${series.cell.nodes[mark.parent] ?? 'no switch'} (Enter opens)` : mark.label;
    const deepest = queue >= 0 && !Number.isNaN(depth) ? `; deepest queue ${series.cell.queues[queue]}, ${size(depth)}` : '';
    return `${name}: busiest link ${Math.round(100 * most)} %${deepest}`;
  }

  /** Opens or closes a rack, or shows the curve of the node's deepest queue. @param {number} at */
  activate(at) {
    const mark = this.layout?.marks[at];
    if (!mark || !this.series || !this.layout) return;
    const node = mark.kind === 'rack' ? mark.parent : mark.nodes[0];
    if (mark.kind === 'rack') this.opened.add(node);
    else if (this.opened.has(node)) this.opened.delete(node);
    else {
      const {queue} = this.depths(this.series, this.layout, this.timeline.cursor)[at];
      if (this.series.rows.has(queue)) this.chosen(queue);
      return;
    }
    this.place();
    this.mark = this.layout ? this.layout.marks.findIndex(entry => entry.nodes.includes(mark.nodes[0])) : -1;
  }

  listen() {
    const {canvas} = this;
    const nearest = (/** @type {MouseEvent} */ event) => {
      const box = canvas.getBoundingClientRect(), {layout} = this;
      let found = -1, least = NEAR;
      layout?.marks.forEach((mark, at) => {
        const [x, y] = this.at(mark, layout), distance = Math.hypot(event.clientX - box.left - x, event.clientY - box.top - y);
        if (distance < least) [found, least] = [at, distance];
      });
      return found;
    };
    canvas.addEventListener('pointermove', event => { this.mark = nearest(event); });
    canvas.addEventListener('click', event => this.activate(nearest(event)));
    canvas.addEventListener('keydown', event => {
      const steps = /** @type {Record<string, [number, number]>} */ ({
        ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
      });
      if (event.key === 'Enter') this.activate(this.mark);
      else if (steps[event.key]) this.move(...steps[event.key]);
      else return;
      event.preventDefault();
    });
    canvas.addEventListener('focus', () => { if (this.mark < 0) this.mark = 0; });
  }

  /** Moves the focus to the nearest mark in a direction. @param {number} right @param {number} down */
  move(right, down) {
    const marks = this.layout?.marks ?? [], from = marks[this.mark];
    let found = this.mark, least = Infinity;
    marks.forEach((mark, at) => {
      if (!from || at === this.mark) return;
      const x = mark.x - from.x, y = mark.y - from.y, ahead = right * x + down * y, aside = Math.abs(right ? y : x);
      if (ahead > 1e-9 && ahead + 8 * aside < least) [found, least] = [at, ahead + 8 * aside];
    });
    this.mark = Math.max(0, found);
  }
}
