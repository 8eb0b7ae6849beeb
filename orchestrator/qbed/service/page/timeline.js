// SPDX-License-Identifier: Apache-2.0
// The part of the lab's time that all charts show, and the instant under their common cursor. Times are in ns.

const NARROWEST = 0.002;

export class Timeline {
  constructor() {
    this.duration = 1;
    this.from = 0;
    this.to = 1;
    /** @type {number | null} */
    this.cursor = null;
    this.version = 0;
  }

  /** Show a cell of this duration; the view stays if it is the same. @param {number} duration */
  show(duration) {
    if (duration === this.duration) return;
    this.duration = duration;
    if (this.cursor !== null && this.cursor > duration) this.cursor = null;
    this.view(0, duration);
  }

  /** Show the time between two instants, within the cell. @param {number} from @param {number} to */
  view(from, to) {
    const width = Math.min(this.duration, Math.max(this.duration * NARROWEST, to - from));
    this.from = Math.min(this.duration - width, Math.max(0, from));
    this.to = this.from + width;
    this.version++;
  }

  get whole() { return this.to - this.from >= this.duration * 0.9999; }

  showAll() { this.view(0, this.duration); }

  /** @param {number} factor @param {number} share the part of the view that stays in place */
  zoom(factor, share = 0.5) {
    const width = Math.min(this.duration, (this.to - this.from) * factor);
    const at = this.from + (this.to - this.from) * share;
    this.view(at - width * share, at + width * (1 - share));
  }

  /** @param {number} share of the view */
  pan(share) {
    const by = share * (this.to - this.from);
    this.view(this.from + by, this.to + by);
  }

  /** Move the cursor; the view follows it. @param {number | null} ns */
  point(ns) {
    const at = ns === null || Number.isNaN(ns) ? null : Math.min(this.duration, Math.max(0, ns));
    if (at === this.cursor) return;
    this.cursor = at;
    if (at !== null && (at < this.from || at > this.to)) {
      const width = this.to - this.from;
      this.view(at - width / 2, at + width / 2);
    }
    this.version++;
  }

  /** The instant at a share of the view's width. @param {number} share */
  at(share) { return this.from + share * (this.to - this.from); }

  /** The share of the view's width at an instant. @param {number} ns */
  share(ns) { return (ns - this.from) / (this.to - this.from); }
}

/** Round instants for an axis, at most `count` of them. @param {number} from @param {number} to @param {number} count */
export function ticks(from, to, count) {
  const raw = (to - from) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(value => value >= raw) ?? 10 * power;
  const found = [];
  for (let index = Math.ceil(from / step - 1e-9) || 0; index * step <= to * (1 + 1e-12); index++) found.push(index * step);
  return found;
}

/** A time in the unit that fits it. @param {number} ns @param {number} digits */
export function time(ns, digits = 4) {
  const [unit, size] = ns >= 1e9 ? ['s', 1e9] : ns >= 1e6 || ns === 0 ? ['ms', 1e6] : ns >= 1e3 ? ['us', 1e3] : ['ns', 1];
  return `${Number((ns / Number(size)).toPrecision(digits))} ${unit}`;
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1e3) return `${Math.round(bytes * 10) / 10} B`;
  const [unit, factor] = bytes >= 1e6 ? ['MB', 1e6] : ['KB', 1e3];
  return `${Number((bytes / Number(factor)).toPrecision(3))} ${unit}`;
}

/** @param {number} bps */
export function rate(bps) {
  const [unit, factor] = bps >= 1e9 ? ['Gbit/s', 1e9] : bps >= 1e6 ? ['Mbit/s', 1e6] : ['kbit/s', 1e3];
  return `${Number((bps / Number(factor)).toPrecision(3))} ${unit}`;
}
