# SPDX-License-Identifier: Apache-2.0
"""Points by OTLP: decoded with OpenTelemetry's own types, and a run in a real VictoriaMetrics, equal to its Parquet."""

from __future__ import annotations

import gzip
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from campaigns import Screen, fake_toolchain, write_lab
from google.protobuf.json_format import MessageToDict
from influx import between, free_port, serving
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from victoria_metrics import VictoriaMetrics, victoria_metrics

from qbed.live.exporter import deliver
from qbed.live.points import EPOCH_NS, STRETCH, Points
from qbed.live.sinks import NotTakenError, SinkError
from qbed.live.sinks.address import Address
from qbed.live.sinks.otlp import HEADERS, MAX_REQUEST, Otlp
from qbed.runs.executor.local import LocalExecutor
from qbed.runs.experiment import RunOptions, prepare, run_campaign

FIELDS = ("mean_bytes", "mean_packets", "max_packets", "enqueued", "dropped", "marked")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaMetrics]:
    with victoria_metrics(tmp_path_factory.mktemp("victoria-metrics")) as server:
        yield server


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with points that no sink has."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QBED_CACHE", str(folder / "cache"))
        patch.setenv("QBED_TOOLCHAIN", str(fake_toolchain(folder / "toolchain")))
        patch.setenv("QBED_STORE", "off")
        options = RunOptions("quick", folder / "run")
        run_campaign(prepare(write_lab(folder / "lab"), options), LocalExecutor([0]), Screen(), images=False)
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def requests_of(body: bytes) -> list[bytes]:
    """The requests that a sink sends for a body, without compression."""
    found = []
    while body:
        end = 4 + int.from_bytes(body[:4], "big")
        found.append(gzip.decompress(body[4:end]))
        body = body[end:]
    return found


def decoded(points: Points) -> dict[str, list[tuple[dict[str, str], int, float]]]:
    """The data points of each metric, as OpenTelemetry's types read them: attributes, time and value."""
    found: dict[str, list[tuple[dict[str, str], int, float]]] = {}
    for content in requests_of(Otlp("http://x").encode(points)):
        request = service.ExportMetricsServiceRequest.FromString(content)
        (resource,) = request.resource_metrics
        (scope,) = resource.scope_metrics
        assert [attribute.key for attribute in resource.resource.attributes] == ["service.name"]
        assert scope.scope.name == "qbed" and "unknown" not in str(MessageToDict(request))
        for metric in scope.metrics:
            for point in metric.gauge.data_points:
                attributes = {attribute.key: attribute.value.string_value for attribute in point.attributes}
                value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
                found.setdefault(metric.name, []).append((attributes, point.time_unix_nano, value))
    return found


def test_numbers_are_gauges_and_missing_ones_are_left_out() -> None:
    tags = [{"node": "s1", "queue": "s1>h1"}, {"node": "s2", "queue": "s2>h\u00e42"}]
    fields = {
        "t_us": pa.array([0.0, 1.0, 2.0]),
        "depth": pa.array([5, -(2**62), None], pa.int64()),
        "delay_us": pa.array([0.25, math.nan, math.inf]),
    }
    times = pa.array([EPOCH_NS, EPOCH_NS + 1, EPOCH_NS + 2], pa.int64())
    found = decoded(Points("queue", tags, pa.array([1, 0, 1], pa.int64()), fields, times))
    assert found == {
        "qbed.queue.depth": [(tags[0], EPOCH_NS + 1, -(2**62)), (tags[1], EPOCH_NS, 5)],
        "qbed.queue.delay_us": [(tags[1], EPOCH_NS, 0.25)],
    }


def test_text_is_an_attribute_and_points_without_numbers_are_one() -> None:
    tags, series = [{"claim": "a"}, {"claim": "b"}], pa.array([0, 1], pa.int64())
    fields = {"holds": pa.array([1, 0], pa.int64()), "verdict": pa.array(["holds", None])}
    times = pa.array([7, 7], pa.int64())
    assert decoded(Points("claim", tags, series, fields, times)) == {
        "qbed.claim.holds": [({"claim": "a", "verdict": "holds"}, 7, 1), ({"claim": "b"}, 7, 0)]
    }
    texts = {"text": pa.array(["flow 1 starts", "x" * 300])}
    assert decoded(Points("event", tags, series, texts, times)) == {
        "qbed.event": [({"claim": "a", "text": "flow 1 starts"}, 7, 1), ({"claim": "b", "text": "x" * 300}, 7, 1)]
    }


def test_many_points_are_requests_of_bounded_size_and_equal_bytes() -> None:
    rows = 10_000
    fields = {f"field_{number}": pa.array([float(number)] * rows) for number in range(12)}
    tags = [{"campaign": "c" * 40, "run": "r" * 60, "queue": f"s{number}>h1"} for number in range(100)]
    series = pa.array([row % 100 for row in range(rows)], pa.int64())
    points = Points("queue", tags, series, fields, pa.array(range(rows), pa.int64()))
    requests = requests_of(Otlp("http://x").encode(points))
    assert len(requests) > 1 and max(map(len, requests)) < MAX_REQUEST + 1000
    found = decoded(points)
    assert len(found) == 12 and {len(data) for data in found.values()} == {rows}
    assert sorted(at for _, at, _ in found["qbed.queue.field_3"]) == list(range(rows))
    assert Otlp("http://x").encode(points) == Otlp("http://x").encode(points)


def in_server(server: VictoriaMetrics, run: str, field: str) -> list[Any]:
    """A field of the queues' samples of a run: cell, port, lab time and value."""
    return sorted(
        (series["metric"]["cell"], series["metric"]["queue"], (at * 10**6 - EPOCH_NS) // STRETCH, value)
        for series in server.series(f"qbed.queue.{field}")
        if series["metric"]["run"] == run
        for at, value in zip(series["timestamps"], series["values"], strict=True)
    )


def in_tables(run: Path, field: str) -> list[Any]:
    sql = f"SELECT cell::VARCHAR, port, time_ns, {field} FROM '{run}/queue_series.parquet' ORDER BY ALL"
    return duckdb.sql(sql).fetchall()


def name_of(run: Path) -> str:
    from qbed.live.delivery_log import origin_of

    return origin_of(run).run


def test_a_campaigns_samples_are_those_of_parquet(
    server: VictoriaMetrics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QBED_TOOLCHAIN", str(fake_toolchain(tmp_path / "toolchain")))
    monkeypatch.setenv("QBED_STORE", "off")
    options = RunOptions("quick", tmp_path / "live", sinks=[Address("otlp", server.url)])
    screen = Screen()
    run_campaign(prepare(write_lab(tmp_path / "lab"), options), LocalExecutor([0]), screen, images=False)
    (delivery,) = screen.deliveries
    assert not isinstance(delivery, str) and delivery.complete and delivery.why is None, delivery
    name = name_of(tmp_path / "live")
    for field in FIELDS:
        assert in_server(server, name, field) == in_tables(tmp_path / "live", field) != [], field
    (claim,) = [found for found in server.series("qbed.claim.holds") if found["metric"]["run"] == name]
    assert (claim["metric"]["claim"], claim["metric"]["verdict"], claim["values"]) == ("all-complete", "holds", [1])
    assert any(found["metric"]["run"] == name for found in server.series("qbed.machine.load"))


def test_temporary_errors_lose_nothing(server: VictoriaMetrics, run: Path) -> None:
    answers: dict[int, bytes | int] = {1: 503, 3: b"no HTTP\r\n\r\n", 4: 429}
    with between(server.root, answers.get) as url:
        delivery = deliver(run, Otlp(f"{url}/opentelemetry"), 30)
    assert delivery.complete
    for field in FIELDS:
        assert in_server(server, name_of(run), field) == in_tables(run, field)


def test_what_is_sent_again_is_there_once(server: VictoriaMetrics, run: Path) -> None:
    assert deliver(run, Otlp(server.url), 10).complete
    for log in (run / "telemetry").glob("*.ndjson"):
        log.unlink()
    again = deliver(run, Otlp(server.url), 10)
    assert again.complete and again.points > 0
    for field in FIELDS:
        assert in_server(server, name_of(run), field) == in_tables(run, field)


class Rejecting(BaseHTTPRequestHandler):
    """A receiver that rejects data points, as OTLP's `partial_success`."""

    rejected = 3
    seen: tuple[str, str | None] = ("", None)

    def do_POST(self) -> None:
        Rejecting.seen = self.path, self.headers["X-Team"]
        self.rfile.read(int(self.headers["Content-Length"]))
        response = service.ExportMetricsServiceResponse()
        response.partial_success.rejected_data_points = Rejecting.rejected
        response.partial_success.error_message = "too old: " + "x" * 200
        content = response.SerializeToString()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def test_rejected_data_points_are_not_delivered(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS, "x-team=a%20b, Authorization=Bearer t")
    with serving(Rejecting) as url:
        delivery = deliver(run, Otlp(url), 0.1)
        assert not delivery.complete and f"({url}/v1/metrics rejects data points: too old: xxx" in delivery.describe()
        assert Rejecting.seen == ("/v1/metrics", "a b")
        monkeypatch.setattr(Rejecting, "rejected", 0)  # a warning is no rejection
        assert deliver(run, Otlp(url), 10).complete


def test_a_status_that_is_no_confirmation_is_reported(run: Path, server: VictoriaMetrics) -> None:
    with between(server.root, lambda _: 400) as url:
        delivery = deliver(run, Otlp(url), 0.1)
    assert delivery.left == 2 and "answers 400: Bad Request" in delivery.describe()


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("localhost:4318", "--otlp: expected a URL such as http://localhost:4318, got `localhost:4318`"),
        ("http://u:p@localhost:4318", "--otlp: a URL is no place for secrets: put headers into OTEL_EXPORTER_OTLP_HEA"),
        ("http://localhost:4318/?a=b", "--otlp: expected a URL without `?` and `#`"),
    ],
)
def test_an_invalid_url_is_refused(url: str, wrong: str) -> None:
    with pytest.raises(SinkError) as caught:
        Otlp(url)
    assert wrong in str(caught.value)


@pytest.mark.parametrize("text", ["secret", "a b=c", "a=b%0d%0ac", "a=%c3%a4"])
def test_invalid_headers_are_refused_and_not_printed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS, text)
    with pytest.raises(SinkError, match="OTEL_EXPORTER_OTLP_HEADERS: expected `NAME=VALUE`") as caught:
        Otlp("http://localhost:4318")
    assert text not in str(caught.value)


def test_a_path_is_appended_once_and_names_the_kind_of_sink() -> None:
    for url in ("http://x:4318", "http://x:4318/", "http://x:4318/v1/metrics"):
        assert Otlp(url).name == "http://x:4318/v1/metrics"
    assert Address.named("http://x/opentelemetry/v1/metrics").kind == "otlp"
    assert Address.named("http://x/qbed").kind == "influx"
    with pytest.raises(NotTakenError, match="refused"):
        Otlp(f"http://127.0.0.1:{free_port()}").write(b"\0\0\0\1x")


def test_the_command_line_sends_a_run_and_later_the_rest(run: Path, server: VictoriaMetrics, tmp_path: Path) -> None:
    environment = os.environ | {"QBED_TOOLCHAIN": str(fake_toolchain(tmp_path / "toolchain"))}

    def qbed(*arguments: str, **more: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "qbed", *arguments]
        done = subprocess.run(command, env=environment | more, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    status, text = qbed("samples", str(run), "--otlp", server.url)
    assert status == 0 and f"points to {server.url}/v1/metrics" in text, text
    for field in FIELDS:
        assert in_server(server, name_of(run), field) == in_tables(run, field)
    status, text = qbed("samples", str(run), "--send", QBED_OTLP="http://127.0.0.1:9/other")
    assert status == 0 and f"0 points to {server.url}/v1/metrics" in text and "other" not in text, text
    status, text = qbed("run", str(write_lab(tmp_path / "lab")), "--otlp", "localhost:4318")
    assert status == 2 and "--otlp: expected a URL such as" in text and "Traceback" not in text, text
