# SPDX-License-Identifier: Apache-2.0
"""Entry point of ``qbed`` and ``python -m qbed``: runs the command line and handles an interrupt during its import."""

import signal
import sys

from qbed.base.processes import raise_on


def main() -> None:
    """Run a command."""
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
