#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A download by QUIC (aioquic): `quic.py serve`, and `quic.py get HOST BYTES --control reno`, which prints a line
with the received bytes every 100 ms and one at the end.
"""

import argparse
import asyncio
import datetime
import ssl
import time

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PORT, ALPN = 4433, "download"
WINDOW = 16 << 20
"""So large that flow control does not limit the download."""


class Sender(QuicConnectionProtocol):
    """Send as many bytes as the request says."""

    def quic_event_received(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.StreamDataReceived) and event.end_stream:
            self._quic.send_stream_data(event.stream_id, bytes(int(event.data)), end_stream=True)
            self.transmit()


class Receiver(QuicConnectionProtocol):
    """Count received bytes."""

    received = 0
    done: asyncio.Event

    def quic_event_received(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.StreamDataReceived):
            self.received += len(event.data)
            if event.end_stream:
                self.done.set()
        elif isinstance(event, events.ConnectionTerminated):
            self.done.set()


def configuration(control: str, *, client: bool) -> QuicConfiguration:
    return QuicConfiguration(
        is_client=client,
        alpn_protocols=[ALPN],
        congestion_control_algorithm=control,
        max_data=WINDOW,
        max_stream_data=WINDOW,
        verify_mode=ssl.CERT_NONE,
    )


async def offer(control: str) -> None:
    """Serve downloads under a self-signed certificate, until this program is ended."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    server_configuration = configuration(control, client=False)
    server_configuration.certificate, server_configuration.private_key = certificate, key
    await serve("0.0.0.0", PORT, configuration=server_configuration, create_protocol=Sender)
    await asyncio.Event().wait()


async def get(host: str, size: int, control: str, every_ms: float) -> None:
    begin = time.monotonic()
    async with connect(host, PORT, configuration=configuration(control, client=True), create_protocol=Receiver) as us:
        us.done = asyncio.Event()
        handshake = time.monotonic() - begin
        us._quic.send_stream_data(us._quic.get_next_available_stream_id(), str(size).encode(), end_stream=True)
        us.transmit()
        while not us.done.is_set():
            before = us.received
            try:
                await asyncio.wait_for(us.done.wait(), every_ms / 1e3)
            except TimeoutError:
                print(
                    f"at_ms={1e3 * (time.monotonic() - begin):.3f} mbps={(us.received - before) * 8e-3 / every_ms:.4f}"
                )
        took = time.monotonic() - begin
        print(f"control={control} bytes={us.received} handshake_ms={1e3 * handshake:.3f} took_ms={1e3 * took:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["serve", "get"])
    parser.add_argument("host", nargs="?", default="")
    parser.add_argument("bytes", nargs="?", type=int, default=0)
    parser.add_argument("--control", choices=["reno", "cubic"], default="reno")
    parser.add_argument("--every", type=float, default=100.0, metavar="MS")
    given = parser.parse_args()
    role = offer(given.control) if given.role == "serve" else get(given.host, given.bytes, given.control, given.every)
    asyncio.run(role)


if __name__ == "__main__":
    main()
