// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {format, parse} from '../../../qbed/service/page/address.js';
import {number, verdictText} from '../../../qbed/service/page/claims.js';
import {RAMP, USES, depthLevel, useClass} from '../../../qbed/service/page/colours.js';
import {quantile, summary} from '../../../qbed/service/page/flows.js';
import {fullest} from '../../../qbed/service/page/totals.js';

globalThis.sessionStorage = {getItem: () => null};
const {stateClass, stateText} = await import('../../../qbed/service/page/jobs.js');
const {tally} = await import('../../../qbed/service/page/gallery.js');
const {fieldsOf} = await import('../../../qbed/service/page/api.js');

test('a link keeps the place', () => {
  const place = {run: 3, cell: 12, other: 4, queues: ['s1>h1', 'h1:a b>s2 & 5'], time: 12.5, view: [10, 20.000001]};
  assert.deepEqual(parse(format(place)), place);
  const empty = {run: null, cell: null, other: null, queues: [], time: null, view: null};
  for (const hash of ['', '#', '#live', '#run=x&cell=-1&time=&view=5-1', '#view=1', format(empty)]) assert.deepEqual(parse(hash), empty);
});

test('only a verdict that was not expected has a mark', () => {
  const verdict = {name: 'a', paper: 'P.', verdict: 'refuted', contradicted: false, measured: {x: 0.123456, y: [1, 2.5]}};
  assert.deepEqual(verdictText(verdict), {text: 'a: refuted', mark: '', detail: 'P. x 0.1235, y 1 | 2.5'});
  assert.equal(verdictText({...verdict, verdict: 'holds', contradicted: true}).mark, 'not as expected');
  assert.equal(number(3), '3');
});

test('a campaign of the gallery has its claims in one line', () => {
  const [holds, refuted] = ['holds', 'refuted'].map(verdict => ({verdict, contradicted: false}));
  assert.equal(tally([holds, refuted, holds]), '3 claims: 2 holds, 1 refuted');
  assert.equal(tally([{...holds, contradicted: true}]), '1 claims: 1 holds \u26a0 1 not as expected');
  assert.equal(tally([]), '0 claims');
});

test('states are words, and only what needs attention has a class', () => {
  const job = {id: 1, state: 'running', phase: 'running', cells: 60, done: 7.8, exit_status: null};
  assert.equal(stateText(job), 'running, 7 of 60 cells');
  assert.equal(stateText({...job, cells: null, phase: 'checking'}), 'checking');
  assert.equal(stateText({...job, state: 'finished', exit_status: 1}), 'finished, not as expected');
  assert.deepEqual([['finished', 0], ['finished', 1], ['failed', 2], ['cancelled', null]].map(
    ([state, exit_status]) => stateClass({...job, state, exit_status})), ['', 'marked', 'marked', '']);
});

test('classes of use differ by width and by lightness', () => {
  assert.deepEqual([NaN, 0, 0.01, 0.3, 0.6, 0.95, 1].map(useClass), [0, 0, 1, 2, 3, 4, 4]);
  USES.slice(1).forEach((entry, at) => assert.ok(entry.width > USES[at].width));
});

test('the colours of depths rise evenly in lightness, also without red or green', () => {
  const lightness = weights => RAMP.map(colour => colour.reduce((sum, value, at) => sum + value * weights[at], 0));
  for (const weights of [[0.2126, 0.7152, 0.0722], [0, 0.9, 0.1], [0.9, 0, 0.1]]) {
    const values = lightness(weights);
    values.slice(1).forEach((value, at) => assert.ok(value >= values[at] - 0.5));
  }
  assert.deepEqual([0, 25, 100, 400].map(bytes => depthLevel(bytes, 100)), [0, 128, 255, 255]);
});

test('flows are summed up', () => {
  assert.deepEqual([quantile([5, 1, 9], 0.5), quantile([1, 2, 3, 4], 0.99), quantile([], 0.5)], [5, 4, NaN]);
  const flows = {
    flow: [0, 1], status: ['complete', 'running'], size_bytes: [100, 100], fct_ns: [2e6, null], goodput_bps: [1e9, null], timeouts: [1, null],
  };
  assert.equal(summary(flows, 2), '2 flows, 1 complete; completion time 2 ms (median), 2 ms (99th percentile); goodput 1 Gbit/s (median); timeouts: 1.');
  assert.equal(summary({...flows, flow: []}, 0), 'This cell has no flows.');
  const mixed = summary({...flows, size_bytes: [100, null]}, 2);
  assert.ok(mixed.startsWith('2 flows, 1 complete, 1 ran to the end (no size limit); completion time 2 ms (median)'), mixed);
  const endless = {...flows, status: ['running', 'running'], size_bytes: [null, null], fct_ns: [null, null]};
  assert.ok(summary(endless, 2).startsWith('2 flows, 2 ran to the end (no size limit); goodput'));
});

test('the fullest queues come first, and those that sent nothing are left out', () => {
  const queues = {port: ['a', 'b', 'c', 'd'], sent_packets: [1, 1, 0, 1], max_bytes: [5, 50, 500, 5]};
  assert.deepEqual(fullest(queues), [1, 0, 3]);
  assert.deepEqual(fullest(queues, 1), [1]);
});

test('an event of a stream is parsed', () => {
  assert.deepEqual(fieldsOf(': comment\nevent: queues\nid: 7\ndata: {"a": "b: c"}'), {event: 'queues', id: '7', data: '{"a": "b: c"}'});
});
