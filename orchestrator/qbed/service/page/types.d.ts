// SPDX-License-Identifier: Apache-2.0
// The events and replies of the API, for the type checker (tools/page). Not served.

export interface Link { a: number; b: number; queues: number[]; rate_bps: number }

export interface Cell {
  cell: number; duration_ns: number; from_ns: number; bin_ns: number; clock: {clock?: string};
  queues: string[]; nodes: string[]; kinds: string[]; links: Link[];
}

export interface QueueBatch {
  queue: number[]; bin: number[]; ns: number[]; min: number[]; mean: number[]; max: number[];
  dequeued: number[]; dequeued_bytes: number[]; dropped: number[]; marked: number[];
}

export interface RateBatch { flow: number[]; bin: number[]; bps: number[] }

export interface QueueTotals {
  port: string[]; mean_bytes: number[]; max_bytes: number[]; sent_packets: number[]; sent_bytes: number[];
  dropped_packets: number[]; marked_packets: number[];
}

export interface FlowTotals {
  flow: number[]; label: (string | null)[]; src: string[]; dst: string[]; transport: string[]; status: string[];
  size_bytes: (number | null)[]; start_ns: number[]; end_ns: (number | null)[]; received_bytes: number[]; fct_ns: (number | null)[];
  goodput_bps: (number | null)[]; retransmits: (number | null)[]; timeouts: (number | null)[];
}

export interface Totals { cell: number; queues: QueueTotals; flow_count: number; flows: FlowTotals }

export interface Verdict {
  name: string; paper: string; verdict: string; contradicted: boolean; expect?: string; reason?: string | null;
  measured: Record<string, unknown>; caveats?: string[]; qbed?: string; toolchain?: string;
}

export interface Job {
  id: number; name: string; state: string; exit_status: number | null; phase: string | null;
  request: {profile: string | null}; cells: number | null; done: number | null; verdicts: Verdict[]; messages: string[];
}

export interface CellRow { cell: number; status: string; [axis: string]: unknown }

export interface GalleryEntry {
  lab: string; profile: string | null; job: number; qbed: string; toolchain: string; claims: Record<string, Verdict[]>;
}

export interface View {
  show(series: import('./series.js').Series | null): void;
  draw(): void;
}
