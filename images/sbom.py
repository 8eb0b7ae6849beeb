# SPDX-License-Identifier: Apache-2.0
"""Print the bill of materials of an image as CycloneDX 1.6: Debian's packages, Python's, and the parts of qbed.

.venv/bin/python images/sbom.py IMAGE .venv/share/qbed/toolchain/manifest.json
"""

from __future__ import annotations

import json
import subprocess
import sys
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

FORMAT = "${Package}\\t${Version}\\t${Architecture}\\n"
METADATA = 'for file in /opt/qbed-*/*.dist-info/METADATA; do [ ! -e "$file" ] || { sed "/^$/q" "$file"; echo; }; done'
Component = dict[str, Any]


def inside(image: str, *command: str) -> str:
    """Return the output of a command in a new container of the image."""
    options = ("--rm", "--network=none", "--entrypoint", command[0])
    done = subprocess.run(["docker", "run", *options, image, *command[1:]], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return done.stdout


def component(kind: str, name: str, version: str, purl: str = "", licence: str = "") -> Component:
    """Return a component; `licence` is an SPDX expression."""
    found: Component = {"type": kind, "name": name, "version": version}
    if purl:
        found |= {"bom-ref": purl, "purl": purl}
    return found | ({"licenses": [{"expression": licence}]} if licence else {})


def debian_packages(image: str) -> list[Component]:
    """Return the packages of dpkg's database."""
    rows = [line.split("\t") for line in inside(image, "dpkg-query", "--show", f"--showformat={FORMAT}").splitlines()]
    return [
        component(
            "library", name, version, f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={architecture}"
        )
        for name, version, architecture in rows
    ]


def python_packages(image: str) -> list[Component]:
    """Return the distributions below /opt, with the licences that their metadata has as SPDX expressions."""
    found = []
    for text in inside(image, "sh", "-c", METADATA).split("\n\n"):
        fields = HeaderParser().parsestr(text.strip())
        if fields["Name"]:
            purl = f"pkg:pypi/{fields['Name'].lower().replace('_', '-')}@{fields['Version']}"
            licence = fields["License-Expression"] or ""
            found.append(component("library", fields["Name"], fields["Version"], purl, licence))
    return found


def toolchain(image: str, manifest: Path) -> list[Component]:
    """Return qbed's kernel, if the image has it."""
    status = inside(image, "sh", "-c", "test ! -e /opt/qbed/linux || echo here")
    version = json.loads(manifest.read_text())["kernel_version"]
    return [component("operating-system", "linux", version, "", "GPL-2.0-only")] if status.strip() else []


def bill(image: str, manifest: Path) -> dict[str, Any]:
    """Return the bill of materials of an image."""
    [described] = json.loads(
        subprocess.run(["docker", "image", "inspect", image], check=True, capture_output=True).stdout
    )
    labels = described["Config"]["Labels"]
    name, _, tag = image.partition(":")
    subject = component("container", name, tag, "", labels["org.opencontainers.image.licenses"])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject | {"hashes": [{"alg": "SHA-256", "content": described["Id"].split(":")[1]}]}},
        "components": [*debian_packages(image), *python_packages(image), *toolchain(image, manifest)],
    }


if __name__ == "__main__":
    print(json.dumps(bill(sys.argv[1], Path(sys.argv[2])), indent=1))
