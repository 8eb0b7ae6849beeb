# SPDX-License-Identifier: Apache-2.0
"""Resources that a lab's traffic needs: socket buffers for the longest path, and memory of the lab's kernel.

Memory is an upper estimate, not a reservation: the kernel's untouched pages are never allocated on the machine.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, islice, pairwise

from qbed.network.frames import ETHERNET_BYTES
from qbed.network.resolve import ResolvedLab
from qbed.network.routes import Out
from qbed.plan import workload as p
from qbed.plan.model import End, Link

_MIB = 1 << 20
_BASE = 192 * _MIB
_PER_PROGRAM = 24 * _MIB
_PER_NODE, _PER_LINK, _PER_FLOW, _PER_CLOSED_FLOW = 768 << 10, 64 << 10, 16 << 10, 1 << 10
# Open-loop flows are assumed to last at most this long on average, and to linger (TIME-WAIT) for the rest of the lab.
_ARRIVAL_LIFE_NS = 50_000_000
# A segment of 1448 bytes that waits in a sender's queue occupies about 2.5 KB.
_TRUESIZE = 1.75
# Slow start sends twice what fits before it learns, and a sending socket keeps as much again ready.
_OVERSHOOT = 3
_QUEUED = 4 * _MIB
MAX_COPIED = 128 * _MIB
"""More payload than that, waiting in senders at once, is not copied there: it would keep everything else out of the
machine's caches, and its host would have to clear as much memory first.
"""
_UNEQUAL = 2  # a part may have twice its share
_LARGEST_SOCKET_BUFFER = 1 << 30  # TCP's window has at most 30 bits
_MAX_PAIRS = 4096


class Demand:
    """Numbers for a compiled network and its workloads."""

    def __init__(
        self,
        resolved: ResolvedLab,
        links: Sequence[Link],
        workloads: Sequence[p.Workload],
        programs: int = 0,
    ) -> None:
        self.routing, self.links = resolved.routing, links
        self.duration_ns = resolved.lab.duration
        self.programs = programs
        self.buffers = [
            resolved.queues[i, side].buffer_bytes(link.mtu + ETHERNET_BYTES)
            for i, link in enumerate(links)
            for side in ("a", "b")
        ]
        self._found: dict[tuple[int, int], list[Out]] = {}
        self.longest_rtt_ns = 0
        self.socket_buffer_bytes = 0
        in_flight = self._measure(workloads)
        self.memory_bytes = self._memory(sum(map(self._sockets, workloads)), in_flight)

    def _end(self, out: Out) -> End:
        link = self.links[out[0]]
        return link.b if out[1] else link.a

    def _measure(self, workloads: Sequence[p.Workload]) -> int:
        """Payload that can be in flight at once, over all bottlenecks; sets the longest RTT and the socket buffer."""
        longest: dict[Out, int] = defaultdict(int)
        buffers: dict[Out, int] = defaultdict(int)
        bounds: dict[Out, float] = defaultdict(float)
        crowds: Counter[Out] = Counter()
        for workload in workloads:
            for pair, count in Counter(_pairs(workload)).items():
                for out in self._outs(*pair):
                    crowds[out] += count
        paths: dict[tuple[int, int], tuple[int, int, Out]] = {}
        for workload in workloads:
            for pair, count in Counter(_pairs(workload)).items():
                if pair not in paths:
                    paths[pair] = self._path(*pair, crowds)
                rtt, waiting, bottleneck = paths[pair]
                longest[bottleneck] = max(longest[bottleneck], rtt)
                buffers[bottleneck] = max(buffers[bottleneck], waiting)
                size = workload.size_bytes if isinstance(workload, p.Flows) else None
                bounds[bottleneck] += float("inf") if size is None else count * size
        if not longest:
            self._default_path()
        total = 0
        for out, rtt in longest.items():
            bdp = self._end(out).rate_bps * rtt // 8_000_000_000
            self._note(rtt, bdp + buffers[out])
            total += int(min(bdp + buffers[out], bounds[out]))
        return total

    def _default_path(self) -> None:
        """Without workloads (an interactive lab): the path between the first host and the last."""
        hosts = [i for i, is_host in enumerate(self.routing.is_host) if is_host]
        if len(hosts) > 1 and self.routing.path(hosts[0], hosts[-1]):
            rtt, waiting, out = self._path(hosts[0], hosts[-1], Counter())
            self._note(rtt, self._end(out).rate_bps * rtt // 8_000_000_000 + waiting)

    def _note(self, rtt_ns: int, window_bytes: int) -> None:
        self.longest_rtt_ns = max(self.longest_rtt_ns, rtt_ns)
        # Twice for the kernel's own bookkeeping (tcp_adv_win_scale's successor), twice for what slow start overshoots.
        needed = min(_LARGEST_SOCKET_BUFFER, 4 * window_bytes)
        self.socket_buffer_bytes = max(self.socket_buffer_bytes, needed)

    def _outs(self, source: int, target: int) -> list[Out]:
        key = (source, target)
        if key not in self._found:
            self._found[key] = self.routing.path(source, target) or []
        return self._found[key]

    def _path(self, source: int, target: int, crowds: Counter[Out]) -> tuple[int, int, Out]:
        """Base RTT in ns, the bottleneck's buffer in bytes, and the bottleneck: where a flow's fair share is
        smallest.
        """
        outs = self._outs(source, target)
        rtt = sum(self.links[i].a.delay_ns + self.links[i].b.delay_ns for i, _ in outs)
        rtt += sum(self._end(out).transmit_ns(self.links[out[0]].mtu + ETHERNET_BYTES) for out in outs)
        bottleneck = min(outs, key=lambda out: self._end(out).rate_bps / max(1, crowds[out]))
        return rtt, self.buffers[2 * bottleneck[0] + bottleneck[1]], bottleneck

    def _sockets(self, workload: p.Workload) -> int:
        """Bytes of the sockets that a workload has at once."""
        if isinstance(workload, p.Exchanges):
            ends = len(workload.pairs or ()) or len(workload.sources or ()) * len(workload.destinations or ())
            # Each has two ends; one that is new for each exchange leaves another in TIME-WAIT.
            return 2 * (_PER_FLOW if workload.persistent else 2 * _PER_FLOW) * ends * workload.outstanding
        if isinstance(workload, p.Flows) and not workload.each:
            return _PER_FLOW * len(workload.pairs)
        if isinstance(workload, p.Flows):
            arrivals = len(workload.each)
            return self._coming_and_going(arrivals, max(1.0, self.duration_ns / arrivals))
        return self._coming_and_going(*_arrivals(workload, self.duration_ns))

    @staticmethod
    def _coming_and_going(flows: int, mean_ns: float) -> int:
        """Bytes of the sockets of flows that start so long after each other."""
        return _PER_FLOW * min(flows, int(_ARRIVAL_LIFE_NS / mean_ns) + 1000) + _PER_CLOSED_FLOW * flows

    def _memory(self, sockets: int, in_flight: int) -> int:
        buffers = sum(min(size, 4 * _MIB) for size in self.buffers) // 8
        total = (
            _BASE
            + _PER_PROGRAM * self.programs
            + _PER_NODE * len(self.routing.is_host)
            + _PER_LINK * len(self.links)
            + sockets
            + int((_OVERSHOOT * in_flight + min(buffers, 256 * _MIB)) * _TRUESIZE)
        )
        return _round_up(total)

    def memory_of_part(self, parts: int) -> int:
        """Memory of the kernel of each of several parts, which may have unequal loads."""
        if parts == 1:
            return self.memory_bytes
        return min(self.memory_bytes, _round_up(_BASE + _UNEQUAL * self.memory_bytes // parts))


def _round_up(size: int) -> int:
    return -(-size // (16 * _MIB)) * 16 * _MIB


def queued_bytes(workloads: Iterable[p.Workload], duration_ns: int) -> int:
    """Payload that TCP flows hand to their sockets as they start, of those that run at once: 4 MB at most each."""
    return sum(_queued_bytes(workload, duration_ns) for workload in workloads)


def _queued_bytes(workload: p.Workload, duration_ns: int) -> int:
    if isinstance(workload, p.Exchanges) or workload.transport != "tcp":
        return 0
    if isinstance(workload, p.Arrivals):
        flows, mean_ns = _arrivals(workload, duration_ns)
        return round(min(flows, _ARRIVAL_LIFE_NS / mean_ns) * mean_bytes(workload.size, _QUEUED))
    if workload.each:
        return sum(min(size, _QUEUED) for _, size in workload.each)
    return len(workload.pairs) * min(workload.size_bytes or _QUEUED, _QUEUED)


def _arrivals(workload: p.Arrivals, duration_ns: int) -> tuple[int, float]:
    """The expected number of flows of an open loop, and the mean time between them in ns."""
    mean_ns = max(1.0, workload.mean_interarrival_ns) / workload.flows_at_once
    flows = int(duration_ns / mean_ns) + workload.flows_at_once
    return flows if workload.limit is None else min(flows, workload.limit), mean_ns


def mean_bytes(size: p.Size, most: int) -> float:
    """The mean size if larger ones have `most` bytes: the integral of the probability of more than x bytes."""
    match size:
        case p.Fixed():
            return min(size.fixed, most)
        case p.Uniform():
            low, high = size.uniform
            return _area([(low, 0.0), (max(high, low + 1), 1.0)], most)
        case p.ParetoSize(pareto=pareto):
            least, most = pareto.mean_bytes * (1 - 1 / pareto.shape), min(most, pareto.max_bytes or most)
            if most <= least:
                return most
            return float(least + least / (pareto.shape - 1) * (1 - (least / most) ** (pareto.shape - 1)))
        case p.Cdf():
            return _area(size.cdf, most)


def _area(cdf: Sequence[tuple[int, float]], most: int) -> float:
    """The area above a distribution function with lines between its points, up to `most`."""
    area = float(min(cdf[0][0], most))
    for (left, below), (right, above) in pairwise(cdf):
        if left < most and right > left:
            end = min(right, most)
            at_end = below + (above - below) * (end - left) / (right - left)
            area += (end - left) * (1 - (below + at_end) / 2)
    return area


def _pairs(workload: p.Workload) -> Iterable[tuple[int, int]]:
    """Return pairs of sender and receiver; only the first thousands of a large product of sources and destinations."""
    if isinstance(workload, p.Exchanges):
        return chain.from_iterable(((a, b), (b, a)) for a, b in _ends(workload))
    return _ends(workload)


def _ends(workload: p.Workload) -> Iterable[tuple[int, int]]:
    if workload.pairs is not None:
        return workload.pairs
    assert not isinstance(workload, p.Flows)
    sources, targets = workload.sources or [], workload.destinations or []
    return islice(((a, b) for a in sources for b in targets if a != b), _MAX_PAIRS)
