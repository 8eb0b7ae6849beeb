# SPDX-License-Identifier: Apache-2.0
"""Which image a node's container is made of. `tools/images` builds them and knows their names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable

from qbed.base.errors import QbedError
from qbed.base.locations import checkout
from qbed.plan.model import Node
from qbed.substrates.containers import bmv2

ROLES = {"host": "host", "switch": "linux-switch"}
"""The role of an image by the kind of node."""
ROUTER = "router"


class ImageError(QbedError):
    """An image is not there and cannot be made."""


def role(node: Node) -> str:
    """The image's folder under images/: a node with programs of its own (routing daemons) needs one that has them."""
    return ROUTER if node.programs else ROLES[node.kind]


def images(roles: Iterable[str], *, build: bool) -> dict[str, str]:
    """The image of each role. `build`: those that are missing are built, which takes minutes the first time.

    BMv2's is a public one, which is not built. `$QBED_IMAGES` (`host=NAME,linux-switch=NAME`) names others.
    """
    wanted = sorted(set(roles))
    known = {bmv2.ROLE: bmv2.IMAGE}
    known |= dict(part.split("=", 1) for part in os.environ.get("QBED_IMAGES", "").split(",") if "=" in part)
    to_build = [image for image in wanted if image not in known]
    if to_build:
        known |= _build_images(to_build, build)
    return {image: known[image] for image in wanted}


def _build_images(roles: list[str], build: bool) -> dict[str, str]:
    """Run `tools/images`, which prints a line `ROLE IMAGE` each and refuses roles without a folder in images/."""
    root = checkout()
    if root is None:
        raise ImageError("the nodes' images are built from a checkout of qbed: labs in containers need one")
    builder = root / "tools" / "images"
    command = [str(builder), *([] if build else ["--names"]), *roles]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ImageError(f"{builder} cannot be run: {error.strerror}; it builds the nodes' images") from error
    if done.returncode:
        last = "".join(f"\n    | {line}" for line in done.stderr.strip().splitlines()[-8:])
        raise ImageError(f"the nodes' images cannot be built; `make images` shows it all:{last}")
    pairs = (line.split() for line in done.stdout.splitlines())
    return {words[0]: words[1] for words in pairs if len(words) == 2}
