# SPDX-License-Identifier: Apache-2.0
"""The command line of a guest's kernel, in virtual time and in containers (docs/formats.md, sections 2 and 5)."""

from __future__ import annotations

VIRTUAL_EPOCH_NS = 1_577_836_800_000_000_000  # 2020-01-01: the guest's wall clock at boot
GATE_FD = 200
"""The default descriptor of the gate."""


def guest_arguments(
    *,
    memory_bytes: int,
    seed: int,
    agent: str,
    modules: str,
    gate_fd: int = GATE_FD,
    confine_fd: int | None = None,
    batch_ns: int | None = None,
) -> list[str]:
    """The arguments between the kernel and `-- MODE`.

    `agent`: its process 1, as the host sees it. `modules`: their folder, as the guest does. `confine_fd`: its rules
    (substrates/virtual/confinement.py); in a container they are the container's, and the node's supervisor adds what
    only it knows: the origin of the clock, and the interfaces. `batch_ns` (real time): for how long a guest with a wall
    clock defers input and deadlines while there is traffic.
    """
    return [
        f"mem={memory_bytes >> 20}M",
        *("rootfstype=hostfs", "root=none", "rootflags=/", "ro", "hostfs_rw=.", "uml_dir=.", "umid=uml"),
        f"init={agent}",
        *("time-travel=inf-cpu", f"time-travel-start={VIRTUAL_EPOCH_NS}", f"seed={seed}"),
        "seccomp=auto",  # faster than ptrace, from 6.16 on; 6.12 passes it on to its process 1, which ignores it
        "slab_min_order=3",  # 32 KB at a time: packets' buffers come and go by the thousand, on one processor
        *("con=null", "con0=null,fd:1", "quiet", "loglevel=5"),  # warnings too: they make a cell invalid
        f"qgate={gate_fd}",
        *([] if confine_fd is None else [f"confine={confine_fd}"]),
        *([] if batch_ns is None else [f"wall.batch={batch_ns}"]),
        f"QBED_MODULES={modules}",
    ]
