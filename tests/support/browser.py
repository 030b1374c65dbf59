"""Pages read as text, and opened in a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NASTY = "<script>alert('x')</script> & \"quoted\""
VOID = {"meta", "img", "br", "hr", "link", "input", "col"}
LISTEN = """
window.found = {errors: []};
addEventListener("error", event => found.errors.push(String(event.message)));
addEventListener("unhandledrejection", event => found.errors.push(String(event.reason)));
addEventListener("securitypolicyviolation", event => found.errors.push(event.violatedDirective));
console.error = (...words) => found.errors.push(words.join(" "));
"""
# A window is never as narrow as a phone, a frame can be.
FRAMES = """<!DOCTYPE html>
<script>
addEventListener("message", event => {
  const said = document.createElement("pre");
  said.textContent = JSON.stringify(event.data);
  document.body.append(said);
});
</script>
<body>
<iframe width="PHONE" height="800" src="copy.html"></iframe>
<iframe width="1280" height="800" src="copy.html"></iframe>
</body>
"""


class Reader(HTMLParser):
    """Tags in order of opening, with their attributes; fails where one is closed that is not open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((self.open[-1], data))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def allowed(text: str, *scripts: str) -> str:
    """The page with the hashes of more inline scripts in its policy, which else stays."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    assert text.count("script-src ") == 1
    return text.replace("script-src ", f"script-src {hashes} ")


def assert_self_contained(text: str) -> None:
    """Nothing in a page is loaded from elsewhere."""
    for _, attributes in Reader(text).tags:
        for name in ("src", "href", "srcset", "action", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/"))
    visible = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert not re.search(r"https?://|url\(|@import|src\s*=\s*[\"']?//", visible)


def opened(text: str, script: str, folder: Path, phone: int) -> list[dict[str, Any]]:
    """What ``script`` says of a page in a frame as wide as a phone and in one as wide as a screen.

    It adds to ``found``, in which errors are, and posts it to its parent; without a browser the test is
    skipped.
    """
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    text = allowed(text, LISTEN, script)
    text = text.replace("<head>", f"<head><script>{LISTEN}</script>", 1)
    text = text.replace("</body>", f"<script>{script}</script></body>", 1)
    (folder / "copy.html").write_text(text)
    frames = folder / "frames.html"
    frames.write_text(FRAMES.replace("PHONE", str(phone)))
    shown = subprocess.run(
        [
            browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1800,900",
            f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000", "--dump-dom",
            frames.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    said = [json.loads(text) for tag, text in Reader(shown).texts if tag == "pre"]
    assert sorted(found["window"] for found in said) == [phone, 1280]
    for found in said:
        assert found["errors"] == []
    return said
