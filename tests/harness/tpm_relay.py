"""A relay between a program and its software TPM, which behaves like TPMs in the field.

It imitates busy, broken and old TPMs from outside: no program has a hook for it.

Source: TPM 2.0 Part 1, section 18 (command and response headers); Part 2, section 6.6 (codes).
"""

import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self

from tests.harness.tpm import SoftwareTpm

TPM2_CREATE_PRIMARY = 0x131
TPM2_QUOTE = 0x158
TPM2_FLUSH_CONTEXT = 0x165
TPM2_PCR_EXTEND = 0x182

RC_FAILURE = 0x101
RC_INITIALIZE = 0x100
RC_YIELDED = 0x908
RC_TESTING = 0x90A
RC_LOCKOUT = 0x921
RC_RETRY = 0x922
RC_VALUE_OF_PARAMETER_2 = 0x2C4

_HEADER = 10
_CONNECTION_SECONDS = 60

Send = Callable[[bytes], bytes]
"""Sends a command to the TPM and returns its response."""
Action = Callable[[bytes, Send], bytes | None]
"""Replaces the sending of a command; None ends the connection."""


def command_code(command: bytes) -> int:
    """Return the TPM_CC of a command."""
    return int.from_bytes(command[6:10], "big")


def refuse(code: int) -> Action:
    """Answer with a response code in place of the TPM."""
    response = b"\x80\x01" + _HEADER.to_bytes(4, "big") + code.to_bytes(4, "big")
    return lambda _command, _send: response


def hang_up(_command: bytes, _send: Send) -> bytes | None:
    """End the connection instead of answering."""
    return None


def after_extending(pcr: int) -> Action:
    """Extend a PCR, in SHA-256, before the command."""
    password = bytes.fromhex("00000009 40000009 0000 00 0000")
    digest = bytes.fromhex("00000001 000b") + bytes(32)
    body = TPM2_PCR_EXTEND.to_bytes(4, "big") + pcr.to_bytes(4, "big") + password + digest
    extend = b"\x80\x02" + (len(body) + 6).to_bytes(4, "big") + body

    def act(command: bytes, send: Send) -> bytes:
        extended = send(extend)
        if extended[6:_HEADER] != bytes(4):
            raise RuntimeError(f"PCR not extended: {extended.hex()}")
        return send(command)

    return act


@dataclass
class _Rule:
    when: Callable[[bytes], bool]
    action: Action
    times: int


class TpmRelay:
    """A relay to a TPM, with rules for commands. A context manager."""

    def __init__(self, tpm: SoftwareTpm) -> None:
        self._upstream = tpm.tcti.removeprefix("swtpm:path=")
        self._directory = tempfile.TemporaryDirectory(prefix="relay-")
        self._rules: list[_Rule] = []
        self._closed = Event()
        path = Path(self._directory.name, "sock")
        self.tcti = f"swtpm:path={path}"
        self.commands: list[int] = []
        """The code of every command that arrived."""
        self._servers = [
            self._serve(str(path), "", self._commands),
            self._serve(f"{path}.ctrl", ".ctrl", self._control),
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed.set()
        for server in self._servers:
            server.shutdown(socket.SHUT_RDWR)
            server.close()
        self._directory.cleanup()

    def on(
        self,
        code: int | None,
        action: Action,
        *,
        times: int = 1,
        when: Callable[[bytes], bool] = lambda _: True,
    ) -> None:
        """Apply the action to the next `times` commands that match the code (any code: None)."""
        self._rules.append(
            _Rule(lambda c: code in {None, command_code(c)} and when(c), action, times)
        )

    def clear(self) -> None:
        """Remove all rules and counters."""
        self._rules.clear()
        self.commands.clear()

    def hang(self, _command: bytes, _send: Send) -> bytes | None:
        """Never answer (an Action)."""
        self._closed.wait()
        return None

    def _serve(
        self, path: str, suffix: str, handle: Callable[[socket.socket, socket.socket], None]
    ) -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen()

        def accept() -> None:
            while not self._closed.is_set():
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                Thread(target=connect, args=(client,), daemon=True).start()

        def connect(client: socket.socket) -> None:
            with client, socket.socket(socket.AF_UNIX) as upstream:
                try:
                    # swtpm takes one client at a time; a connect with a time limit would not wait.
                    upstream.connect(self._upstream + suffix)
                    client.settimeout(_CONNECTION_SECONDS)
                    upstream.settimeout(_CONNECTION_SECONDS)
                    handle(client, upstream)
                except OSError:
                    return

        Thread(target=accept, daemon=True).start()
        return server

    def _commands(self, client: socket.socket, upstream: socket.socket) -> None:
        def send(command: bytes) -> bytes:
            upstream.sendall(command)
            return _message(upstream)

        while command := _message(client):
            self.commands.append(command_code(command))
            response = self._action(command)(command, send)
            if not response:
                return
            client.sendall(response)

    def _action(self, command: bytes) -> Action:
        for rule in self._rules:
            if rule.times and rule.when(command):
                rule.times -= 1
                return rule.action
        return lambda whole, send: send(whole)

    @staticmethod
    def _control(client: socket.socket, upstream: socket.socket) -> None:
        """Pass requests of the control channel on; each gets one answer."""
        while request := client.recv(4096):
            upstream.sendall(request)
            client.sendall(upstream.recv(4096))


def _message(source: socket.socket) -> bytes:
    """Read one command or response; return nothing at the end of the connection."""
    header = _exactly(source, _HEADER)
    return header + _exactly(source, int.from_bytes(header[2:6], "big") - _HEADER)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := source.recv(size - len(data))):
        data += piece
    return data
