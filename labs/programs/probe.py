#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""UDP round trips: `probe.py answer` sends back what comes, `probe.py ask HOST` prints a line for each answer."""

import argparse
import socket
import time

PORT = 7007


def answer() -> None:
    """Send each datagram back, until this program is ended."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as us:
        us.bind(("", PORT))
        while True:
            packet, them = us.recvfrom(2048)
            us.sendto(packet, them)


def ask(host: str, every_ms: float, until_ms: float) -> None:
    """Send a packet every so often, and wait for each answer until the next is due."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as us:
        us.connect((host, PORT))
        begin = time.monotonic()
        for number in range(int(until_ms / every_ms)):
            due = begin + number * every_ms / 1e3
            time.sleep(max(0.0, due - time.monotonic()))
            sent = time.monotonic()
            us.send(str(number).encode())
            received_at = receive(us, str(number).encode(), due + every_ms / 1e3)
            print(
                f"number={number} at_ms={1e3 * (sent - begin):.6f}",
                f"rtt_ms={1e3 * (received_at - sent):.6f}" if received_at else "",
            )


def receive(us: socket.socket, wanted: bytes, until: float) -> float | None:
    """When that answer came; late ones of earlier questions are no answers."""
    while (left := until - time.monotonic()) > 0:
        us.settimeout(left)
        try:
            if us.recv(2048) == wanted:
                return time.monotonic()
        except TimeoutError:
            return None
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["answer", "ask"])
    parser.add_argument("host", nargs="?")
    parser.add_argument("--every", type=float, default=10.0, metavar="MS")
    parser.add_argument("--until", type=float, default=1000.0, metavar="MS")
    given = parser.parse_args()
    if given.role == "answer":
        answer()
    else:
        ask(given.host, given.every, given.until)


if __name__ == "__main__":
    main()
