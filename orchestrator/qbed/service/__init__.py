# SPDX-License-Identifier: Apache-2.0
"""The service (`qbed serve`): campaigns of many, one after the other, over HTTP. docs/service.md."""
