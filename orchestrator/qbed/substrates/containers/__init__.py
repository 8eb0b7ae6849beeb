# SPDX-License-Identifier: Apache-2.0
"""The containers substrate: each node of a lab is a container that Containerlab deploys (docs/formats.md section 5).

The plan is that of virtual time, on the wall clock: lab time `t = (CLOCK_MONOTONIC - origin) / dilation`.
"""

NAME = "containerlab"
"""The value of `--on`."""
