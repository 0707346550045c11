"""Log lines that a run writes, captured per attempt and capped.

Where a record is made it is known whose run is going on, in a task or a thread. Outside
of a run nothing happens, and no handler is added: the process's own logs stay as they are.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from tenure.limits import JOB_LOG_BYTES, JOB_LOG_LINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

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


_FORMAT: Final = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")


class _Factory:
    """Makes log records as before, and hands each to the run that is going on."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make: Final = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        lines = _CURRENT.get()
        copied: object = record.name  # None where `logging.makeLogRecord` copies one
        if lines is not None and copied is not None:
            with contextlib.suppress(Exception):  # arguments that do not fit its text
                lines.add(_FORMAT.format(record))
        return record


def install() -> None:
    """Look at the records of this process from now on, once.

    No handler is added and no level is set: an application's own logging stays as it is,
    and a line that its levels do not let through is no record.
    """
    make = logging.getLogRecordFactory()
    if not isinstance(make, _Factory):
        logging.setLogRecordFactory(_Factory(make))


@contextmanager
def capture() -> Generator[Lines]:
    """Keep what is logged inside, in this task and in threads given its context."""
    lines = Lines()
    token = _CURRENT.set(lines)
    try:
        yield lines
    finally:
        _CURRENT.reset(token)
