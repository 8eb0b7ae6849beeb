# SPDX-License-Identifier: Apache-2.0
"""Archives of labs, as clients send them to the service."""

from __future__ import annotations

import io
import stat
import zipfile

LAB = b"name: mine\ntopology: {star: {hosts: 2}}\nlinks: {default: {rate: 1 Gbit/s, delay: 5 us}}\nduration: 1 ms\n"
"""The smallest lab file."""


def zipped(files: dict[str, bytes], modes: dict[str, int] | None = None) -> bytes:
    """Return a zip archive of files by their paths; `modes` has the Unix modes of entries that are not 0644."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = ((modes or {}).get(name, stat.S_IFREG | 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content)
    return target.getvalue()
