"""Pages read as text, and opened in a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
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
# The browser reads commands from file 3 and answers to file 4.
AS_3_AND_4 = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execvp(sys.argv[3], sys.argv[3:])
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


class Tab:
    """A page in Chromium that takes keys, through the DevTools protocol over a pipe."""

    def __init__(self, page: Path, folder: Path, width: int) -> None:
        sends, gets = os.pipe(), os.pipe()
        flags = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
            f"--user-data-dir={folder / 'profile'}",
        ]  # fmt: skip
        ends = (sends[0], gets[1])
        self.process = subprocess.Popen(
            [sys.executable, "-c", AS_3_AND_4, *map(str, ends), browser(), *flags],
            pass_fds=ends,
            stderr=subprocess.DEVNULL,
        )
        for end in ends:
            os.close(end)
        self.sends, self.gets, self.left, self.calls = sends[1], gets[0], b"", 0
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=page.as_uri())
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        self.calls += 1
        message: dict[str, Any] = {"id": self.calls, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.sends, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self.calls:
            pass
        assert "error" not in answer, answer
        return dict(answer["result"])

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self.left:
            ready, _, _ = select.select([self.gets], [], [], 60)
            assert ready, "the browser does not answer"
            read = os.read(self.gets, 1 << 16)
            assert read, "the browser ended"
            self.left += read
        message, _, self.left = self.left.partition(b"\0")
        return dict(json.loads(message))

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """A key on the keyboard."""
        code = {"End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text
            )

    def close(self) -> None:
        self.session = None
        self.call("Browser.close")
        self.process.wait(60)
        os.close(self.sends)
        os.close(self.gets)


def browser() -> str:
    """The command of a browser; without one the test is skipped."""
    found = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    return found


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
    command = browser()
    text = allowed(text, LISTEN, script)
    text = text.replace("<head>", f"<head><script>{LISTEN}</script>", 1)
    text = text.replace("</body>", f"<script>{script}</script></body>", 1)
    (folder / "copy.html").write_text(text)
    frames = folder / "frames.html"
    frames.write_text(FRAMES.replace("PHONE", str(phone)))
    shown = subprocess.run(
        [
            command, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1800,900",
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
