"""The log of both signers: its format, its thread, and steps of loops whose failure is logged."""

import json
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import islice
from threading import Condition, Thread
from typing import Any, Final

from common.errors import AttestationError
from signer.kinds.cluster import ClusterKey

_logger = logging.getLogger(__name__)

AUDIT: Final = "audit"
"""Attribute of the records of the audit log, and the kind of their lines."""
_OTHER: Final = "other"
_STDERR: Final = 2
_MAX_BYTES: Final = 16 << 20
"""Lines that wait: some minutes of a storm of joins."""
_MAX_WAIT: Final = 30.0
"""Seconds after which a line that waits makes the log unhealthy."""
_MAX_BATCH: Final = 256
"""Lines of one write. After each one the thread waits for Python's global lock, 5 ms and longer
while the workers verify requests."""
_RETRY_SECONDS: Final = 0.1
_FLUSH_SECONDS: Final = 2.0


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, with the fields in `extra={"fields": …}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class LogWriter(logging.Handler):
    """Writes lines on a thread of its own, so that a reader that stops delays no other thread.

    The lines that wait are bounded. Above the bound, lines are lost and counted. Half of it is for
    the audit log alone, so that a flood of other lines displaces none of its lines.
    """

    def __init__(
        self,
        descriptor: int = _STDERR,
        *,
        max_bytes: int = _MAX_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write to a file descriptor, not to `sys.stderr`: its lock would delay the exit."""
        super().__init__()
        self.setFormatter(JsonFormatter())
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._changed = Condition()
        self._lines: deque[tuple[bytes, float]] = deque()
        """Lines that wait, each with the time since when."""
        self._bytes = 0
        self._lost: Counter[str] = Counter({AUDIT: 0, _OTHER: 0})
        self._reported = self._lost.copy()
        """Lines that were lost before the last line about that."""

    def start(self) -> None:
        """Start the thread, which runs until the process ends."""
        Thread(target=self._run, name="log", daemon=True).start()

    def createLock(self) -> None:  # noqa: N802 - as in the base class
        """Use no lock of the base class: `logging` would hold it while `flush` waits."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Pass a record on without the lock, which the method of Python 3.13 requires."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Append a line; never wait, and never raise."""
        kind = AUDIT if hasattr(record, AUDIT) else _OTHER
        try:
            line = self.format(record).encode() + b"\n"
        except Exception:  # noqa: BLE001 # a record that cannot be formatted is lost
            line = b""
        with self._changed:
            bound = self._max_bytes if kind == AUDIT else self._max_bytes // 2
            if not line or self._bytes + len(line) > bound:
                self._lost[kind] += 1
                return
            self._lines.append((line, self._monotonic()))
            self._bytes += len(line)
            if len(self._lines) == 1:
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait until every line is written, but not for long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, _FLUSH_SECONDS)

    def is_healthy(self) -> bool:
        """Return whether no line has been waiting for too long."""
        with self._changed:
            return not self._lines or self._monotonic() - self._lines[0][1] < _MAX_WAIT

    def lost(self) -> Mapping[str, int]:
        """Return how many lines of each kind were lost since the start."""
        with self._changed:
            return dict(self._lost)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                lines = [line for line, _ in islice(self._lines, _MAX_BATCH)]
            self._write(b"".join(lines))
            with self._changed:
                for line in lines:
                    self._lines.popleft()
                    self._bytes -= len(line)
                self._changed.notify_all()
                lost = self._lost - self._reported
                if is_due := bool(lost) and self._bytes <= self._max_bytes // 4:
                    self._reported = self._lost.copy()
            if is_due:
                fields = {AUDIT: lost[AUDIT], _OTHER: lost[_OTHER], "alarm": True}
                _logger.error("log lines lost", extra={"fields": fields})

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except OSError:  # for example a full disk, or a pipe without a reader
                time.sleep(_RETRY_SECONDS)


def start_log(level: str) -> LogWriter:
    """Log to stderr, on a thread of its own."""
    writer = LogWriter()
    writer.start()
    logging.basicConfig(level=level, handlers=[writer])
    return writer


def run_logged(step: Callable[[], object], name: str, cluster: ClusterKey | None = None) -> bool:
    """Run a step of a loop; log its exception instead of ending the thread; return success."""
    fields: dict[str, object] = {"step": name}
    if cluster is not None:
        fields |= cluster.log_fields()
    try:
        step()
    except AttestationError as error:
        fields |= {"message": error.message, "detail": error.detail}
        _logger.warning("step failed", extra={"fields": fields})
    except Exception:
        _logger.exception("step failed", extra={"fields": fields})
    else:
        return True
    return False
