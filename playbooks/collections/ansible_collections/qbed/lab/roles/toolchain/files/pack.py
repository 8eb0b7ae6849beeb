# SPDX-License-Identifier: Apache-2.0
"""Packs a checkout's files into a tar file and prints {"sha256", "files"}:  pack.py CHECKOUT TAR

Equal files are equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
from pathlib import Path


def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without what differs between two checkouts: owner, time, write permission of others."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry


def main(checkout: Path, out: Path) -> None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.PIPE, text=True).stdout
    files = [
        name
        for name in sorted(set(listed.split("\0")) - {""})
        if (checkout / name).is_symlink() or (checkout / name).is_file()
    ]
    with tarfile.open(out, "w") as tar:
        for name in files:
            tar.add(checkout / name, name, recursive=False, filter=plain)
    print(json.dumps({"sha256": hashlib.sha256(out.read_bytes()).hexdigest(), "files": files}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
