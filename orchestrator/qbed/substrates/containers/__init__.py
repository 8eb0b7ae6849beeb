# SPDX-License-Identifier: Apache-2.0
"""The containers substrate: each node of a lab is a container that Containerlab deploys (docs/formats.md section 5).

The same plan as in virtual time, on the wall clock: paper time `t = (CLOCK_MONOTONIC - origin) / dilation`.
"""

NAME = "containerlab"
"""What `--on` calls it."""
