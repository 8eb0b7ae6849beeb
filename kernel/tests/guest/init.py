#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""PID 1 of the kernel tests. Runs the scenario in QBED_SCENARIO: `SCENARIO[,ARGUMENT...]`."""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import netlab


def main() -> None:
    for source, target, kind in (
        ("proc", "/proc", "proc"),
        ("sys", "/sys", "sysfs"),
        ("run", "/run", "tmpfs"),
        ("dev", "/dev", "devtmpfs"),
    ):
        netlab.mount(source, target, kind)
    netlab.mount("cell", "/mnt", "hostfs", ".")
    for module in sorted(Path(os.environ["QBED_MODULES"]).glob("*.ko")):
        if module.name != "qgate.ko":
            netlab.load(str(module))
    import faulthandler

    faulthandler.enable()
    import border_scenarios
    import p4_scenarios
    import rate_scenarios
    import scenarios

    print("loaded", flush=True)
    name, *arguments = os.environ["QBED_SCENARIO"].split(",")
    print("imported", flush=True)
    found = (getattr(module, name, None) for module in (border_scenarios, p4_scenarios, rate_scenarios, scenarios))
    scenario = next(filter(None, found))
    scenario(*map(int, arguments))
    print("PASS", name, flush=True)


try:
    main()
except BaseException:
    traceback.print_exc(file=sys.stdout)
finally:
    sys.stdout.flush()
    ctypes.CDLL(None).reboot(0x4321FEDC)
