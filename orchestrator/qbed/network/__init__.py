# SPDX-License-Identifier: Apache-2.0
"""Resolution of a lab file: its network, and the settings of every link end, queue and host."""
