// SPDX-License-Identifier: Apache-2.0
// The state of the page in the URL's fragment, so that a link shows the same: campaign, cell, queues, instant, view.

/** @typedef {{run: number | null, cell: number | null, other: number | null, queues: string[], time: number | null, view: [number, number] | null}} Place */

/** @param {string} text @returns {number | null} */
function number(text) {
  const value = Number(text);
  return text !== '' && Number.isFinite(value) && value >= 0 ? value : null;
}

/** Parse a fragment; what is invalid is left out. @param {string} hash @returns {Place} */
export function parse(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, '')), get = (/** @type {string} */ name) => number(fields.get(name) ?? '');
  const [from, to] = (fields.get('view') ?? '').split('-').map(number);
  return {
    run: get('run'), cell: get('cell'), other: get('with'), queues: fields.getAll('queue').slice(0, 8), time: get('time'),
    view: from !== null && to != null && to > from ? [from, to] : null,
  };
}

/** The fragment of a place. Times are in ms. @param {Place} place */
export function format(place) {
  const fields = new URLSearchParams();
  if (place.run !== null) fields.set('run', String(place.run));
  if (place.cell !== null) fields.set('cell', String(place.cell));
  if (place.other !== null) fields.set('with', String(place.other));
  for (const queue of place.queues) fields.append('queue', queue);
  if (place.time !== null) fields.set('time', short(place.time));
  if (place.view !== null) fields.set('view', place.view.map(short).join('-'));
  return `#${fields}`;
}

/** @param {number} ms */
function short(ms) { return String(Number(ms.toFixed(6))); }
