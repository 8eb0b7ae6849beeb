// SPDX-License-Identifier: Apache-2.0
// Every lab's last campaign, and each claim over the versions of qbed that have run it.

function line(parent, kind, text, tone) {
  const made = parent.appendChild(document.createElement(kind));
  made.textContent = text;
  if (tone) made.className = tone;
  return made;
}

const described = measured => Object.entries(measured).map(([name, value]) => (
  `${name} ${typeof value === 'number' ? Number(value.toPrecision(4)) : value}`)).join(', ');

export function showGallery(place, entries) {
  place.replaceChildren();
  if (!entries.length) line(place, 'p', 'No campaign has finished yet.');
  for (const entry of entries) {
    const card = line(place, 'section', '', 'card');
    line(card, 'h2', `${entry.lab}${entry.profile ? `, ${entry.profile}` : ''}`);
    line(card, 'p', `campaign ${entry.job}, qbed ${entry.qbed}, toolchain ${entry.toolchain}`);
    const list = card.appendChild(document.createElement('ul'));
    for (const [name, history] of Object.entries(entry.claims)) {
      const last = history[0];
      const claim = line(list, 'li', `${name}: ${last.verdict}${last.contradicted ? ', not as expected' : ''}`, last.contradicted ? 'bad' : '');
      for (const verdict of history) line(claim, 'small', `qbed ${verdict.qbed} (${verdict.toolchain}): ${verdict.verdict} ${described(verdict.measured)}`);
    }
  }
}
