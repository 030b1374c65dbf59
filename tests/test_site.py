"""The site in a browser, where `make docs` has built it."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import BROWSERS, FRAMES, LISTEN, Reader

SITE = Path(__file__).parent.parent / "docs" / "_build" / "html"
PHONE = 390
PAGES = sorted(
    str(page.relative_to(SITE)) for page in SITE.rglob("*.html") if "_static" not in page.parts
) or ["index.html"]
SAY = """
addEventListener("load", () => setTimeout(() => {
  found.window = innerWidth;
  found.width = document.documentElement.scrollWidth;
  found.broken = [...document.images].filter(image => !image.naturalWidth).map(image => image.src);
  found.found = [...document.querySelectorAll("#search-results li a")].map(link => link.textContent);
  parent.postMessage(found, "*");
}, 3000));
"""


class Watched(SimpleHTTPRequestHandler):
    """Files of the site, with scripts in its pages that say what went wrong."""

    def do_GET(self) -> None:
        path = self.path.split("?")[0].lstrip("/")
        if path == "frames":
            content = FRAMES.replace("PHONE", str(PHONE)).replace("copy.html", self.path.split("?", 1)[1])
        elif path.endswith(".html"):
            content = (SITE / path).read_text()
            content = content.replace("<head>", f"<head><script>{LISTEN}</script>", 1)
            content = content.replace("</body>", f"<script>{SAY}</script></body>", 1)
        else:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(content.encode())

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if not (SITE / "index.html").exists():
        pytest.skip("the site is not built; make docs builds it")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Watched, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def opened(address: str, page: str, folder: Path) -> list[dict[str, Any]]:
    """What a page says on a phone and on a screen."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    shown = subprocess.run(
        [
            browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1800,900",
            f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=15000", "--dump-dom",
            f"{address}/frames?{page}",
        ],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    said = [json.loads(text) for tag, text in Reader(shown).texts if tag == "pre"]
    assert sorted(found["window"] for found in said) == [PHONE, 1280]
    return said


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_no_errors_and_fit_a_phone(page: str, address: str, tmp_path: Path) -> None:
    for found in opened(address, page, tmp_path):
        assert found["errors"] == []
        assert found["broken"] == []
        assert found["width"] <= found["window"]


def test_the_search_finds_audits(address: str, tmp_path: Path) -> None:
    for found in opened(address, "search.html?q=audit", tmp_path):
        assert any("audit" in title.lower() for title in found["found"]), found
