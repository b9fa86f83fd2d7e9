"""Headless Chromium, driven through its own DevTools protocol over a pipe: no driver, no port."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def found() -> str | None:
    """Where a Chromium is; ``None`` if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page in a browser of its own. ``errors`` collects what its console complained of."""

    def __init__(self, profile: Path) -> None:
        to_browser, ours_out = os.pipe()
        ours_in, from_browser = os.pipe()
        self._out, self._in = ours_out, os.fdopen(ours_in, "rb", buffering=0)
        command = [found() or "chromium", "--headless=new", "--no-sandbox", "--disable-gpu"]
        command += ["--remote-debugging-pipe", "--hide-scrollbars", "--no-first-run"]
        command += ["--disable-dev-shm-usage", "--disable-extensions", f"--user-data-dir={profile}"]

        def pipes() -> None:
            # Chromium reads from 3 and writes to 4; moved out of the way of each other first.
            high = os.dup(to_browser), os.dup(from_browser)
            read, write = (os.dup2(each, 90 + i) for i, each in enumerate(high))
            os.dup2(read, 3)
            os.dup2(write, 4)

        self._process = subprocess.Popen(
            command,
            preexec_fn=pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._session = 0, None
        self._rest = b""
        self.errors: list[str] = []
        self.requests: list[str] = []

        target = self("Target.createTarget", url="about:blank")["targetId"]
        attached = self("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def look(self, width: int, height: int, dark: bool = False) -> None:
        """The window's size in CSS pixels, and the colours that its user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Goes to an address."""
        self("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        result = self(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition: str, seconds: float = 30) -> None:
        """Returns once a JavaScript condition holds.

        Raises:
            AssertionError: it does not come true.
        """
        code = (
            f"(async () => {{ const end = performance.now() + {seconds * 1000};"
            f"while (!({condition})) {{ if (performance.now() > end) return false;"
            f"await new Promise((go) => setTimeout(go, 30)); }} return true; }})()"
        )
        assert self.value(code), (
            f"{condition}\n{self.errors}\n{self.value('document.body.innerText')}"
        )

    def press(self, key: str) -> None:
        """Types a key."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            self("Input.dispatchKeyEvent", type=kind, key=key, **text)

    def picture(self, path: Path) -> None:
        """Takes a screenshot."""
        path.write_bytes(base64.b64decode(self("Page.captureScreenshot", format="png")["data"]))

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._out)
        self._in.close()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = self._in.read(1 << 20)
            assert chunk, "Chromium ended"
            self._rest += chunk
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._heard(message.get("method"), message.get("params", {}))
        return message

    def _heard(self, method: str | None, given: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(given["exceptionDetails"])[:600])
        elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning"):
            self.errors.append(json.dumps(given["args"])[:600])
        elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.errors.append(json.dumps(given["entry"])[:600])
        elif method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"][:200])
