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
      const last = history[0], judged = last.verdict !== 'not asked';
      const claim = line(list, 'li', `${name}: ${last.verdict}`, judged ? last.verdict === last.expect ? 'good' : 'bad' : '');
      for (const one of history) line(claim, 'small', `qbed ${one.qbed} (${one.toolchain}): ${one.verdict} ${described(one.measured)}`);
    }
  }
}
