// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {Timeline, rate, size, ticks, time} from '../../../qbed/service/page/timeline.js';

globalThis.sessionStorage = {getItem: () => null};
const {windowOf} = await import('../../../qbed/service/page/detail.js');

test('zooming keeps the point under the mouse, and the view within the cell', () => {
  const line = new Timeline();
  line.show(1000);
  line.zoom(0.5, 0.25);
  assert.deepEqual([line.from, line.to], [125, 625]);
  line.pan(10);
  assert.deepEqual([line.from, line.to], [500, 1000]);
  line.zoom(100);
  assert.ok(line.whole);
  line.zoom(1e-9);
  assert.equal(line.to - line.from, 2);
});

test('the view follows the cursor, which stays within the cell', () => {
  const line = new Timeline();
  line.show(1000);
  line.view(0, 100);
  line.point(500);
  assert.deepEqual([line.from, line.to, line.cursor], [450, 550, 500]);
  line.point(5000);
  assert.equal(line.cursor, 1000);
  line.point(NaN);
  assert.equal(line.cursor, null);
});

test('another cell of the same duration keeps view and cursor', () => {
  const line = new Timeline();
  line.show(1000);
  line.view(200, 400);
  line.point(300);
  line.show(1000);
  assert.deepEqual([line.from, line.to, line.cursor], [200, 400, 300]);
  line.show(250);
  assert.deepEqual([line.from, line.to, line.cursor], [0, 250, null]);
});

test('finer columns are read for a small view, with a margin', () => {
  assert.equal(windowOf(0, 600, 1000), null);
  assert.deepEqual(windowOf(0, 400, 1000), [0, 500]);
  assert.deepEqual(windowOf(990.5, 994.5, 1000), [989, 996]);
});

test('instants of an axis are round', () => {
  assert.deepEqual(ticks(0, 1e6, 5), [0, 2e5, 4e5, 6e5, 8e5, 1e6]);
  assert.deepEqual(ticks(3, 11, 4), [4, 6, 8, 10]);
  assert.ok(ticks(0.1, 0.9, 1000).length <= 1001);
});

test('numbers have units', () => {
  assert.deepEqual([0, 999, 1500, 2.5e6, 3e9].map(value => time(value)), ['0 ms', '999 ns', '1.5 us', '2.5 ms', '3 s']);
  assert.deepEqual([0.04, 12, 1514, 2.5e6].map(size), ['0 B', '12 B', '1.51 KB', '2.5 MB']);
  assert.deepEqual([5e3, 2.5e6, 1e10].map(rate), ['5 kbit/s', '2.5 Mbit/s', '10 Gbit/s']);
});
