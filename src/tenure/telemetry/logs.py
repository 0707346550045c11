"""How log lines look: structlog over the standard library's logging.

One line per event, on standard error, as JSON or for people. Secrets never come here:
callers log ids and counts. Inside of somebody else's process nothing is configured:
lines go through structlog once the host has configured it, else to `logging`, where the
host's handlers see them, and warnings reach standard error when it has none.
"""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol, TextIO

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from structlog.typing import EventDict, Processor

__all__ = ["REQUEST_ID", "Log", "configure", "logger", "set_level"]

REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)
"""The request that is served here; its id stands in each line written meanwhile."""

_LAST: Final = "exception"
"""The field of many lines, which stands below the one line of an event."""


class Log(Protocol):
    """What a line is given to."""

    def log(self, level: int, event: str, **fields: object) -> object:
        """Write one line, if this level is written at all."""
        ...


class _Undecided:
    """Asks at each line whether structlog is configured: hosts do so late."""

    __slots__ = ("_name", "_plain")

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._plain: Final = logging.getLogger(name)

    def log(self, level: int, event: str, **fields: object) -> None:
        if structlog.is_configured():
            structlog.get_logger(self._name).log(level, event, **fields)
        elif self._plain.isEnabledFor(level):
            # Left alone, structlog would print to standard output, which belongs to
            # the host.
            self._plain.log(level, "%s", _plain_text(event, fields), stacklevel=3)


def logger(name: str) -> Log:
    """Return the log of a part of Tenure; ``name`` is that of its `logging` logger."""
    return _Undecided(name)


def _plain_text(event: str, fields: Mapping[str, object]) -> str:
    request_id = REQUEST_ID.get()
    if request_id is not None and "request_id" not in fields:
        fields = {"request_id": request_id, **fields}
    short = [f"{name}={fields[name]!r}" for name in fields if name != _LAST]
    long = [str(fields[_LAST])] if _LAST in fields else []
    return "\n".join([" ".join([event, *short]), *long])


def _with_request(_: object, __: str, line: EventDict) -> EventDict:
    request_id = REQUEST_ID.get()
    if request_id is not None:
        line.setdefault("request_id", request_id)
    return line


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        _with_request,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def configure(
    *, form: str = "console", level: str = "info", stream: TextIO | None = None
) -> None:
    """Send every line of this process, ours and libraries', to one stream.

    ``form`` is ``json`` or ``console``, ``level`` a name such as ``info``. Called once,
    by a program; a library that embeds Tenure keeps its own logging.
    """
    target = sys.stderr if stream is None else stream
    # Tracebacks without locals: those may hold payloads and secrets.
    if form == "json":
        last: list[Processor] = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    else:
        last = [
            structlog.dev.ConsoleRenderer(
                colors=target.isatty(),
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_shared(),
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *last,
        ],
    )
    output: Final = logging.StreamHandler(target)
    output.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def set_level(level: str) -> None:
    """Write from now on what is at least so severe; after `configure`, in a program."""
    logging.getLogger().setLevel(level.upper())
