// SPDX-License-Identifier: Apache-2.0
// Places of a topology's nodes: layers by role, hosts below their switch, and in a large lab one mark for a rack's hosts.

/** @import {Cell} from './types.d.ts' */
/** @typedef {{kind: 'switch' | 'host' | 'rack', nodes: number[], parent: number, x: number, y: number, label: string}} Mark */
/** @typedef {{a: number, b: number, links: number[]}} Edge */
/** @typedef {{width: number, height: number, marks: Mark[], edges: Edge[], markOf: Int32Array}} Layout */

export const COLLAPSE_ABOVE = 128;
const SHELF = 64, MIN_RACK = 3, SWEEPS = 4;

/** Neighbors of each node. @param {Cell} cell */
function neighbors(cell) {
  /** @type {number[][]} */
  const found = cell.nodes.map(() => []);
  for (const {a, b} of cell.links) { found[a].push(b); found[b].push(a); }
  return found;
}

/** Each node's layer: hosts 0, a switch one more than its distance from the nearest host. @param {Cell} cell @param {number[][]} near */
export function layersOf(cell, near) {
  /** @type {number[]} */
  const layers = cell.kinds.map(kind => (kind === 'switch' ? -1 : 0));
  let front = layers.flatMap((layer, node) => (layer === 0 ? [node] : []));
  for (let layer = 1; front.length; layer++) {
    front = [...new Set(front.flatMap(node => near[node]))].filter(node => layers[node] === -1);
    for (const node of front) layers[node] = layer;
  }
  return layers.map(layer => (layer === -1 ? 1 : layer));  // switches without hosts
}

/** The switch that each host is drawn below, or -1. @param {Cell} cell @param {number[][]} near */
function parents(cell, near) {
  return cell.kinds.map((kind, node) => (kind === 'switch' ? -1 : near[node].find(other => cell.kinds[other] === 'switch') ?? -1));
}

/** Order layers so that a node is near its neighbors in the layers around it. @param {number[][]} rows @param {number[][]} near */
function order(rows, near) {
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const place = new Map();
    for (const row of rows) row.forEach((node, at) => place.set(node, (at + 0.5) / row.length));
    for (const row of rows) {
      const inRow = new Set(row);
      /** @type {Map<number, number>} */
      const middle = new Map();
      for (const node of row) {
        const around = near[node].filter(other => place.has(other) && !inRow.has(other)).map(other => place.get(other));
        middle.set(node, around.length ? around.reduce((sum, value) => sum + value, 0) / around.length : place.get(node));
      }
      row.sort((one, two) => (middle.get(one) ?? 0) - (middle.get(two) ?? 0) || one - two);
    }
  }
}

/** @param {Cell} cell @param {ReadonlySet<number>} opened racks that are open, by their switch @returns {Layout} */
export function layOut(cell, opened) {
  const near = neighbors(cell), layers = layersOf(cell, near), parent = parents(cell, near);
  const collapses = cell.nodes.length > COLLAPSE_ABOVE;
  /** @type {Map<number, number[]>} */
  const racks = new Map();
  cell.nodes.forEach((_, node) => {
    if (layers[node] === 0) racks.set(parent[node], [...(racks.get(parent[node]) ?? []), node]);
  });
  const top = Math.max(1, ...layers);
  const rows = Array.from({length: top}, (_, row) => layers.flatMap((layer, node) => (layer === top - row ? [node] : [])));
  order(rows, near);
  /** @type {Mark[]} */
  const marks = [];
  let y = 0, width = 1;

  // A unit is a switch with its hosts below; units fill shelves of at most SHELF columns.
  const below = rows.pop() ?? [];
  const units = [...below, ...(racks.has(-1) ? [-1] : [])].map(node => {
    const hosts = racks.get(node) ?? [];
    const closed = collapses && hosts.length >= MIN_RACK && !opened.has(node);
    const shown = closed ? 1 : hosts.length;
    const columns = shown <= 12 ? Math.max(1, shown) : Math.min(SHELF / 2, Math.ceil(Math.sqrt(shown * 5)));
    return {node, hosts, closed, columns: columns + (below.length > 1 ? 0.4 : 0), lines: Math.ceil(shown / columns), each: columns};
  });
  for (const row of rows) {
    const columns = Math.min(row.length, SHELF);
    row.forEach((node, at) => marks.push({
      kind: 'switch', nodes: [node], parent: -1, x: (at % columns + 0.5) / columns, y: y + Math.floor(at / columns), label: cell.nodes[node],
    }));
    y += Math.ceil(row.length / columns) + 0.5;
  }
  const upper = marks.length;
  for (let first = 0; first < units.length;) {
    let last = first, used = 0;
    while (last < units.length && (last === first || used + units[last].columns <= SHELF)) used += units[last++].columns;
    width = Math.max(width, used);
    const shelf = units.slice(first, last), lines = Math.max(...shelf.map(unit => unit.lines));
    let x = 0;
    for (const unit of shelf) {
      const middle = x + unit.columns / 2;
      if (unit.node >= 0) marks.push({kind: 'switch', nodes: [unit.node], parent: -1, x: middle, y, label: cell.nodes[unit.node]});
      if (unit.closed) {
        const label = `${unit.hosts.length} hosts`;
        marks.push({kind: 'rack', nodes: unit.hosts, parent: unit.node, x: middle, y: y + 1, label});
      } else {
        unit.hosts.forEach((host, at) => {
          const line = Math.floor(at / unit.each), inLine = Math.min(unit.each, unit.hosts.length - line * unit.each);
          const left = middle + at % unit.each - (inLine - 1) / 2;
          marks.push({kind: 'host', nodes: [host], parent: unit.node, x: left, y: y + 1 + line, label: cell.nodes[host]});
        });
      }
      x += unit.columns;
    }
    y += 1 + lines + 0.5;
    first = last;
  }
  for (let at = 0; at < upper; at++) marks[at].x *= width;
  return {width, height: y - 0.5, marks, ...edgesOf(cell, marks)};
}

/** Edges between marks; links between the same two marks are one edge. @param {Cell} cell @param {Mark[]} marks */
function edgesOf(cell, marks) {
  const markOf = new Int32Array(cell.nodes.length);
  marks.forEach((mark, at) => { for (const node of mark.nodes) markOf[node] = at; });
  /** @type {Map<string, Edge>} */
  const edges = new Map();
  cell.links.forEach(({a, b}, link) => {
    const [one, two] = [markOf[a], markOf[b]];
    if (one === two) return;
    const key = `${Math.min(one, two)} ${Math.max(one, two)}`, edge = edges.get(key);
    if (edge) edge.links.push(link);
    else edges.set(key, {a: one, b: two, links: [link]});
  });
  return {edges: [...edges.values()], markOf};
}
