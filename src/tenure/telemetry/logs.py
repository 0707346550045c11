"""How log lines look: structlog over the standard library's logging.

One line per event, on standard error, as JSON or for people. Secrets never come here:
callers log ids and counts.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final, TextIO

import structlog

if TYPE_CHECKING:
    from structlog.typing import Processor

__all__ = ["configure"]


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
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
