# SPDX-License-Identifier: Apache-2.0
"""The evidence: books that agree are left alone, and every kind of disagreement is found."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from campaigns import LAB
from synthetic import write_out

from qbed.cells.plausibility import Evidence, QueueSummary, examine
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import LinkEvent, Plan
from qbed.telemetry.records import Counters
from qbed.telemetry.taps import SUMMARY_FIELDS, Run, read_taps


class Books:
    """The synthetic books of one run, to be tampered with."""

    def __init__(self, folder: Path) -> None:
        (folder / "lab.yml").write_text(LAB)
        self.plan: Plan = compile_lab(load_lab(folder / "lab.yml"), 1)
        write_out(self.plan, folder)
        self.counters: dict[str, Any] = json.loads((folder / "out" / "counters.json").read_text())
        self.summaries: dict[int, dict[str, int]] = {}
        for batch in read_taps(io.BytesIO((folder / "out" / "taps.bin").read_bytes()), len(self.plan.queues)):
            if isinstance(batch, Run) and batch.kind == "summaries":
                for record in batch.records:
                    self.summaries[int(record["id"])] = {name: int(record[name]) for name in SUMMARY_FIELDS}

    def node(self, name: str) -> dict[str, dict[str, int]]:
        nodes: list[dict[str, dict[str, int]]] = self.counters["nodes"]
        return nodes[self.plan.node_index(name)]

    def queue(self, name: str) -> int:
        return next(i for i, queue in enumerate(self.plan.queues) if queue.name == name)

    def examine(self) -> Evidence:
        summaries = {index: QueueSummary(**values) for index, values in self.summaries.items()}
        return examine(self.plan, summaries, Counters.model_validate(self.counters))


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)


def only(books: Books) -> str:
    """The contradictions, as one text."""
    found = books.examine().contradictions
    assert found, "nothing was found"
    return "; ".join(found)


def test_books_that_agree_say_where_packets_waited(books: Books) -> None:
    evidence = books.examine()
    assert evidence.contradictions == [] and evidence.warnings == []
    assert evidence.bottleneck is not None and evidence.bottleneck.startswith("s")
    assert evidence.details["offloads"] == "off" and evidence.details["outside_share_of_waiting"] == 0


def test_a_queue_that_lost_a_packet(books: Books) -> None:
    books.summaries[0]["sent_packets"] -= 1
    text = only(books)
    assert "packets offered, but" in text and "the qdisc (pfifo) counts" in text and "left its queue" in text


def test_a_qdisc_that_counts_other_drops(books: Books) -> None:
    books.counters["queues"][0]["drops"] = 3
    assert "the tap saw 0 dropped packets, the qdisc (pfifo) counts 3" in only(books)


def test_what_a_link_forgets_as_it_goes_down(books: Books) -> None:
    index = next(i for i, values in books.summaries.items() if values["max_packets"] > 0)
    link = next(i for i, link in enumerate(books.plan.links) if index in (link.a.queue, link.b.queue))
    waiting = books.summaries[index]["max_packets"]
    books.summaries[index]["offered_packets"] += waiting
    books.summaries[index]["dropped_packets"] += waiting
    message = f"the tap saw {books.summaries[index]['dropped_packets']} dropped packets, the qdisc"
    assert any(message in contradiction for contradiction in books.examine().contradictions)
    books.plan.events = [LinkEvent(at_ns=1, link=link, state="down")]
    assert not any(message in contradiction for contradiction in books.examine().contradictions)
    books.counters["queues"][index]["drops"] = waiting + 1
    assert any("dropped packets, the qdisc" in contradiction for contradiction in books.examine().contradictions)


def test_a_link_that_delivers_more_than_it_sends(books: Books) -> None:
    books.counters["links"][0]["a"]["lost"] = 1
    assert "-1 would be in flight" in only(books)


def test_more_in_flight_than_the_link_holds(books: Books) -> None:
    end = books.counters["links"][0]["a"]
    end["delivered"] -= 60
    text = only(books)
    assert "60 would be in flight, where 0 to" in text and "its peer received" in text


def test_a_host_that_offloads_counts_bursts_at_its_queue_and_frames_on_the_wire(books: Books) -> None:
    """Both books are kept: a burst may be cut into the frames that the qdisc counts, and no frame may be missing."""
    index = books.queue("h1:eth0")
    (end,) = (
        end
        for link, pair in zip(books.plan.links, books.counters["links"], strict=True)
        for side, end in zip((link.a, link.b), (pair["a"], pair["b"]), strict=True)
        if side.queue == index
    )
    for name in ("offered_packets", "sent_packets"):
        books.summaries[index][name] -= 20
    books.node("h1")["Ip"]["OutTransmits"] -= 20
    assert "left its queue" in only(books)
    books.plan.nodes[books.plan.node_index("h1")].offload = "tso"
    evidence = books.examine()
    assert evidence.contradictions == [] and evidence.details["offloads"] == "tso at h1"
    books.counters["queues"][index]["packets"] += 47
    assert books.examine().contradictions == [], "the rest of a burst waits in the network card"
    books.counters["queues"][index]["packets"] += 1
    assert f"{end['sent'] + 48} packets left its queue, {end['sent']} were transmitted" in only(books)
    link = next(i for i, link in enumerate(books.plan.links) if index in (link.a.queue, link.b.queue))
    books.plan.events = [LinkEvent(at_ns=at, link=link, state="down") for at in (1, 2)]
    books.counters["queues"][index]["packets"] += 2 * 47 - 1
    assert books.examine().contradictions == [], "and the rest of one more each time that the link went down"
    books.counters["queues"][index]["packets"] += 1
    assert f"{end['sent'] + 3 * 47 + 1} packets left its queue" in only(books)


def test_an_offload_shows_in_the_frames(books: Books) -> None:
    index = books.queue("h1:eth0")
    for counted in (books.summaries[index], books.counters["queues"][index]):
        for name in ("offered_bytes", "sent_bytes", "bytes"):
            if name in counted:
                counted[name] += 10**9
    assert "an offload is on" in only(books)


@pytest.mark.parametrize(
    ("group", "counter", "change", "message"),
    [
        ("Ip", "ForwDatagrams", -4, "4 of"),
        ("Ip", "InReceives", -2, "never reached IP"),
        ("Ip", "OutTransmits", 5, "their queues were offered"),
        ("Ip6", "InReceives", 3, "3 of 3 IPv6 packets received are unaccounted for"),
    ],
)
def test_a_node_that_lost_packets(books: Books, group: str, counter: str, change: int, message: str) -> None:
    counters = books.node("s1").setdefault(group, {})
    counters[counter] = counters.get(counter, 0) + change
    assert message in only(books)


def test_counted_reasons_and_loopback_are_no_contradiction(books: Books) -> None:
    switch = books.node("s1")["Ip"]
    switch["InHdrErrors"] = 2  # TTL expired: the packet is not forwarded, but its ICMP error is sent
    switch["ForwDatagrams"] -= 2
    switch["OutRequests"] = 2
    host = books.node("h1")["Ip"]
    for name in ("InReceives", "InDelivers", "OutRequests", "OutTransmits"):  # seven packets over the loopback
        host[name] += 7
    joined = books.node("h2").setdefault("Ip6", {})
    joined |= {"InReceives": 1, "InMcastPkts": 1}
    host2 = books.node("h2")["Ip"]
    host2["InReceives"] -= 1
    host2["InDelivers"] -= 1
    assert books.examine().contradictions == []


def test_a_host_that_drops_is_a_warning(books: Books) -> None:
    index = books.queue("h1:eth0")
    books.summaries[index] |= {"dropped_packets": 4, "packet_ns": 10**12}
    books.summaries[index]["offered_packets"] += 4
    books.counters["queues"][index]["drops"] = 4
    books.node("h1")["Ip"]["OutTransmits"] += 4
    evidence = books.examine()
    assert evidence.contradictions == [] and evidence.bottleneck == "h1>s1"
    assert any("waited most at h1>s1" in text for text in evidence.warnings)
    assert any("dropped 4 packets" in text for text in evidence.warnings)


def test_what_is_missing_is_no_agreement(books: Books) -> None:
    del books.summaries[2]
    assert "has no summary" in only(books)
    books.counters["links"].pop()
    assert "the counters are of 4 links" in only(books)
