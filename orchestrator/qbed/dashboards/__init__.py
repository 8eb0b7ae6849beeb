# SPDX-License-Identifier: Apache-2.0
"""Grafana dashboards as code; what comes of it is in the folder `dashboards` of the project."""
