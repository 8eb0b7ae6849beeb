# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML page that needs no network, and each figure as PNG, SVG and PDF. Made from the run
folder alone.
"""

from qbed.report.page import Images, Made, describe_images, draw, make_report

__all__ = ["Images", "Made", "describe_images", "draw", "make_report"]
