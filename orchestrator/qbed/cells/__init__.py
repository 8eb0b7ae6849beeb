# SPDX-License-Identifier: Apache-2.0
"""One cell's results, what they prove, and the run folder that holds them."""
