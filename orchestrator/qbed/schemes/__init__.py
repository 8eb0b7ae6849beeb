# SPDX-License-Identifier: Apache-2.0
"""Queueing schemes: the declarations in the folders of schemes/, and the encoding of options and statistics."""
