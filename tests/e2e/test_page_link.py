# SPDX-License-Identifier: Apache-2.0
"""The link to the page that `qbed serve --url` prints: it has the token, and the page has a link to Grafana."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from qbed_testing.browser import Browser, chromium
from qbed_testing.service import ServiceProcess

pytestmark = pytest.mark.e2e
TOKEN = "a-token-of-many-letters"
GRAFANA = 'http://localhost:3000/?a=1&b="2"'


def test_the_printed_link_opens_the_page_without_a_question(tmp_path: Path) -> None:
    if chromium() is None:
        pytest.skip("there is no Chromium here (tools/browser)")
    with ServiceProcess(tmp_path / "service", "--grafana", GRAFANA, QBED_TOKEN=TOKEN) as service:
        assert service.http.get("/jobs").status_code == 401
        with Browser(tmp_path / "browser") as browser:
            browser.open(f"{service.url}/#token={TOKEN}")
            browser.wait_for("document.querySelectorAll('#lab option').length > 5")  # the list needs the token
            assert not browser.evaluate("document.getElementById('token-dialog').open")
            assert TOKEN not in browser.evaluate("location.href")
            links = "[...document.querySelectorAll('nav a')].map(link => link.getAttribute('href'))"
            assert GRAFANA in browser.evaluate(links)


def test_the_url_is_printed_with_the_token_and_its_host_name_is_allowed(tmp_path: Path) -> None:
    options = ("--url", "http://lab.example:8410/")
    command = [sys.executable, "-m", "qbed", "serve", "--folder", str(tmp_path), "--port", "0", *options]
    with ServiceProcess(tmp_path, *options, QBED_TOKEN=TOKEN) as service:
        assert service.url == f"http://lab.example:8410/#token={TOKEN}"
    for wrong in ("lab.example:8410", "http://", "http://a b/", "http://a/#x"):
        done = subprocess.run([*command[:-1], wrong], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "expected a URL such as" in done.stderr
