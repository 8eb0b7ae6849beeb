// SPDX-License-Identifier: Apache-2.0
// The live page: shows one campaign and its series, with at most thirty frames a second.

import {get, post, blob, follow, ApiError} from '/page/api.js';
import {Series} from '/page/series.js';
import {Heat} from '/page/heat.js';
import {Curves, Flows} from '/page/curves.js';
import {Topology} from '/page/topology.js';
import {showGallery} from '/page/gallery.js';

const FRAME_MS = 1000 / 30, LIST_MS = 2000, MAX_CELLS = 1000;
const ENDED = ['finished', 'failed', 'cancelled'], RUNS = 'the one that runs';
const TONES = {finished: 'good', failed: 'bad', cancelled: 'open', running: 'open'};
const $ = id => document.getElementById(id);

const curves = new Curves($('curves')), flows = new Flows($('flows')), topology = new Topology($('topology'));
const heat = new Heat($('heat'), $('under'), queue => curves.toggle(queue));
const page = {heat, curves, job: null, stop: null, watch: null, listed: null, series: null, latest: null, paused: false, frames: 0};
window.qbed = page;  // for the browser's console and the tests

function showMessage(text) { $('message').textContent = text; }

async function attempt(what) {
  try { return await what(); } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    showMessage(error.message);
    return null;
  }
}

function item(list, text, tone, small) {
  const line = list.appendChild(document.createElement('li'));
  if (tone) line.className = tone;
  line.append(text);
  if (small) line.appendChild(document.createElement('small')).textContent = small;
  return line;
}

// --- the list ---

function stateText(job) {
  if (job.state === 'running' && job.cells) return `${job.phase ?? 'running'}, ${Math.floor(job.done ?? 0)} of ${job.cells} cells`;
  if (job.state === 'finished') return job.exit_status === 0 ? 'finished, all as expected' : 'finished, not as expected';
  return job.state;
}

async function list() {
  const jobs = await attempt(() => get('/jobs?limit=50'));
  if (!jobs) return;
  const focused = document.activeElement?.dataset?.job;
  $('jobs').replaceChildren(...jobs.map(job => {
    const line = document.createElement('li'), button = line.appendChild(document.createElement('button'));
    button.type = 'button';
    button.dataset.job = job.id;
    button.append(`${job.id} ${job.name}`);
    button.appendChild(document.createElement('small')).textContent = stateText(job);
    button.setAttribute('aria-current', String(job.id === page.job));
    button.addEventListener('click', () => choose(job.id));
    return line;
  }));
  if (focused) document.querySelector(`[data-job="${focused}"]`)?.focus();
  const chosen = jobs.find(job => job.id === page.job);
  if (chosen) describe(chosen);
  else if (page.job === null && jobs.length) choose(jobs[0].id);
}

// --- a campaign ---

function choose(job) {
  page.stop?.abort();
  page.stop = new AbortController();
  Object.assign(page, {job, listed: null});
  $('none').hidden = true;
  $('job').hidden = false;
  for (const name of ['claims', 'messages']) $(name).replaceChildren();
  $('cell-choice').replaceChildren(new Option(RUNS, ''));
  $('progress').value = 0;
  look('');
  attempt(async () => {
    const found = await get(`/jobs/${job}`);
    describe(found);
    if (ENDED.includes(found.state) && await cells(job) && job === page.job) {
      $('cell-choice').selectedIndex = 1;  // nothing runs: its first cell
      look($('cell-choice').value);
    }
  });
  attempt(() => follow(`/jobs/${job}/events`, page.stop.signal, (event, data) => job === page.job && onEvent(event, data)));
}

// Follows the running cell, or shows a cell that has ended.
function look(cell) {
  page.watch?.abort();
  const {signal} = page.watch = new AbortController();
  Object.assign(page, {series: null, latest: null});
  $('cell').textContent = 'none runs';
  const path = cell === '' ? `/jobs/${page.job}/samples` : `/jobs/${page.job}/cells/${cell}/samples`;
  attempt(() => follow(path, signal, (event, data) => signal.aborted || sampled(event, data)));
}

// Lists the cells that have ended; returns whether there are any.
async function cells(job) {
  const found = await get(`/jobs/${job}/cells?limit=${MAX_CELLS}`), chosen = $('cell-choice').value, axes = Object.keys(found.axes);
  if (job !== page.job) return false;
  const named = cell => [`${cell.cell}`, ...axes.map(axis => `${axis} ${cell[axis]}`), ...cell.status === 'complete' ? [] : [cell.status]];
  $('cell-choice').replaceChildren(new Option(RUNS, ''), ...found.cells.map(cell => new Option(named(cell).join(', '), cell.cell)));
  $('cell-choice').value = chosen;
  return found.cells.length > 0;
}

function describe(job) {
  if (job.id !== page.job) return;
  $('job-name').textContent = `${job.name}${job.request.profile ? `, ${job.request.profile}` : ''}`;
  $('job-state').textContent = job.state;
  $('job-state').className = `badge ${job.state === 'finished' && job.exit_status ? 'bad' : TONES[job.state] ?? ''}`;
  $('job-status').textContent = stateText(job);
  if (job.cells) $('progress').value = (job.done ?? 0) / job.cells;
  $('cancel').disabled = !['queued', 'running'].includes(job.state);
  $('retry').disabled = !ENDED.includes(job.state);
  $('report').hidden = job.state !== 'finished';
  if (job.verdicts.length) claims(job.verdicts);
  const listed = `${job.state} ${Math.floor(job.done ?? 0)}`;
  if (page.listed !== listed && page.listed !== null) attempt(() => cells(job.id));
  page.listed = listed;
}

const number = value => typeof value === 'number' && !Number.isInteger(value) ? value.toPrecision(4)
  : Array.isArray(value) ? value.map(number).join(' | ') : String(value);

function claims(verdicts) {
  $('claims').replaceChildren();
  for (const verdict of verdicts) {
    const text = Object.entries(verdict.measured).map(([name, value]) => `${name} ${number(value)}`).join(', ');
    item($('claims'), `${verdict.name}: ${verdict.verdict}${verdict.contradicted ? ', not as expected' : ''}`, verdict.contradicted ? 'bad' : '', `${[verdict.paper, verdict.reason ?? text, ...(verdict.caveats ?? []).map(one => `Caution: ${one}.`)].join(" ")}`);
  }
}

function onEvent(event, data) {
  if (event === 'concluded') claims(data.verdicts);
  if (event === 'outcome') item($('messages'), `cell ${data.cell} ${data.status}: ${data.error ?? ''}`, 'bad');
  if (event === 'refused') for (const text of data.messages) item($('messages'), text, 'bad');
  if (event === 'state') list();
  while ($('messages').children.length > 50) $('messages').firstChild.remove();
}

function sampled(event, data) {
  if (event === 'cell') page.latest = new Series(data);
  if (event === 'queues') page.latest.queues(data);
  if (event === 'flows') page.latest.rates(data);
  if (event === 'damaged') showMessage(`the tables of cell ${data.cell} are damaged`);
  if (!page.paused && page.series !== page.latest) show(page.latest);
}

function show(series) {
  page.series = series;
  $('cell').textContent = `cell ${series.cell.cell}, ${series.cell.duration_ns / 1e6} ms, time is the lab's (${series.cell.clock.clock ?? 'virtual'})`;
  for (const view of [heat, curves, flows, topology]) view.show(series);
}

let drawn = 0;
function frame(now) {
  if (now - drawn >= FRAME_MS - 2) {
    drawn = now;
    if (!page.paused || heat.drawn === -1) heat.draw();
    if (!page.paused) for (const view of [curves, flows, topology]) view.draw();
    page.frames++;
  }
  requestAnimationFrame(frame);
}

async function report() {
  const file = await blob(`/jobs/${page.job}/files/report.html`);
  const place = URL.createObjectURL(file);
  Object.assign(document.createElement('a'), {href: place, download: `report-${page.job}.html`}).click();
  setTimeout(() => URL.revokeObjectURL(place), 60000);
}

// --- the form, the tools, the views ---

async function fill() {
  const labs = await get('/labs');
  $('lab').replaceChildren(...labs.map(lab => new Option(lab.name, lab.name, false, lab.name === 'dumbbell')));
  const profiles = () => {
    const lab = labs.find(entry => entry.name === $('lab').value);
    $('profile').replaceChildren(...[...lab.profiles, ''].map(name => new Option(name || 'everything', name)));
  };
  $('lab').addEventListener('change', profiles);
  profiles();
}

function view() {
  const gallery = location.hash === '#gallery';
  $('live').hidden = gallery;
  $('gallery').hidden = !gallery;
  if (gallery) attempt(async () => showGallery($('gallery'), await get('/gallery')));
}

$('submit').addEventListener('submit', event => {
  event.preventDefault();
  attempt(async () => {
    const job = await post('/jobs', {lab: $('lab').value, profile: $('profile').value || null});
    showMessage(`campaign ${job.id} waits`);
    choose(job.id);
    await list();
  });
});
$('cancel').addEventListener('click', () => attempt(async () => describe(await post(`/jobs/${page.job}/cancel`))));
$('retry').addEventListener('click', () => attempt(async () => { await post(`/jobs/${page.job}/retry`); choose(page.job); }));
$('report').addEventListener('click', event => { event.preventDefault(); attempt(report); });
$('cell-choice').addEventListener('change', () => look($('cell-choice').value));
$('show-all').addEventListener('click', () => heat.showAll());
$('pause').addEventListener('click', () => {
  page.paused = !page.paused;
  $('pause').setAttribute('aria-pressed', String(page.paused));
  if (!page.paused && page.latest && page.series !== page.latest) show(page.latest);
});
addEventListener('resize', () => { heat.drawn = -1; });
addEventListener('hashchange', view);

$('report').href = '#report';
await attempt(fill);
view();
await list();
setInterval(() => document.hidden || list(), LIST_MS);
requestAnimationFrame(frame);
