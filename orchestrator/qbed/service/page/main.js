// SPDX-License-Identifier: Apache-2.0
// The page: shows one campaign and its cells.

import {format, parse} from './address.js';
import {ApiError, blob, follow, get, post} from './api.js';
import {addMessage, showClaims} from './claims.js';
import {Curves, Rates} from './curves.js';
import {Bars} from './flows.js';
import {Detail} from './detail.js';
import {showFigures, showGallery} from './gallery.js';
import {Heat} from './heat.js';
import {ENDED, fillForm, showJobs, stateClass, stateText} from './jobs.js';
import {showUses} from './legend.js';
import {Series} from './series.js';
import {Timeline, time} from './timeline.js';
import {Topology} from './topology.js';
import {TotalsTable} from './totals.js';

/** @import {CellRow, Job, View} from './types.d.ts' */
/** @import {Place} from './address.js' */

const FRAME_MS = 1000 / 30, LIST_MS = 2000, MAX_CELLS = 1000, TOTALS_TRIES = 8, MOSTLY_IDLE = 0.2, RUNNING = 'the one that runs', NONE = 'no other cell';

/** An element by its id. @param {string} id @returns {any} */
const $ = id => document.getElementById(id);

const timeline = new Timeline();
const curves = new Curves($('curves'), timeline, () => { page.addressed = ''; });
const toggle = (/** @type {number} */ queue) => curves.toggle(queue);
const heat = new Heat($('heat'), $('under'), timeline, toggle);
const topology = new Topology($('topology'), $('topology-under'), timeline, toggle);
const rates = new Rates($('flows'), timeline), bars = new Bars($('bars'), $('flows-text'), timeline);
const totals = new TotalsTable($('totals'), $('missing'), toggle);
const detail = new Detail(timeline, [heat, curves, rates]);
/** @type {View[]} */
const views = [heat, curves, rates, bars, topology, totals];
const page = {
  timeline, heat, curves, topology, detail, job: /** @type {number | null} */ (null), paused: false, frames: 0, addressed: '', routed: '', listed: '',
  series: /** @type {Series | null} */ (null), latest: /** @type {Series | null} */ (null),
  stop: new AbortController(), watch: new AbortController(), compared: new AbortController(),
  wanted: /** @type {Place | null} */ (null), figures: 0,
  held: /** @type {[string, any, AbortSignal][]} */ ([]),  // events of the newest cell that were received during a pause
};
Object.assign(window, {qbed: Object.assign(page, {updateAddress})});  // for the browser's console and the tests

/** @param {string} text */
function showMessage(text) { $('message').textContent = text; }

/** @template T @param {() => Promise<T>} action @returns {Promise<T | null>} */
async function attempt(action) {
  try { return await action(); } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    showMessage(error.message);
    return null;
  }
}

async function list() {
  /** @type {Job[] | null} */
  const jobs = await attempt(() => get('/jobs?limit=50'));
  if (!jobs) return;
  showJobs($('jobs'), jobs, page.job, choose);
  const chosen = jobs.find(job => job.id === page.job);
  if (chosen) describe(chosen);
  else if (page.job === null && jobs.length) choose(jobs[0].id);
}

// --- a campaign ---

/** @param {number} job @param {Place | null} place */
function choose(job, place = null) {
  page.stop.abort();
  page.stop = new AbortController();
  Object.assign(page, {job, listed: '', wanted: place, figures: 0});
  curves.set([]);
  curves.automatic = !place?.queues.length;
  $('none').hidden = true;
  $('job').hidden = false;
  for (const name of ['claims', 'messages', 'figures']) $(name).replaceChildren();
  $('figures-card').hidden = true;
  $('cell-choice').replaceChildren(new Option(RUNNING, ''));
  $('compare-choice').replaceChildren(new Option(NONE, ''));
  $('progress').value = 0;
  const cell = place?.cell ?? null;
  look(cell === null ? '' : String(cell));
  compare(place?.other == null ? '' : String(place.other));
  attempt(async () => {
    const found = await get(`/jobs/${job}`);
    describe(found);
    if (await cells(job, cell, place?.other ?? null) && job === page.job && cell === null && ENDED.includes(found.state)) {
      $('cell-choice').selectedIndex = 1;  // nothing runs: its first cell
      look($('cell-choice').value);
    }
  });
  attempt(() => follow(`/jobs/${job}/events`, page.stop.signal, (event, data) => { if (job === page.job) onEvent(event, data); }));
}

/** Follows the running cell, or shows a cell that has ended. @param {string} cell */
function look(cell) {
  page.watch.abort();
  const {signal} = page.watch = new AbortController();
  page.series = page.latest = null;
  page.held = [];
  for (const view of views) view.show(null);
  $('cell').textContent = cell === '' ? 'waiting for a cell that runs' : `cell ${cell}`;
  const path = cell === '' ? `/jobs/${page.job}/samples` : `/jobs/${page.job}/cells/${cell}/samples`;
  attempt(() => follow(path, signal, (event, data) => { if (!signal.aborted) sampled(event, data, signal); }));
}

/** Shows the curves of another cell of the campaign beside. @param {string} cell */
function compare(cell) {
  page.compared.abort();
  const {signal} = page.compared = new AbortController();
  curves.compare(null);
  if (cell === '') return;
  attempt(() => follow(`/jobs/${page.job}/cells/${cell}/samples`, signal, (event, data) => {
    if (signal.aborted) return;
    if (event === 'cell') curves.compare(new Series(data));
    if (event === 'queues') curves.other?.queues(data);
  }));
}

/** Lists the cells that have ended; returns whether there are any. @param {number} job @param {number | null} cell @param {number | null} other */
async function cells(job, cell = null, other = null) {
  /** @type {{axes: Record<string, unknown>, cells: CellRow[]}} */
  const found = await get(`/jobs/${job}/cells?limit=${MAX_CELLS}`), axes = Object.keys(found.axes);
  if (job !== page.job) return false;
  const choices = /** @type {[string, string, number | null][]} */ ([['cell-choice', RUNNING, cell], ['compare-choice', NONE, other]]);
  for (const [name, first, number] of choices) {
    const choice = $(name), chosen = number === null ? choice.value : String(number);
    const named = (/** @type {CellRow} */ row) =>
      [`${row.cell}`, ...axes.map(axis => `${axis} ${row[axis]}`), ...row.status === 'complete' ? [] : [row.status]].join(', ');
    choice.replaceChildren(new Option(first, ''), ...found.cells.map(row => new Option(named(row), String(row.cell))));
    choice.value = chosen;
  }
  return found.cells.length > 0;
}

/** @param {Job} job */
function describe(job) {
  if (job.id !== page.job) return;
  $('job-name').textContent = `${job.name}${job.request.profile ? `, ${job.request.profile}` : ''}`;
  $('job-state').textContent = job.state;
  $('job-state').className = `badge ${stateClass(job)}`;
  $('job-status').textContent = stateText(job);
  if (job.cells) $('progress').value = (job.done ?? 0) / job.cells;
  $('cancel').disabled = !['queued', 'running'].includes(job.state);
  $('retry').disabled = !ENDED.includes(job.state);
  $('report').hidden = job.state !== 'finished';
  if (job.verdicts.length) showClaims($('claims'), job.verdicts);
  const listed = `${job.id} ${job.state} ${Math.floor(job.done ?? 0)}`;
  if (page.listed !== listed && page.listed !== '') attempt(() => cells(job.id));
  page.listed = listed;
  if (job.state === 'finished' && page.figures !== job.id) {
    page.figures = job.id;
    attempt(() => showFigures($('figures'), $('figures-card'), job.id, () => job.id === page.job));
  }
}

/** @param {string} event @param {any} data */
function onEvent(event, data) {
  if (event === 'concluded') showClaims($('claims'), data.verdicts);
  if (event === 'outcome') addMessage($('messages'), `cell ${data.cell} ${data.status}: ${data.error ?? ''}`);
  if (event === 'refused') for (const text of data.messages) addMessage($('messages'), text);
  if (event === 'state') list();
}

/** @param {string} event @param {any} data @param {AbortSignal} signal */
function sampled(event, data, signal) {
  if (page.paused) {
    if (event === 'cell') page.held = [];
    page.held.push([event, data, signal]);
    return;
  }
  if (event === 'cell') page.latest = new Series(data);
  const series = page.latest;
  if (event === 'damaged') showMessage(`the tables of cell ${data.cell} are damaged`);
  if (event === 'queues') series?.queues(data);
  if (event === 'flows') series?.rates(data);
  if (event === 'cell-end' && series) {
    series.ended = true;
    attempt(() => conclude(series, signal));
  }
  if (series && page.series !== series) show(series);
}

/** Reads the totals of a cell that has ended; its tables may be stored a moment later. @param {Series} series @param {AbortSignal} signal */
async function conclude(series, signal) {
  const present = () => !signal.aborted && series === page.latest;
  for (let tries = 0; tries < TOTALS_TRIES && present(); tries++) {
    if ($('cell-choice').value === '') await new Promise(resolve => setTimeout(resolve, 400));
    try {
      series.conclude(await get(`/jobs/${page.job}/cells/${series.cell.cell}/totals`));
      if ($('cell-choice').value !== '' && present()) showActive(series);
      return;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
    }
  }
}

/** Shows the active time of a cell that has ended, if it is short and nothing else was chosen. @param {Series} series */
function showActive(series) {
  const active = series.active();
  if (active && timeline.whole && active[1] - active[0] < MOSTLY_IDLE * timeline.duration) timeline.view(...active);
}

/** @param {Series} series */
function show(series) {
  page.series = series;
  const {cell} = series, {wanted} = page;
  $('cell').textContent = `cell ${cell.cell}, ${time(cell.duration_ns)}, time is the lab's (${cell.clock.clock ?? 'virtual'})`;
  timeline.show(cell.duration_ns);
  for (const view of views) view.show(series);
  if (wanted) {
    page.wanted = null;
    if (wanted.view) timeline.view(wanted.view[0] * 1e6, wanted.view[1] * 1e6);
    if (wanted.time !== null) timeline.point(wanted.time * 1e6);
    curves.set(wanted.queues.map(name => cell.queues.indexOf(name)).filter(queue => queue >= 0));
  }
}

// --- frames, and the page's address ---

/** @returns {Place} */
function place() {
  const number = (/** @type {string} */ text) => (text === '' ? null : Number(text)), {cursor} = timeline;
  return {
    run: page.job, cell: number($('cell-choice').value), other: number($('compare-choice').value),
    queues: curves.chosen.map(queue => page.series?.cell.queues[queue] ?? '').filter(Boolean),
    time: cursor === null ? null : cursor / 1e6, view: timeline.whole ? null : [timeline.from / 1e6, timeline.to / 1e6],
  };
}

/** Writes what is shown into the address, unless the user has just chosen another: its event is received later. */
function updateAddress() {
  if ($('live').hidden || !page.series || page.wanted || location.hash !== page.routed) return;
  const hash = format(place());
  if (hash !== page.addressed) history.replaceState(null, '', hash);
  page.addressed = hash;
  page.routed = location.hash;
}

let due = 0;
/** Draws what has changed: at each animation frame if that is cheap, else less often. @param {number} now */
function frame(now) {
  if (now >= due && !$('live').hidden) {
    for (const view of views) view.draw();
    due = now + Math.min(FRAME_MS - 2, 3 * (performance.now() - now));
    page.frames++;
    const at = timeline.cursor === null ? '' : String(Number((timeline.cursor / 1e6).toFixed(6)));
    if (document.activeElement !== $('instant')) $('instant').value = at;
  }
  requestAnimationFrame(frame);
}

async function report() {
  const url = URL.createObjectURL(await blob(`/jobs/${page.job}/files/report.html`));
  Object.assign(document.createElement('a'), {href: url, download: `report-${page.job}.html`}).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

function route() {
  const gallery = location.hash === '#gallery', wanted = parse(location.hash);
  page.routed = location.hash;
  $('live').hidden = gallery;
  $('gallery').hidden = !gallery;
  if (gallery) attempt(async () => showGallery($('gallery'), await get('/gallery')));
  else if (wanted.run !== null && location.hash !== page.addressed) choose(wanted.run, wanted);
}

$('submit').addEventListener('submit', (/** @type {Event} */ event) => {
  event.preventDefault();
  attempt(async () => {
    const job = await post('/jobs', {lab: $('lab').value, profile: $('profile').value || null});
    showMessage(`campaign ${job.id} waits`);
    choose(job.id);
    await list();
  });
});
$('cancel').addEventListener('click', () => attempt(async () => describe(await post(`/jobs/${page.job}/cancel`))));
$('retry').addEventListener('click', () => attempt(async () => { await post(`/jobs/${page.job}/retry`); choose(Number(page.job)); }));
$('report').addEventListener('click', (/** @type {Event} */ event) => { event.preventDefault(); attempt(report); });
$('cell-choice').addEventListener('change', () => look($('cell-choice').value));
$('compare-choice').addEventListener('change', () => compare($('compare-choice').value));
$('show-all').addEventListener('click', () => timeline.showAll());
$('show-active').addEventListener('click', () => { if (page.series) timeline.view(...(page.series.active() ?? [0, timeline.duration])); });
$('zoom-in').addEventListener('click', () => timeline.zoom(0.5));
$('zoom-out').addEventListener('click', () => timeline.zoom(2));
$('instant').addEventListener('change', () => timeline.point($('instant').value === '' ? null : Number($('instant').value) * 1e6));
$('pause').addEventListener('click', () => {
  page.paused = !page.paused;
  $('pause').setAttribute('aria-pressed', String(page.paused));
  if (page.paused) return;
  const held = page.held;
  page.held = [];
  for (const entry of held) if (!entry[2].aborted) sampled(...entry);
});
addEventListener('hashchange', route);

$('report').href = '#report';
showUses($('uses'));
await attempt(() => fillForm($('lab'), $('profile')));
route();
await list();
setInterval(() => document.hidden || list(), LIST_MS);
setInterval(updateAddress, 300);
setInterval(() => detail.update(page.series, `/jobs/${page.job}/cells/${page.series?.cell.cell}/samples`), 250);
requestAnimationFrame(frame);
