# SPDX-License-Identifier: Apache-2.0
"""``python -m qbed`` is the command line."""

from qbed.cli import main

main()
