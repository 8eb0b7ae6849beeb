// SPDX-License-Identifier: Apache-2.0
// Cells and batches for the tests of the page's logic.

/** A star of hosts around one switch. */
export function star(hosts, more = {}) {
  const names = Array.from({length: hosts}, (_, at) => `h${at + 1}`);
  const queues = names.flatMap(name => [`${name}>s1`, `s1>${name}`]);
  const links = names.map((_, at) => ({a: at + 1, b: 0, queues: [2 * at, 2 * at + 1], rate_bps: 1e9}));
  return {
    cell: 0, duration_ns: 1e6, from_ns: 0, bin_ns: 2000, clock: {}, queues, nodes: ['s1', ...names],
    kinds: ['switch', ...names.map(() => 'host')], links, ...more,
  };
}

/** A Clos network of racks with hosts, and spines that are linked to every rack. */
export function clos(racks, hosts, spines) {
  const nodes = [], kinds = [], links = [];
  const add = (name, kind) => { kinds.push(kind); return nodes.push(name) - 1; };
  const link = (a, b) => links.push({a, b, queues: [2 * links.length, 2 * links.length + 1], rate_bps: 1e9});
  const tops = Array.from({length: spines}, (_, at) => add(`spine${at + 1}`, 'switch'));
  for (let rack = 0; rack < racks; rack++) {
    const top = add(`rack${rack + 1}`, 'switch');
    for (const spine of tops) link(top, spine);
    for (let host = 0; host < hosts; host++) link(add(`h${rack * hosts + host + 1}`, 'host'), top);
  }
  const queues = links.flatMap(({a, b}) => [`${nodes[a]}>${nodes[b]}`, `${nodes[b]}>${nodes[a]}`]);
  return {cell: 0, duration_ns: 1e6, from_ns: 0, bin_ns: 2000, clock: {}, queues, nodes, kinds, links};
}

/** A batch of one queue: rows of [column, ns, minimum, mean, maximum, bytes that left]. */
export function batch(queue, ...rows) {
  const column = at => rows.map(row => row[at]), none = rows.map(() => 0);
  return {
    queue: rows.map(() => queue), bin: column(0), ns: column(1), min: column(2), mean: column(3), max: column(4),
    dequeued: none, dequeued_bytes: column(5), dropped: none, marked: none,
  };
}
