# SPDX-License-Identifier: Apache-2.0
"""What a lab does while it runs."""
