# SPDX-License-Identifier: Apache-2.0
"""Settings that several keys of a lab file give, each with the path of the field that it is from."""

from collections.abc import Mapping

from qbed.config.selectors import is_glob
from qbed.config.source import FieldPath

Layer = dict[str, tuple[object, FieldPath]]
"""Settings, each with the path of the field that gave it."""


def layer(settings: Mapping[str, object], path: FieldPath) -> Layer:
    """Return the settings of the key at `path`."""
    return {name: (value, (*path, name)) for name, value in settings.items()}


def text_of(settings: Layer, name: str, default: str = "") -> str:
    """Return a setting that is text."""
    return str(settings[name][0]) if name in settings else default


def rank(key: str) -> int:
    """Return the kind of a key under `switches` or `hosts`: default, glob or range, name, glob of ports, port."""
    if key == "default":
        return 0
    wide = is_glob(key) or ".." in key
    return (3 if wide else 4) if ">" in key else (1 if wide else 2)
