# SPDX-License-Identifier: Apache-2.0
"""Messages as JSON lines: incomplete and invalid lines, and the end of a connection."""

from __future__ import annotations

import socket

from qbed.substrates.lines import LineReader, encode


def test_lines_are_read_in_pieces() -> None:
    local, peer = socket.socketpair()
    reader, line = LineReader(), encode({"event": "ready"})
    with local, peer:
        peer.sendall(line + line[:5])
        assert reader.read(local) == [{"event": "ready"}]
        peer.sendall(line[5:-1])
        assert reader.read(local) == []
        peer.sendall(b"\n" + line)
        assert reader.read(local) == [{"event": "ready"}] * 2
        peer.close()
        assert reader.read(local) is None


def test_a_line_that_is_no_object_is_ignored_or_ends_the_connection() -> None:
    for invalid in (b"\xff", b"[1]", b"{", b"[" * 100_000):
        for strict, expected in ((False, [{"a": 1}]), (True, None)):
            local, peer = socket.socketpair()
            with local, peer:
                peer.sendall(invalid[:60_000] + b"\n" + encode({"a": 1}))
                found = LineReader().read(local, only_objects=strict)
                assert found == expected, invalid[:10]
