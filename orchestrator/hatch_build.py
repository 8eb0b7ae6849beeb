# SPDX-License-Identifier: Apache-2.0
"""A wheel with all that a virtual lab needs inside, if `tools/wheel` says where that is; without it, Python alone."""

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Bundle(BuildHookInterface):  # type: ignore[type-arg]
    """Puts `$QBED_BUNDLE` into the wheel as `qbed/bundle`; `$QBED_PLATFORM` is what its programs run on."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = os.environ.get("QBED_BUNDLE")
        if folder and version == "standard":
            build_data["force_include"][folder] = "qbed/bundle"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{os.environ['QBED_PLATFORM']}"
