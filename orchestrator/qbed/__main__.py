# SPDX-License-Identifier: Apache-2.0
"""``python -m qbed`` and ``qbed`` are the command line. An interrupt while it is being imported is no fault."""

import signal
import sys


def main() -> None:
    """Run a command."""
    try:
        # Held back until then: in the middle of an import Python may swallow it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            from qbed.cli import main as run
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
