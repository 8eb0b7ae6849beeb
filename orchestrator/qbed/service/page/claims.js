// SPDX-License-Identifier: Apache-2.0
// Claims and their verdicts. Whether a claim holds or is refuted has no colour: a verdict that was not expected has a mark.

/** @import {Verdict} from './types.d.ts' */

/** @param {unknown} value @returns {string} */
export function number(value) {
  if (typeof value === 'number') return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
  if (Array.isArray(value)) return value.map(number).join(' | ');
  return String(value);
}

/** @param {Record<string, unknown>} measured */
export function measuredText(measured) {
  return Object.entries(measured).map(([name, value]) => `${name} ${number(value)}`).join(', ');
}

/** The text of a verdict, and whether it has a mark. @param {Verdict} verdict */
export function verdictText(verdict) {
  return {
    text: `${verdict.name}: ${verdict.verdict}`,
    mark: verdict.contradicted ? 'not as expected' : '',
    detail: [
      verdict.paper, verdict.reason ?? measuredText(verdict.measured),
      ...(verdict.caveats ?? []).map(caveat => `Caution: ${caveat}.`),
    ].filter(Boolean).join(' '),
  };
}

/** @param {HTMLElement} list @param {Verdict} verdict @param {string | null} detail */
export function verdictLine(list, verdict, detail = null) {
  const line = list.appendChild(document.createElement('li')), {text, mark, detail: usual} = verdictText(verdict);
  line.append(text);
  if (mark) {
    line.className = 'marked';
    line.append(' ', Object.assign(document.createElement('strong'), {className: 'mark', textContent: `\u26a0 ${mark}`}));
  }
  if (detail ?? usual) line.appendChild(document.createElement('small')).textContent = detail ?? usual;
  return line;
}

/** @param {HTMLElement} list @param {Verdict[]} verdicts */
export function showClaims(list, verdicts) {
  list.replaceChildren();
  for (const verdict of verdicts) verdictLine(list, verdict);
}

/** Adds a message to a list of at most 50. @param {HTMLElement} list @param {string} text */
export function addMessage(list, text) {
  list.appendChild(document.createElement('li')).textContent = text;
  while (list.children.length > 50) list.firstElementChild?.remove();
}
