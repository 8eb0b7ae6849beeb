// SPDX-License-Identifier: Apache-2.0
// The topology, and the load of each link in its busier direction: the bytes of the frames that left the queue, as a
// share of the link's rate.

const SVG = 'http://www.w3.org/2000/svg';
const MAX_NODES = 300, WIDTH = 900, HEIGHT = 380;

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent?.append(made);
  return made;
}

// Switches in the middle, in their order; each switch's hosts around it.
function places(cell) {
  const found = new Array(cell.nodes.length), switches = [], hosts = new Map();
  cell.kinds.forEach((kind, node) => { if (kind === 'switch') switches.push(node); });
  for (const {a, b} of cell.links) {
    for (const [node, neighbor] of [[a, b], [b, a]]) {
      if (cell.kinds[node] !== 'switch' && cell.kinds[neighbor] === 'switch' && !hosts.has(node)) hosts.set(node, neighbor);
    }
  }
  const columns = Math.max(1, Math.min(switches.length, 8)), rows = Math.max(1, Math.ceil(switches.length / columns));
  switches.forEach((node, at) => {
    found[node] = [WIDTH * (at % columns + 0.5) / columns, HEIGHT * (Math.floor(at / columns) + 0.5) / rows];
  });
  const around = Map.groupBy ? Map.groupBy(hosts.keys(), host => hosts.get(host)) : new Map();
  if (!Map.groupBy) for (const [host, node] of hosts) around.set(node, [...(around.get(node) ?? []), host]);
  const wide = Math.min(WIDTH / columns, 260) * 0.4, high = Math.min(HEIGHT / rows, 340) * 0.38;
  for (const [node, members] of around) {
    members.forEach((host, at) => {
      const angle = Math.PI * 2 * (at + 0.5) / members.length + Math.PI / 2;
      found[host] = [found[node][0] + wide * Math.cos(angle), found[node][1] + high * Math.sin(angle)];
    });
  }
  for (let node = 0; node < found.length; node++) found[node] ??= [WIDTH * (node + 0.5) / found.length, HEIGHT / 2];
  return found;
}

export class Topology {
  constructor(svg) { this.svg = svg; svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`); }

  show(series) {
    this.series = series;
    this.lines = [];
    this.svg.replaceChildren();
    const {cell} = series;
    if (cell.nodes.length > MAX_NODES) {
      element('text', {x: 20, y: 30}, this.svg).textContent = `${cell.nodes.length} nodes: too many to draw`;
      return;
    }
    const at = places(cell);
    for (const link of cell.links) {
      const [x1, y1] = at[link.a], [x2, y2] = at[link.b];
      const line = element('line', {x1, y1, x2, y2, stroke: 'currentColor', 'stroke-width': 2}, this.svg);
      this.lines.push({link, line, title: element('title', {}, line)});
    }
    cell.nodes.forEach((name, node) => {
      const [x, y] = at[node];
      if (cell.kinds[node] === 'switch') element('rect', {x: x - 9, y: y - 9, width: 18, height: 18, rx: 3}, this.svg);
      else element('circle', {cx: x, cy: y, r: 7}, this.svg);
      if (cell.nodes.length <= 80) element('text', {x: x + 11, y: y + 4}, this.svg).textContent = name;
    });
    this.drawn = -1;
  }

  draw() {
    if (!this.series || this.drawn === this.series.version) return;
    this.drawn = this.series.version;
    const {nodes} = this.series.cell;
    for (const {link, line, title} of this.lines) {
      const bps = Math.max(...link.queues.map(queue => this.series.pace(queue)));
      const load = Math.min(1, bps / link.rate_bps);
      line.setAttribute('stroke-width', 1.5 + 6 * load);
      line.setAttribute('stroke', load > 0.9 ? '#d55e00' : load > 0.5 ? '#e69f00' : load > 0.01 ? '#0072b2' : '#9aa5b1');
      title.textContent = `${nodes[link.a]} - ${nodes[link.b]}: ${Math.round(100 * load)} % of its rate`;
    }
  }
}
