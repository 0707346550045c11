"""Log lines that a run writes, captured per attempt and capped.

A handler of the standard library looks up whose run is going on in the task or thread
that logs. Outside of a run it does nothing, so the process's own logs stay as they are.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from tenure.limits import JOB_LOG_BYTES, JOB_LOG_LINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Lines", "capture", "install"]


class Lines:
    """The newest lines of one attempt, at most `JOB_LOG_BYTES` of them."""

    __slots__ = ("_kept", "_size", "dropped")

    def __init__(self) -> None:
        self._kept: Final[deque[str]] = deque()
        self._size = 0
        self.dropped = 0
        """How many older lines were given up for newer ones."""

    def add(self, line: str) -> None:
        """Keep a line, cut to `JOB_LOG_LINE_BYTES`."""
        raw = line.replace("\n", "\n  ").encode(errors="replace")
        if len(raw) > JOB_LOG_LINE_BYTES:
            line = raw[:JOB_LOG_LINE_BYTES].decode(errors="ignore") + " …"
        self._kept.append(line)
        self._size += len(line.encode(errors="replace"))
        while self._size > JOB_LOG_BYTES:
            self._size -= len(self._kept.popleft().encode(errors="replace"))
            self.dropped += 1

    def lines(self) -> tuple[str, ...]:
        """Return what is kept, oldest first."""
        return tuple(self._kept)


_CURRENT: Final[ContextVar[Lines | None]] = ContextVar("tenure_run_lines", default=None)


class _Capture(logging.Handler):
    """Hands each record to the run that is going on where it was written."""

    def emit(self, record: logging.LogRecord) -> None:
        lines = _CURRENT.get()
        if lines is not None:
            lines.add(self.format(record))


def install() -> _Capture:
    """Listen to the root logger, once for the process; return the listener."""
    root = logging.getLogger()
    for each in root.handlers:
        if isinstance(each, _Capture):
            return each
    listener = _Capture()
    listener.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    root.addHandler(listener)
    return listener


@contextmanager
def capture() -> Generator[Lines]:
    """Keep what is logged inside, in this task and in threads given its context."""
    lines = Lines()
    token = _CURRENT.set(lines)
    try:
        yield lines
    finally:
        _CURRENT.reset(token)
