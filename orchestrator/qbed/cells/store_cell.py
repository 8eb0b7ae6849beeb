# SPDX-License-Identifier: Apache-2.0
"""Convert a finished cell's `out/` folder into the cell's rows of the run's tables."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path as File

import pyarrow as pa
import pyarrow.compute as pc

from qbed.base.files import open_regular
from qbed.base.json_files import Row
from qbed.cells import sojourns, switches
from qbed.cells.arrow import CellFile, flow_table
from qbed.cells.ecn_coverage import PairEcn, marks_without_ecn
from qbed.cells.exchanges import exchanges
from qbed.cells.flow_statistics import FlowStatistics
from qbed.cells.frames import interface_rows
from qbed.cells.ideal import Options, ideal_rate_ns, ideal_tcp_ns, ideal_udp_ns
from qbed.cells.plausibility import Evidence, examine
from qbed.cells.probes import Probes
from qbed.cells.program_output import OutputError, parse_output, read_head
from qbed.cells.rows import MALFORMED, batches, describe_error, table_of_rows
from qbed.cells.tap_tables import TapTables
from qbed.plan.model import Path, Plan
from qbed.plan.workload import Flows
from qbed.schemes.declaration import registry
from qbed.telemetry import flow_samples, probes
from qbed.telemetry.console import kernel_warnings
from qbed.telemetry.exchanges import EXCHANGES
from qbed.telemetry.records import Counters, RecordError, read_counters, read_done, read_rows
from qbed.telemetry.taps import (
    TapError,
)
from qbed.telemetry.wall import FILE, read_wall

PROGRAMS = "programs.ndjson"
_TRACED_AS = {"tcp_info": "tcpinfo.ndjson", "rates": "rates.ndjson"}
"""The names under which a trace covers flow samples. Renaming them would change every lock."""
ROUNDING_NS = 20  # the link device keeps whole nanoseconds: less than one is lost at each hop of a round trip


def store_cell(folder: File, plan: Plan, into: File) -> Row:
    """Write the tables of the cell in `folder/out` to `into`; returns the measured columns of its row of `cells`.

    Neither contains the cell's number or the values of its axes: equal cells of different campaigns have equal tables.
    Raises `TapError` or `RecordError` if the guest's files are invalid.
    """
    try:
        return _store_cell(folder, plan, into)
    except (RecordError, TapError):
        raise
    except MALFORMED as error:
        raise RecordError(f"the guest's records do not fit together: {describe_error(error)}") from error


def _store_cell(folder: File, plan: Plan, into: File) -> Row:
    out = folder / "out"
    done = read_done(out / "done.json")
    if done is None or done.status != "complete" or done.end_ns is None:
        raise RecordError("the cell is not complete: the status in out/done.json is not `complete`")
    counters = read_counters(out / "counters.json")
    taps, wall = TapTables(plan), read_wall(out)
    taps.store(out / "taps.bin", into, plan.duration_ns if wall is None else done.end_ns)
    flows = _Flows(plan, done.end_ns, ROUNDING_NS if wall is None else wall.slack_ns)
    _write(into, "flows", flows.batches(out / "flows.ndjson"))
    if flows.probed or (out / probes.FILE).exists():
        _write(into, "probes", Probes(flows.probed).batches(out / probes.FILE))
    _write(into, "queues", [taps.queues(counters)])
    statistics = FlowStatistics(plan.flow_statistics)
    sampled = _store_flow_samples(plan, out / flow_samples.FILE, into, statistics)
    if (out / "routes.ndjson").exists():
        changes = map(_route_change, read_rows(out / "routes.ndjson"))
        _write(into, "routes", batches("routes", changes, "routes.ndjson"))
    if (out / EXCHANGES).exists():
        _write(into, "exchanges", exchanges(plan, out / EXCHANGES))
    if plan.statistics_interval_ns:
        rows = itertools.chain.from_iterable(
            taps.statistics_rows(record, counters) for record in read_rows(out / "statistics.ndjson")
        )
        _write(into, "statistics", batches("statistics", rows, "statistics.ndjson"))
    if plan.sojourn:
        _store_sojourns(plan, taps.sojourns(counters), into)
    if plan.windows:
        _write(into, "queue_windows", [taps.queue_windows(counters)])
        _write(into, "flow_windows", batches("flow_windows", taps.windows.of_flows(out, done.end_ns), "windows.ndjson"))
        _write(into, "windows", [table_of_rows("windows", taps.windows.rows(), "windows.ndjson")])
    if plan.p4:
        _write(into, "switches", [table_of_rows("switches", switches.rows(plan, counters), "counters.json")])
        _write(into, "p4_arrays", [table_of_rows("p4_arrays", switches.array_rows(plan, counters), "counters.json")])
    output = _ProgramOutput(plan, out)
    if plan.launches:
        _write(into, "program_records", batches("program_records", output.records(), PROGRAMS))
        _write(into, "programs", batches("programs", output.programs(), PROGRAMS))
    if wall is not None:
        _write(into, "interfaces", [table_of_rows("interfaces", interface_rows(plan, wall), FILE)])
    evidence = examine(plan, taps.summaries, counters, wall)
    evidence.contradictions.extend(flows.contradictions)
    evidence.contradictions.extend(f"kernel message: {line}" for line in kernel_warnings(folder))
    if not evidence.contradictions:  # inconsistent counters would give misleading warnings
        evidence.warnings.extend(marks_without_ecn(plan, counters, flows.ecn_by_pair, one_path=flows.one_path))
    of_schemes = {node.name for node in plan.nodes if node.pipeline and node.pipeline.program in registry()}
    evidence.warnings.extend(switches.warnings(counters, of_schemes))
    evidence.warnings.extend(output.warnings)
    evidence.warnings.extend(statistics.warnings)
    row = _totals(plan, taps, flows, evidence, counters, done.end_ns)
    return row | {"trace_sha256": _trace(out, sampled)}


def _store_sojourns(plan: Plan, found: sojourns.Sojourns, into: File) -> None:
    _write(into, "sojourns", [table_of_rows("sojourns", found.rows(), "taps.bin")])
    if plan.windows:
        _write(into, "sojourn_windows", [table_of_rows("sojourn_windows", found.windows(), "taps.bin")])


def _store_flow_samples(plan: Plan, path: File, into: File, statistics: FlowStatistics) -> dict[str, str]:
    """Write the tables of flow samples; returns their part of the trace. Statistics of congestion controls have none:
    as counters, they follow from the packets.
    """
    traces = {"tcp_info": hashlib.sha256()} if plan.flow_interval_ns else {}
    if traces and any(workload.transport == "rate" for workload in plan.workloads):
        traces["rates"] = hashlib.sha256()
    tables = [*traces, *([flow_samples.STATISTICS] if plan.flow_statistics else [])]
    if not tables:
        return {}
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(CellFile(into / f"{name}.arrow")) for name in tables}
        for name, records in flow_samples.read_flow_samples(path):
            if name not in files:
                raise RecordError(f"{path.name}: samples for `{name}`, but the plan has no such flows")
            table = statistics.table(records) if name not in traces else flow_table(name, records)
            files[name].add(table)
            if name in traces:
                traces[name].update(_json_lines(table))
    return {_TRACED_AS[name]: digest.hexdigest() for name, digest in traces.items()} if path.exists() else {}


def _json_lines(table: pa.Table) -> bytes:
    """The rows as compact JSON objects, one a line: the form in which a trace covers flow samples."""
    parts: list[str | pa.Array] = []
    for name in table.column_names:
        texts = pc.fill_null(pc.cast(table[name].combine_chunks(), pa.string()), "null")
        if table.schema.field(name).type == pa.string():
            texts = pc.binary_join_element_wise('"', texts, '"', "")
        parts += [f',"{name}":', texts]
    parts[0] = "{" + parts[0][1:]
    return "".join(pc.binary_join_element_wise(*parts, "}\n", "").to_pylist()).encode()


def _trace(out: File, sampled: dict[str, str]) -> str:
    """SHA-256 over the guest's taps, captures and records. Counters are left out: they follow from the packets.

    `sampled`: the hashes of flow samples, by name.
    """
    patterns = ("taps.bin", probes.FILE, EXCHANGES, "*.ndjson", "*.pcap")
    hashes = {path.name: _sha256(path) for pattern in patterns for path in out.glob(pattern)} | sampled
    return hashlib.sha256("".join(f"{name} {hashes[name]}\n" for name in sorted(hashes)).encode()).hexdigest()


def _sha256(path: File) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(into: File, table: str, batches: Iterable[pa.Table]) -> None:
    with CellFile(into / f"{table}.arrow") as file:
        for batch in batches:
            file.add(batch)


def _totals(plan: Plan, taps: TapTables, flows: _Flows, evidence: Evidence, counters: Counters, end_ns: int) -> Row:
    ends = [end for pair in counters.links for end in (pair.a, pair.b)]
    return {
        "status": "invalid" if evidence.contradictions else "complete",
        "duration_ns": plan.duration_ns,
        "end_ns": end_ns,
        "bottleneck": evidence.bottleneck,
        **flows.totals,
        "dropped_packets": sum(summary.dropped_packets for summary in taps.summaries.values()),
        "marked_packets": sum(summary.marked_packets for summary in taps.summaries.values()),
        "lost_packets": sum(end.lost for end in ends),
        "goodput_bps": flows.goodput_bps,
        "contradictions": evidence.contradictions,
        "warnings": evidence.warnings,
        "evidence": json.dumps(evidence.details, sort_keys=True),
    }


def _route_change(record: Row) -> Row:
    """The row of the table `routes` for a record of routes.ndjson."""
    via = record.get("via", [])
    return {
        "time_ns": record["time_ns"],
        "node": record["node"],
        "change": record["change"],
        "link": record.get("link"),
        "destination": record.get("to"),
        "protocol": record.get("protocol"),
        "interfaces": [hop["interface"] for hop in via],
        "gateways": [hop.get("gateway") for hop in via],
    }


class _ProgramOutput:
    """The outcomes and outputs of the cell's programs. Memory: the rows of one program."""

    def __init__(self, plan: Plan, out: File) -> None:
        self._out, self._plan = out, plan
        self._rows = list(read_rows(out / PROGRAMS)) if plan.launches else []
        self._records = dict.fromkeys((row["launch"] for row in self._rows), 0)
        self.warnings: list[str] = []

    def records(self) -> Iterator[Row]:
        """Generate the rows of `program_records` and count them for `programs`."""
        for row in self._rows:
            found = self._read(row, self._plan.launches[row["launch"]].output)
            self._records[row["launch"]] = len(found)
            program = {name: row[name] for name in ("program", "label", "node")}
            yield from (program | record for record in found)

    def programs(self) -> Iterator[Row]:
        """Generate the rows of `programs`; `records` must be exhausted first."""
        for row in self._rows:
            text: Row = {}
            for stream in ("stdout", "stderr"):
                text[stream], text[f"{stream}_bytes"] = (
                    read_head(self._file(row, stream)) if self._ran(row) else ("", 0)
                )
            yield row | text | {"exit_status": row["status"], "records": self._records[row["launch"]]}

    def _read(self, row: Row, output: str) -> list[Row]:
        """Parse a program's output. An invalid output is only a warning: the rest of the cell is not affected."""
        if self._ran(row):
            try:
                return parse_output(self._file(row, "stdout"), output)
            except OutputError as error:
                self.warnings.append(f"the output of {row['label']} on {row['node']} is not {output}: {error}")
        return []

    @staticmethod
    def _ran(row: Row) -> bool:
        return row["start_ns"] is not None

    def _file(self, row: Row, stream: str) -> File:
        return self._out / f"program-{row['launch']}-{row['node']}.{stream}"


class _Flows:
    """Rows of `flows` with derived columns, and totals over all flows."""

    def __init__(self, plan: Plan, end_ns: int, rounding_ns: int = ROUNDING_NS) -> None:
        self._plan = plan
        self._end_ns = end_ns
        self._rounding_ns = rounding_ns
        self._paths: dict[tuple[int, int], Path] = {}
        self.one_path = plan.one_path
        self._workloads = {workload.id: workload for workload in plan.workloads}
        self.contradictions: list[str] = []
        self.ecn_by_pair: dict[tuple[int, int], PairEcn] = {}
        self.probed: dict[int, Row] = {}
        names = (
            "flows",
            "flows_complete",
            "flows_failed",
            "flows_unlimited",
            "received_bytes",
            "retransmits",
            "timeouts",
        )
        self.totals: dict[str, int] = dict.fromkeys(names, 0)
        self._active: tuple[int, int] | None = None

    @property
    def goodput_bps(self) -> float | None:
        """Bytes received by all flows, divided by the time from the first start to the last end."""
        if self._active is None or self._active[1] <= self._active[0]:
            return None
        return self.totals["received_bytes"] * 8e9 / (self._active[1] - self._active[0])

    def batches(self, path: File) -> Iterator[pa.Table]:
        return batches("flows", map(self._row, read_rows(path)), path.name)

    def _row(self, record: Row) -> Row:
        try:
            row = record | self._derived(record)
            self._count(record, row)
        except MALFORMED as error:
            raise RecordError(f"flows.ndjson: flow {record.get('flow')}: {describe_error(error)}") from error
        return row

    def _count(self, record: Row, row: Row) -> None:
        pair = self.ecn_by_pair.setdefault((record["src"], record["dst"]), PairEcn())
        if record["transport"] == "probe":
            self.probed[record["flow"]] = row
        pair.flows, pair.with_ecn = pair.flows + 1, pair.with_ecn + bool(record.get("ecn"))
        self.totals["flows"] += 1
        self.totals["flows_complete"] += row["status"] == "complete"
        self.totals["flows_failed"] += row["status"] == "failed"
        self.totals["flows_unlimited"] += row["status"] == "running" and record.get("size_bytes") is None
        for name in ("received_bytes", "retransmits", "timeouts"):
            self.totals[name] += row.get(name) or 0
        begin, end = row["start_ns"], self._end_ns if row["end_ns"] is None else row["end_ns"]
        self._active = (
            (begin, end) if self._active is None else (min(begin, self._active[0]), max(end, self._active[1]))
        )
        if (
            self.one_path
            and row["slowdown"] is not None
            and row["fct_ns"] < row["ideal_fct_ns"] - self._rounding_ns
            and len(self.contradictions) < 5
        ):
            self.contradictions.append(
                f"flow {row['flow']} took {row['fct_ns']} ns, but its path needs {row['ideal_fct_ns']} ns"
            )

    def _derived(self, record: Row) -> Row:
        nodes = self._plan.nodes
        start, end = record["start_ns"], record["end_ns"]
        taken = (self._end_ns if end is None else end) - start
        ideal = self._ideal(record) if record["status"] == "complete" else None
        fct = None if end is None else end - start
        return {
            "src": nodes[record["src"]].name,
            "dst": nodes[record["dst"]].name,
            "fct_ns": fct,
            "ideal_fct_ns": ideal,
            "slowdown": fct / ideal if fct is not None and ideal else None,
            "goodput_bps": record["received_bytes"] * 8e9 / taken if taken > 0 else None,
        }

    def _ideal(self, record: Row) -> int | None:
        size, workload = record["size_bytes"], self._workloads[record["workload"]]
        if not size:
            return None
        src, dst, family = record["src"], record["dst"], 6 if ":" in record["dst_address"] else 4
        forward, reverse = self._path(src, dst), self._path(dst, src)
        if isinstance(workload, Flows) and workload.transport == "udp":
            assert workload.packet_bytes is not None and workload.rate_bps is not None
            return ideal_udp_ns(
                forward, size, family=family, packet_bytes=workload.packet_bytes, rate_bps=workload.rate_bps
            )
        if workload.transport == "rate":
            sender = self._plan.nodes[src].controller
            assert workload.payload_bytes is not None and sender is not None
            headers, payload = sender.header_bytes, workload.payload_bytes
            return ideal_rate_ns(forward, size, family=family, payload_bytes=payload, congestion_bytes=headers)
        ends = Options.of(self._plan.nodes[src].sysctls), Options.of(self._plan.nodes[dst].sysctls)
        handshake = workload.connect == "at start"
        return ideal_tcp_ns(forward, reverse, size, family=family, handshake=handshake, ends=ends)

    def _path(self, src: int, dst: int) -> Path:
        if (src, dst) not in self._paths:
            self._paths[src, dst] = self._plan.path(src, dst)
        return self._paths[src, dst]
