# SPDX-License-Identifier: Apache-2.0
"""Conversion of a Containerlab topology to a lab file: its nodes and links. Rates, delays and
queues are placeholders.
"""

from __future__ import annotations

import json
import re
from collections import ChainMap, Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qbed.base.errors import LabError
from qbed.config.source import FieldPath, Source, parse, read_lab_text
from qbed.lab.settings import IMAGE
from qbed.lab.topology import NAME
from qbed.network.load import lab_from_source

NOT_RUN = ("binds", "cmd", "entrypoint", "env", "exec")
"""Fields of a Containerlab node that change what its image runs."""
FILL_IN = "# fill in: not in the topology"


@dataclass
class _Found:
    nodes: dict[str, str] = field(default_factory=dict)
    links: list[tuple[str, str, int | None]] = field(default_factory=list)
    images: dict[str, str] = field(default_factory=dict)
    """By host."""
    left_out: list[str] = field(default_factory=list)


def import_topology(path: Path) -> str:
    """Return the text of a lab file for the topology at `path`, checked. `LabError` if it is not a topology or does not
    fit a lab.

    A node of kind `linux` with one link is a host and keeps its image. Every other node is a switch. Links to the
    machine itself and to management networks are left out, and listed in comments.
    """
    text = read_lab_text(path)
    if "{{" in text:
        raise LabError([f"{path}: is a template (it has `{{{{`); expected a topology, rendered"])
    source = parse(text, str(path), path.parent)
    found = _read(source)
    lab = _lab(path, source, found)
    lab_from_source(parse(lab, "the lab of " + str(path), path.parent))
    return lab


def _read(source: Source) -> _Found:
    topology = _mapping(source, ("topology",), _mapping(source, (), source.values).get("topology"))
    nodes = _mapping(source, ("topology", "nodes"), topology.get("nodes"))
    if not nodes:
        raise LabError([source.message((), "expected a Containerlab topology: `topology: {nodes: ..., links: ...}`")])
    found, names = _Found(), {str(name): _name(source, name) for name in nodes}
    links = topology.get("links") or []
    if not isinstance(links, list):
        raise LabError([source.message(("topology", "links"), "expected a list of links")])
    for position, link in enumerate(links):
        _read_link(source, position, link, names, found)
    degree = Counter(node for a, b, _ in found.links for node in (a, b))
    kinds, defaults, groups = (
        _mapping(source, ("topology", part), topology.get(part)) for part in ("kinds", "defaults", "groups")
    )
    for given, value in nodes.items():
        name, settings = names[str(given)], _mapping(source, ("topology", "nodes", str(given)), value)
        group = _mapping(source, ("topology", "groups"), groups.get(str(settings.get("group"))))
        kind = settings.get("kind") or group.get("kind") or defaults.get("kind")
        if kind is None and len(kinds) == 1:
            kind = next(iter(kinds))
        found.nodes[name] = "host" if kind == "linux" and degree[name] <= 1 else "switch"
        if not degree[name]:
            del found.nodes[name]
            found.left_out.append(f"{given}: it has no link")
        elif found.nodes[name] == "host":
            of_kind = _mapping(source, ("topology", "kinds", str(kind)), kinds.get(str(kind)))
            _read_image(name, ChainMap(settings, group, of_kind, defaults), found)
    if not found.nodes:
        raise LabError([source.message(("topology",), "no two nodes have a link")])
    return found


def _read_image(name: str, settings: Mapping[object, object], found: _Found) -> None:
    """The image of a host, if it is a plain name."""
    image = settings.get("image")
    if isinstance(image, str) and re.fullmatch(IMAGE, image):
        found.images[name] = image
    if given := sorted(field for field in NOT_RUN if settings.get(field)):
        found.left_out.append(f"{', '.join(given)} of {name}: its image runs its default command")


def _mapping(source: Source, path: FieldPath, value: object) -> dict[object, object]:
    """A value that is a mapping, or empty if it is missing. LabError for any other."""
    if value is not None and not isinstance(value, dict):
        raise LabError([source.message(path, f"expected a mapping, got `{str(value)[:40]}`")])
    return value or {}


def _name(source: Source, given: object) -> str:
    name = re.sub(r"[^a-z0-9-]+", "-", str(given).lower()).strip("-")
    if not NAME.fullmatch(name):
        path = ("topology", "nodes", str(given))
        raise LabError([source.message(path, f"`{given}` cannot be a name of at most 32 letters a-z, digits and `-`")])
    return name


def _read_link(source: Source, position: int, link: object, names: dict[str, str], found: _Found) -> None:
    path = ("topology", "links", position)
    fields = link if isinstance(link, dict) else {}
    ends = fields.get("endpoints", [fields["endpoint"]] if "endpoint" in fields else None)
    if not isinstance(ends, list) or not ends:
        raise LabError([source.message(path, 'expected a link: `endpoints: ["a:eth1", "b:eth1"]`')])
    nodes = [str(end.get("node")) if isinstance(end, dict) else str(end).partition(":")[0] for end in ends]
    shown = " - ".join(nodes)
    if len(nodes) != 2 or any(node not in names for node in nodes):
        outside = [node for node in nodes if node not in names]
        if any(node not in ("host", "mgmt-net", "macvlan", "dummy", "vxlan", "vxlan-stitch") for node in outside):
            raise LabError([source.message(path, f"no node is called `{outside[0]}`")])
        found.left_out.append(f"the link {shown}: it leaves the lab")
        return
    a, b = (names[node] for node in nodes)
    if a == b:
        raise LabError([source.message(path, f"a link needs two nodes, got `{a}` twice")])
    mtu = fields.get("mtu")
    found.links.append((a, b, mtu if type(mtu) is int else None))


def _lab(path: Path, source: Source, found: _Found) -> str:
    given = source.values.get("name") if isinstance(source.values, dict) else None
    name = re.sub(r"[^a-z0-9-]+", "-", str(path.name.split(".")[0] if given is None else given).lower()).strip("-")
    file = " ".join(path.name.split())
    lines = [f"# Imported by qbed from {file}. Values marked `fill in` are guesses: the topology does not have them."]
    lines += [f"# Left out: {' '.join(text.split())}" for text in found.left_out]
    lines += [f"name: {name}", "topology:", "  explicit:", "    nodes:"]
    lines += [f"      {node}: {kind}" for node, kind in found.nodes.items()]
    lines += ["    links:"]
    for a, b, mtu in found.links:
        lines.append(f"      - {{ends: [{a}, {b}]" + (f", mtu: {mtu} B" if mtu is not None else "") + "}")
    lines += ["links:", f"  default: {{rate: 1 Gbit/s, delay: 10 us}}  {FILL_IN}"]
    if "switch" in found.nodes.values():
        lines += ["switches:", f"  default: {{scheme: droptail, buffer: 128 KB}}  {FILL_IN}"]
    hosts = [node for node, kind in found.nodes.items() if kind == "host"]
    if hosts:
        lines += ["hosts:", "  default: {tcp: cubic}"]
        lines += [f"  {name}: {{image: {json.dumps(image)}}}" for name, image in found.images.items()]
    if len(hosts) > 1:
        lines += ["workload:", f"  - flows: {{pairs: [[{hosts[0]}, {hosts[-1]}]], size: 1 MB, label: bulk}}  {FILL_IN}"]
    return "\n".join([*lines, f"duration: 1 s  {FILL_IN}"]) + "\n"
