// SPDX-License-Identifier: Apache-2.0
// The legend of the topology: the classes of a link's use.

import {USES} from './colours.js';

/** @param {HTMLElement} list */
export function showUses(list) {
  list.replaceChildren(...USES.map(entry => {
    const line = document.createElement('li'), bar = line.appendChild(document.createElement('span'));
    bar.className = 'bar';
    bar.style.background = entry.colour;
    bar.style.height = `${entry.width}px`;
    line.append(entry.name);
    return line;
  }));
}
