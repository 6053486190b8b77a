"""Chromium without a window, driven by the DevTools protocol over a pipe."""

import json
import os
import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.harness.process import start, stop

_SECONDS: Final = 60
_LOCAL: Final = ("file:", "data:", "blob:", "about:")


class Browser:
    """One tab of a browser, and what went wrong in it since the last page was opened."""

    def __init__(self, commands: int, replies: int) -> None:
        """Open the tab; `commands` and `replies` are the pipe."""
        self._commands, self._replies = commands, replies
        self._buffer, self._number, self._session = b"", 0, ""
        self.problems: list[str] = []
        self._loaded = False
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._call(f"{domain}.enable")

    def open(self, page: Path, width: int) -> None:
        """Open a page at a width, and wait until it and its pictures are loaded."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        self.problems.clear()
        self._loaded = False
        self._call("Page.navigate", url=page.as_uri())
        self._read(lambda: self._loaded)

    def evaluate(self, script: str) -> Any:  # noqa: ANN401 - what the script returns
        """Return the value of a script; a promise is awaited."""
        answer = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _call(self, method: str, **parameters: object) -> Mapping[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        replies: list[Mapping[str, Any]] = []
        self._read(lambda: bool(replies), replies)
        assert "error" not in replies[0], (method, replies[0])
        result: Mapping[str, Any] = replies[0]["result"]
        return result

    def _read(
        self, done: Callable[[], bool], replies: list[Mapping[str, Any]] | None = None
    ) -> None:
        """Read events until something is true; the reply to the last command goes to a list."""
        end = time.monotonic() + _SECONDS
        while not done():
            message, separator, rest = self._buffer.partition(b"\0")
            if separator:
                self._buffer = rest
                event = json.loads(message)
                if event.get("id") == self._number and replies is not None:
                    replies.append(event)
                self._note(event.get("method"), event.get("params", {}))
                continue
            ready, _, _ = select.select([self._replies], [], [], max(0, end - time.monotonic()))
            assert ready, f"Chromium must answer within {_SECONDS} s"
            received = os.read(self._replies, 1 << 16)
            assert received, "Chromium has ended"
            self._buffer += received

    def _note(self, method: str | None, event: Mapping[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent" if not event["request"]["url"].startswith(_LOCAL):
                self.problems.append(f"request: {event['request']['url']}")
            case "Log.entryAdded" if event["entry"]["level"] == "error":
                self.problems.append(f"log: {event['entry']['text']}")
            case "Runtime.consoleAPICalled" if event["type"] in {"error", "assert"}:
                self.problems.append(f"console: {event['args']}")
            case "Runtime.exceptionThrown":
                self.problems.append(f"exception: {event['exceptionDetails']}")


@contextmanager
def browser(directory: Path) -> Iterator[Browser]:
    """Run Chromium with an empty profile, without network, and yield its tab."""
    (child_in, commands), (replies, child_out) = os.pipe(), os.pipe()
    chromium = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={directory / 'profile'}",
        "--remote-debugging-pipe",
    ]  # fmt: skip
    process = start(
        ["bash", "-c", f'exec "$@" 3<&{child_in} 4>&{child_out}', "bash", *chromium],
        log=directory / "chromium.log",
        pass_fds=(child_in, child_out),
    )
    os.close(child_in)
    os.close(child_out)
    try:
        yield Browser(commands, replies)
    finally:
        stop(process)
        os.close(commands)
        os.close(replies)
