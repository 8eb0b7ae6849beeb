// SPDX-License-Identifier: Apache-2.0
// Every lab's last campaign with a small picture, and each claim over the versions of qbed that have run it.

import {blob, follow, get} from './api.js';
import {measuredText, verdictLine, verdictText} from './claims.js';
import {depthLevel, RAMP} from './colours.js';
import {Series} from './series.js';

/** @import {GalleryEntry, Verdict} from './types.d.ts' */

const WIDTH = 320, HEIGHT = 120, MAX_FIGURES = 12;

/** A file as a URL that the page's policy allows. @param {Blob} file @returns {Promise<string>} */
export function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** The names of a campaign's figures: as SVG if it has them, else as PNG. @param {number} job @returns {Promise<string[]>} */
async function figures(job) {
  const names = Object.keys(await get(`/jobs/${job}/files`));
  for (const end of ['.svg', '.png']) {
    const found = names.filter(name => name.startsWith('figures/') && name.endsWith(end));
    if (found.length) return found;
  }
  return [];
}

/** A figure of a campaign as an image. @param {number} job @param {string} name */
async function figure(job, name) {
  const image = new Image();
  image.alt = `Figure ${name.replace(/^figures\/|\.\w+$/g, '')}`;
  image.src = await dataUrl(await blob(`/jobs/${job}/files/${name}`));
  return image;
}

/** Shows a report's figures while `present` is true. @param {HTMLElement} place @param {HTMLElement} card @param {number} job
 *  @param {() => boolean} present */
export async function showFigures(place, card, job, present) {
  for (const name of (await figures(job)).slice(0, MAX_FIGURES)) {
    const image = await figure(job, name);
    if (!present()) return;
    place.append(image);
    card.hidden = false;
  }
}

/** The queues of a campaign's first cell as a small picture. @param {number} job */
async function miniature(job) {
  /** @type {Series | null} */
  let series = null;
  await follow(`/jobs/${job}/cells/0/samples`, new AbortController().signal, (event, data) => {
    if (event === 'cell') series = new Series(data);
    if (event === 'queues') series?.queues(data);
  });
  return series && drawMiniature(series);
}

/** @param {Series} series */
function drawMiniature(series) {
  const queues = series.shown(40);
  if (!queues.length) return null;
  const canvas = Object.assign(document.createElement('canvas'), {width: WIDTH, height: HEIGHT});
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d')), wide = WIDTH / series.end, high = HEIGHT / queues.length;
  queues.forEach((queue, row) => {
    for (let column = 0; column < series.end; column++) {
      context.fillStyle = `rgb(${RAMP[depthLevel(series.mean(queue, column), series.highest)].join(' ')})`;
      context.fillRect(Math.floor(column * wide), Math.floor(row * high), Math.ceil(wide), Math.ceil(high));
    }
  });
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', 'Queues of the first cell over its time');
  return canvas;
}

/** @param {HTMLElement} place @param {GalleryEntry} entry */
async function showPicture(place, entry) {
  const [first] = await figures(entry.job).catch(() => []);
  const made = await (first ? figure(entry.job, first) : miniature(entry.job)).catch(() => null);
  if (made) place.replaceChildren(made);
  else place.textContent = 'no picture';
}

/** How many claims have which verdict, and how many were not expected. @param {Verdict[]} verdicts */
export function tally(verdicts) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const {verdict} of verdicts) counts.set(verdict, (counts.get(verdict) ?? 0) + 1);
  const marked = verdicts.filter(verdict => verdict.contradicted).length;
  const words = [...counts].map(([verdict, count]) => `${count} ${verdict}`).join(', ');
  return `${verdicts.length} claims${words && `: ${words}`}${marked ? ` \u26a0 ${marked} not as expected` : ''}`;
}

/** @param {HTMLElement} parent @param {string} kind @param {string} text */
function add(parent, kind, text) {
  const made = parent.appendChild(document.createElement(kind));
  made.textContent = text;
  return made;
}

/** @param {HTMLElement} place @param {GalleryEntry[]} entries */
export async function showGallery(place, entries) {
  place.replaceChildren(Object.assign(document.createElement('h2'), {textContent: 'Gallery'}));
  if (!entries.length) add(place, 'p', 'No campaign has finished yet.');
  const pictures = entries.map(entry => {
    const card = add(place, 'section', '');
    card.className = 'card';
    const link = document.createElement('a');
    link.href = `#run=${entry.job}`;
    link.textContent = `${entry.lab}${entry.profile ? `, ${entry.profile}` : ''}`;
    add(card, 'h3', '').append(link);
    add(card, 'p', `campaign ${entry.job}, qbed ${entry.qbed}, toolchain ${entry.toolchain}`);
    const picture = add(card, 'div', '');
    picture.className = 'picture';
    const details = card.appendChild(document.createElement('details'));
    add(details, 'summary', tally(Object.values(entry.claims).map(history => history[0])));
    const list = details.appendChild(document.createElement('ul'));
    for (const [name, history] of Object.entries(entry.claims)) {
      const line = verdictLine(list, {...history[0], name}, '');
      line.querySelector('small')?.remove();
      for (const verdict of history) {
        const {mark} = verdictText(verdict), text = `${verdict.verdict}${mark ? ` (${mark})` : ''} ${measuredText(verdict.measured)}`;
        add(line, 'small', `qbed ${verdict.qbed} (${verdict.toolchain}): ${text}`);
      }
    }
    return {picture, entry};
  });
  for (const {picture, entry} of pictures) await showPicture(picture, entry);
}
