// SPDX-License-Identifier: Apache-2.0
// Colours that colour-blind people can tell apart: cividis for depth, Okabe and Ito's for curves and for the use of links.

const STOPS = [[0, 34, 78], [67, 78, 108], [124, 123, 120], [187, 175, 113], [254, 232, 56]];

/** Dark blue to yellow, even to the eye and in grey. @type {number[][]} */
export const RAMP = Array.from({length: 256}, (_, i) => {
  const at = i / 255 * (STOPS.length - 1), k = Math.min(Math.floor(at), STOPS.length - 2), f = at - k;
  return STOPS[k].map((value, c) => Math.round(value + f * (STOPS[k + 1][c] - value)));
});

export const CURVES = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#6f4e9c', '#8c6d31'];

/** The place on the ramp of a depth, by its root so that short queues differ. @param {number} bytes @param {number} highest */
export function depthLevel(bytes, highest) {
  return Math.min(255, Math.round(255 * Math.sqrt(Math.max(0, bytes || 0) / Math.max(1, highest))));
}

/** @param {number} bytes @param {number} highest */
export function depthColour(bytes, highest) {
  const [red, green, blue] = RAMP[depthLevel(bytes, highest)];
  return `rgb(${red} ${green} ${blue})`;
}

/** Classes of a link's use: their lower bounds, colours, line widths and names. Width and colour show the same class. */
export const USES = [
  {from: 0, colour: '#9aa5b1', width: 1, name: 'under 1 %'},
  {from: 0.01, colour: '#56b4e9', width: 1.5, name: 'to 25 %'},
  {from: 0.25, colour: '#0072b2', width: 2.5, name: 'to 50 %'},
  {from: 0.5, colour: '#e69f00', width: 3.5, name: 'to 90 %'},
  {from: 0.9, colour: '#d55e00', width: 5, name: 'over 90 %'},
];

/** The class of a use; the lowest if it is unknown. @param {number} use */
export function useClass(use) {
  let found = 0;
  USES.forEach((entry, index) => { if (use >= entry.from) found = index; });
  return found;
}

/** A colour of the page's style. @param {string} name */
export function style(name) { return getComputedStyle(document.documentElement).getPropertyValue(name); }

/** Size a canvas for its place; returns its context in CSS pixels. @param {HTMLCanvasElement} canvas */
export function surface(canvas) {
  const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '12px sans-serif';
  return {context, width, height};
}
