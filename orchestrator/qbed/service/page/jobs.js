// SPDX-License-Identifier: Apache-2.0
// The list of campaigns, their states in words, and the form that starts one.

import {get} from './api.js';

/** @import {Job} from './types.d.ts' */

export const ENDED = ['finished', 'failed', 'cancelled'];

/** @param {Job} job */
export function stateText(job) {
  if (job.state === 'running' && job.cells) return `${job.phase ?? 'running'}, ${Math.floor(job.done ?? 0)} of ${job.cells} cells`;
  if (job.state === 'running') return job.phase ?? 'running';
  if (job.state === 'finished') return job.exit_status === 0 ? 'finished, all as expected' : 'finished, not as expected';
  return job.state;
}

/** The class of a state: only what needs attention has one. @param {Job} job */
export function stateClass(job) {
  return job.state === 'failed' || (job.state === 'finished' && job.exit_status) ? 'marked' : '';
}

/** @param {HTMLElement} list @param {Job[]} jobs @param {number | null} chosen @param {(job: number) => void} choose */
export function showJobs(list, jobs, chosen, choose) {
  const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.job;
  list.replaceChildren(...jobs.map(job => {
    const line = document.createElement('li'), button = line.appendChild(document.createElement('button'));
    button.type = 'button';
    button.dataset.job = String(job.id);
    button.append(`${job.id} ${job.name}`);
    button.appendChild(document.createElement('small')).textContent = stateText(job);
    button.setAttribute('aria-current', String(job.id === chosen));
    button.addEventListener('click', () => choose(job.id));
    return line;
  }));
  if (focused) /** @type {HTMLElement | null} */ (list.querySelector(`[data-job="${focused}"]`))?.focus();
}

/** Fills the form's choices. @param {HTMLSelectElement} lab @param {HTMLSelectElement} profile */
export async function fillForm(lab, profile) {
  /** @type {{name: string, profiles: string[]}[]} */
  const labs = await get('/labs');
  lab.replaceChildren(...labs.map(entry => new Option(entry.name, entry.name, false, entry.name === 'dumbbell')));
  const profiles = () => {
    const chosen = labs.find(entry => entry.name === lab.value);
    profile.replaceChildren(...[...chosen?.profiles ?? [], ''].map(name => new Option(name || 'everything', name)));
  };
  lab.addEventListener('change', profiles);
  profiles();
}
