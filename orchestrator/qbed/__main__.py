# SPDX-License-Identifier: Apache-2.0
"""Entry point of ``qbed`` and ``python -m qbed``: runs the command line and handles an interrupt during its import."""

import gc
import os
import signal
import sys

from qbed.base.processes import raise_on


def main() -> None:
    """Run a command."""
    gc.set_threshold(50_000)  # imports create objects that stay: collections at the default take a tenth of the start
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy would start a thread for each core
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise the parent process ignores SIGINT
        raise_on(signal.SIGINT, KeyboardInterrupt)
    try:
        from qbed.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
