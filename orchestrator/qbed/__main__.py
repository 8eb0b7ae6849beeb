# SPDX-License-Identifier: Apache-2.0
"""``python -m qbed`` and ``qbed`` are the command line. An interrupt while it is being imported is no fault."""

import sys


def main() -> None:
    """Run a command."""
    try:
        from qbed.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
