# SPDX-License-Identifier: Apache-2.0
"""Property tests have no deadlines: machines are busy."""

from hypothesis import settings

settings.register_profile("qbed", settings.default, deadline=None)
settings.load_profile("qbed")
