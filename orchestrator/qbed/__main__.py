# SPDX-License-Identifier: Apache-2.0
"""``python -m qbed`` and ``qbed`` are the command line. An interrupt while it is being imported is no fault."""

import signal
import sys

from qbed.interrupts import raise_on


def main() -> None:
    """Run a command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else whoever started it wants none heard
        raise_on(signal.SIGINT, KeyboardInterrupt)
    try:
        from qbed.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
