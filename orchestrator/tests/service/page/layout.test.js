// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {clos, star} from './helpers.js';
import {COLLAPSE_ABOVE, layOut} from '../../../qbed/service/page/layout.js';

/** Asserts that no two marks are nearer than half a column or row, and that all are inside. */
function assertReadable({marks, width, height}) {
  const places = new Set(marks.map(({x, y}) => `${x.toFixed(3)} ${y.toFixed(3)}`));
  assert.equal(places.size, marks.length, 'each mark has a place of its own');
  for (const {x, y} of marks) assert.ok(x >= 0 && x <= width && y >= 0 && y <= height, `${x} ${y} in ${width} ${height}`);
  const rows = Map.groupBy ? Map.groupBy(marks, mark => mark.y) : new Map(marks.map(mark => [mark.y, marks.filter(other => other.y === mark.y)]));
  for (const row of rows.values()) {
    const sorted = row.map(mark => mark.x).sort((a, b) => a - b);
    sorted.slice(1).forEach((x, at) => assert.ok(x - sorted[at] > 0.45, `${x} beside ${sorted[at]}`));
  }
}

for (const [name, cell] of [
  ['2 nodes', {...star(1)}], ['6 nodes', star(5)], ['100 nodes', star(99)], ['a rack', clos(1, 3, 0)],
  ['1,041 nodes', clos(40, 25, 1)], ['1,280 racks', clos(256, 4, 4)], ['spines', clos(8, 4, 4)],
]) {
  test(`${name}: each node has a mark, and no two are in one place`, () => {
    const found = layOut(cell, new Set());
    assertReadable(found);
    assert.deepEqual(found.marks.flatMap(mark => mark.nodes).sort((a, b) => a - b), cell.nodes.map((_, node) => node));
    assert.equal(found.edges.reduce((sum, edge) => sum + edge.links.length, 0), cell.links.length);
  });
}

test('layers follow the roles: spines above racks above hosts', () => {
  const cell = clos(4, 3, 2), {marks, markOf} = layOut(cell, new Set());
  const y = name => marks[markOf[cell.nodes.indexOf(name)]].y;
  assert.ok(y('spine1') < y('rack1') && y('rack1') < y('h1'));
  assert.equal(y('spine1'), y('spine2'));
  assert.equal(y('rack1'), y('rack4'));
});

test('switches in a chain, each with hosts, are one layer', () => {
  const cell = {...star(2), nodes: ['s1', 'h1', 's2', 'h2'], kinds: ['switch', 'host', 'switch', 'host'], links: [[1, 0], [3, 2], [0, 2]]
    .map(([a, b], at) => ({a, b, queues: [2 * at, 2 * at + 1], rate_bps: 1}))};
  const {marks, markOf} = layOut(cell, new Set());
  assert.equal(marks[markOf[0]].y, marks[markOf[2]].y);
  assertReadable(layOut(cell, new Set()));
});

test('hosts without a switch have a place', () => {
  const cell = {...star(2), nodes: ['h1', 'h2'], kinds: ['host', 'host'], links: [{a: 0, b: 1, queues: [0, 1], rate_bps: 1}]};
  assertReadable(layOut(cell, new Set()));
});

test('racks are one mark in a large lab, and open one by one', () => {
  const cell = clos(40, 25, 1), rack = cell.nodes.indexOf('rack7');
  assert.ok(cell.nodes.length > COLLAPSE_ABOVE);
  const closed = layOut(cell, new Set());
  assert.equal(closed.marks.length, 1 + 40 + 40);
  assert.equal(closed.edges.find(edge => edge.links.length === 25).links.length, 25);
  const open = layOut(cell, new Set([rack]));
  assert.equal(open.marks.length, 1 + 40 + 39 + 25);
  assertReadable(open);
  assert.equal(layOut(clos(4, 25, 1), new Set()).marks.length, 105, 'a small lab is open');
});

test('a thousand racks are laid out in a moment', () => {
  const begun = performance.now();
  layOut(clos(1024, 8, 16), new Set());
  assert.ok(performance.now() - begun < 5000);
});
