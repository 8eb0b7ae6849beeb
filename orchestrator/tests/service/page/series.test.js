// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {batch, star} from './helpers.js';
import {COLUMNS, Series} from '../../../qbed/service/page/series.js';

test('pieces of a column are merged', () => {
  const series = new Series(star(2));
  series.queues(batch(1, [3, 500, 10, 20, 30, 100]));
  series.queues(batch(1, [3, 1500, 5, 40, 90, 300], [4, 2000, 0, 0, 0, 0]));
  assert.deepEqual(series.curve(1).map(values => values[3]), [0.006, 5, 35, 90]);
  assert.deepEqual(series.curve(1)[2].slice(0, 3), [null, null, null]);
  assert.equal(series.end, 5);
  assert.equal(series.highest, 90);
  assert.equal(series.rows.get(1).sent[3], 400);
});

test('a piece that has events but no time keeps its extremes', () => {
  const series = new Series(star(2));
  series.queues(batch(1, [0, 0, 700, 0, 700, 0]));
  series.queues(batch(1, [0, 2000, 100, 300, 400, 0]));
  assert.deepEqual(series.curve(1).map(values => values[0]), [0, 100, 300, 700]);
});

test('a sample that is longer than a column fills the unknown columns before it', () => {
  const series = new Series(star(2));
  series.queues(batch(1, [1, 4000, 1, 2, 3, 400], [5, 8000, 7, 8, 9, 800]));
  assert.deepEqual(series.curve(1).slice(1), [[1, 1, 7, 7, 7, 7], [2, 2, 8, 8, 8, 8], [3, 3, 9, 9, 9, 9]]);
  assert.deepEqual([...series.rows.get(1).sent.slice(0, 7)], [200, 200, 200, 200, 200, 200, 0]);
  series.queues(batch(1, [6, 4000, 0, 0, 0, 0]));
  assert.deepEqual(series.curve(1)[2], [2, 2, 8, 8, 8, 8, 0], 'a known column stays as it is');
});

test('columns of a part of the cell have its times', () => {
  const series = new Series(star(2, {from_ns: 500_000, bin_ns: 10}));
  series.queues(batch(1, [2, 10, 1, 2, 3, 4]));
  assert.deepEqual(series.curve(1)[0], [0.5, 0.50001, 0.50002]);
  assert.equal(series.mean(1, series.column(500_025)), 2);
  assert.equal(series.column(0), 0);
});

test('the active time is that of flows and of bytes in queues', () => {
  const series = new Series(star(2));
  assert.equal(series.active(), null);
  series.queues(batch(1, [0, 2000, 0, 0, 0, 0], [10, 2000, 0, 1, 5, 0], [19, 2000, 0, 1, 5, 0], [400, 2000, 0, 0, 0, 0]));
  assert.deepEqual(series.active(), [19_000, 41_000]);
  series.totals = {flows: {start_ns: [30_000, 5000], end_ns: [60_000, 6000]}};
  assert.deepEqual(series.active(), [2250, 62_750]);
  series.totals.flows.end_ns[0] = null;
  assert.equal(series.active()[1], 1e6, 'a flow that did not end lasts to the end of the cell');
});

test('columns beyond the end are left out', () => {
  const series = new Series(star(2));
  series.queues(batch(0, [COLUMNS, 1, 1, 1, 1, 1]));
  series.rates({flow: [4], bin: [COLUMNS + 5], bps: [1]});
  assert.equal(series.rows.size, 0);
  assert.equal(series.end, COLUMNS);
});

test('the fullest queues are shown if there are many', () => {
  const series = new Series(star(100));
  for (let queue = 0; queue < 200; queue++) series.queues(batch(queue, [0, 1, 0, 0, (queue * 7) % 200, 0]));
  const shown = series.shown(20), least = Math.min(...shown.map(queue => series.rows.get(queue).peak));
  assert.equal(shown.length, 20);
  assert.deepEqual(shown, [...shown].sort((a, b) => a - b));
  assert.equal(least, 180);
});

test('of many queues, those that held bytes are shown', () => {
  const series = new Series(star(100));
  for (let queue = 0; queue < 40; queue++) series.queues(batch(queue, [0, 1, 0, 0, 0, 0]));
  assert.equal(series.shown().length, 40, 'none held any');
  series.queues(batch(7, [1, 1, 0, 0, 9, 0]));
  assert.deepEqual(series.shown(), [7]);
});

test('the load of a link is that of the instant, or the mean over a cell that has ended', () => {
  const series = new Series(star(2));
  series.queues(batch(1, ...Array.from({length: 20}, (_, at) => [at, 2000, 0, at * 10, 0, at < 10 ? 250 : 125])));
  assert.deepEqual(series.load(1, 1e9, 8 * 2000), {use: 1, depth: 80});
  assert.deepEqual(series.load(1, 1e9, null), {use: 0.5, depth: 190});
  assert.ok(Number.isNaN(series.load(0, 1e9, null).use));
  const zero = [0, 0, 0, 0];
  series.conclude({cell: 0, flow_count: 0, flows: {}, queues: {
    port: star(2).queues, mean_bytes: [1, 2, 3, 4], max_bytes: zero, sent_packets: zero, sent_bytes: [12500, 25000, 0, 0],
    dropped_packets: zero, marked_packets: zero}});
  assert.deepEqual(series.load(0, 1e9, null), {use: 0.1, depth: 1});
  assert.ok(Number.isNaN(series.load(0, 1e9, 5).use), 'its use at an instant is not recorded');
  assert.equal(series.brightest(null), 4);
});

test('what a lab does not record is said with the setting that records it, once it is certain', () => {
  const series = new Series(star(2));
  assert.deepEqual(series.missing(), []);
  series.ended = true;
  assert.deepEqual(series.missing().map(text => /`observe: \{(\w+)/.exec(text)[1]), ['queues', 'flows']);
  series.queues(batch(1, [0, 1, 0, 0, 0, 0]));
  series.rates({flow: [0], bin: [0], bps: [5]});
  assert.deepEqual(series.missing(), []);
});
