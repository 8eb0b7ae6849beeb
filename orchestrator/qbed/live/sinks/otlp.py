# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry: points as metrics by OTLP over HTTP, in protobuf (opentelemetry-proto 1.x).

    http://localhost:4318                       a collector; `/v1/metrics` is appended
    http://localhost:8428/opentelemetry         VictoriaMetrics

A numeric field is a gauge `qbed.MEASUREMENT.FIELD`. Tags and fields with text are attributes of its data points. Points
without a numeric field are the gauge `qbed.MEASUREMENT` with the value 1. Headers such as a token are in the variable
OTEL_EXPORTER_OTLP_HEADERS of OpenTelemetry's specification. Data points are encoded by NumPy, a series at once: objects
for each would take longer than the lab.
"""

from __future__ import annotations

import os
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qbed.live.points import Points
from qbed.live.sinks import NotTakenError, SinkError
from qbed.live.sinks.http_client import TIMEOUT_S, HttpClient, checked_url

HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
PATH = "/v1/metrics"
MAX_REQUEST = 4 << 20
"""Bytes of a request, before it is compressed, after which another one begins. A collector refuses 20 MiB."""
_LENGTH = rb"[\x80-\xff]*[\x00-\x7f]"
_REJECTED = re.compile(rb"\x0a" + _LENGTH + rb"\x08(" + _LENGTH + rb")(?:\x12" + _LENGTH + rb"(.*))?", re.DOTALL)
"""A response with `partial_success`: the number of rejected data points, and the message."""


class Otlp:
    """A receiver of OTLP. Raises `SinkError` if the URL names none."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        parts = checked_url(url, "--otlp", "http://localhost:4318", f"headers into {HEADERS}")
        if parts.query or parts.fragment:
            raise SinkError(f"--otlp: expected a URL without `?` and `#`, got `{url[:200]}`")
        path = parts.path.rstrip("/").removesuffix(PATH) + PATH
        self._parts = parts._replace(path=path)
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"} | _headers()
        self.client = HttpClient(self._parts, path, headers, timeout_s)

    @property
    def name(self) -> str:
        return self._parts.geturl()

    def open(self, size: int | None) -> None:
        """Do nothing: the receiver may start later."""

    def encode(self, points: Points) -> bytes:
        """One or more requests, each after its length in four bytes."""
        requests: list[list[bytes]] = [[]]
        for metric in _metrics(points):
            if requests[-1] and sum(map(len, requests[-1])) + len(metric) > MAX_REQUEST:
                requests.append([])
            requests[-1].append(_field(2, metric))
        bodies = (_compress(_request(b"".join(metrics))) for metrics in requests)
        return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)

    def write(self, body: bytes) -> int:
        """Send the requests. If a later one fails, all are sent again: equal points at equal times."""
        while body:
            end = 4 + int.from_bytes(body[:4], "big")
            response = self.client.post(body[4:end])
            if response.status != 200:
                raise self.client.refused(response)
            rejected = _REJECTED.match(response.body)
            if rejected and rejected[1] != b"\0":
                text = (rejected[2] or b"").decode("utf-8", "replace") or "no reason"
                raise NotTakenError(f"{self.name} rejects data points: {text[:300]}")
            body = body[end:]
        return 0


def _headers() -> dict[str, str]:
    """`key=value,key=value`, with values as in a URL."""
    found = {}
    for part in filter(None, (part.strip() for part in os.environ.get(HEADERS, "").split(","))):
        name, equals, value = part.partition("=")
        value = unquote(value.strip())
        if not equals or not re.fullmatch(r"[A-Za-z0-9-]+", name.strip()) or not re.fullmatch(r"[ -~]*", value):
            raise SinkError(f"{HEADERS}: expected `NAME=VALUE` with commas in between")
        found[name.strip()] = value
    return found


def _metrics(points: Points) -> Iterator[bytes]:
    """The messages `Metric` of points."""
    texts = {name: column.to_pylist() for name, column in points.fields.items() if not _is_number(column)}
    numbers: Mapping[str, Any] = {
        f".{name}": column for name, column in points.fields.items() if name not in texts and name != "t_us"
    }
    times = points.time_ns.to_numpy(zero_copy_only=False)
    groups = [(_attributes(tags), rows) for tags, rows in _groups(points, texts)]
    for name, column in (numbers or {"": pa.repeat(1, len(points))}).items():
        valid = pc.fill_null(pc.is_finite(column), False).to_numpy(zero_copy_only=False)
        values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        data = b"".join(_data_points(attributes, times, values, rows[valid[rows]]) for attributes, rows in groups)
        if data:
            yield _field(1, f"qbed.{points.measurement}{name}".encode()) + _field(5, data)


def _is_number(column: Any) -> bool:
    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def _groups(points: Points, texts: Mapping[str, list[str | None]]) -> Iterator[tuple[dict[str, str], Any]]:
    """The rows with equal tags and texts."""
    series = points.series.to_numpy(zero_copy_only=False)
    if not texts:
        order = np.argsort(series, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(series[order])) + 1) if len(order) else ():
            yield points.tags[series[rows[0]]], rows
        return
    found: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(series.tolist(), *texts.values(), strict=True)):
        found[key].append(row)
    for (number, *values), chosen in found.items():
        words = {name: value for name, value in zip(texts, values, strict=True) if value is not None}
        yield points.tags[number] | words, np.array(chosen)


def _data_points(attributes: bytes, times: Any, values: Any, rows: Any) -> bytes:
    """`Gauge.data_points` of one series: attributes, time_unix_nano (3), as_int (6) or as_double (4)."""
    integer = values.dtype.kind in "iu"
    head = attributes + b"\x19"
    head = b"\x0a" + _varint(len(head) + 17) + head
    value = ("value", "<i8" if integer else "<f8")
    records = np.empty(len(rows), [("head", f"V{len(head)}"), ("time", "<u8"), ("kind", "u1"), value])
    records["head"] = np.void(head)
    records["time"] = times[rows]
    records["kind"] = 0x31 if integer else 0x21
    records["value"] = values[rows]
    return records.tobytes()


def _attributes(tags: Mapping[str, str]) -> bytes:
    """`NumberDataPoint.attributes`."""
    return b"".join(_field(7, _key_value(name, value)) for name, value in tags.items())


def _key_value(name: str, value: str) -> bytes:
    return _field(1, name.encode()) + _field(2, _field(1, value.encode("utf-8", "replace")))


def _request(metrics: bytes) -> bytes:
    """`ExportMetricsServiceRequest` with one resource and one scope."""
    resource = _field(1, _field(1, _key_value("service.name", "qbed")))
    scope = _field(2, _field(1, _field(1, b"qbed")) + metrics)
    return _field(1, resource + scope)


def _field(number: int, content: bytes) -> bytes:
    """A field of protobuf that has a length."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _compress(content: bytes) -> bytes:
    deflate = zlib.compressobj(1, zlib.DEFLATED, 31)  # gzip without a time: equal points are equal bytes
    return deflate.compress(content) + deflate.flush()
