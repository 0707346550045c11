"""The catalogue of events: everything that a log line may report, and its level.

One line per surprising event. The name is the stable part; fields are ids and counts,
never payloads or secrets, but for the lines that an endpoint of the kind `log` asks for.
`Events` writes the line and counts it, so that a test and a health page can ask how
often something happened.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from tenure.telemetry.logs import Log, logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Event", "Events", "Listener"]


@dataclass(frozen=True, slots=True)
class _Spec:
    text: str
    level: int
    meaning: str


class Event(Enum):
    """Each event: the text of its line, its level, and what it means."""

    CLAIM_NO_LONGER_HELD = _Spec(
        "claim no longer held",
        logging.WARNING,
        "A result arrived for a claim that somebody else has, or that was ended. It is"
        " kept as evidence; nothing else changed.",
    )
    LATE_SUCCESS_KEPT = _Spec(
        "late success kept",
        logging.INFO,
        "A lost claim's request succeeded after all; the row will not be sent again.",
    )
    RELEASED_OFTEN = _Spec(
        "released often",
        logging.WARNING,
        "A row was claimed and handed back ten times or more without being begun.",
    )
    RESULT_WAITS = _Spec(
        "result waits for the database",
        logging.WARNING,
        "A result could not be written yet; it is kept and tried again.",
    )
    RESULT_REFUSED = _Spec(
        "result refused by the database",
        logging.ERROR,
        "One row's result could not be stored as it is; it is stored with less.",
    )
    ATTEMPT_FAILED_INSIDE = _Spec(
        "attempt failed inside",
        logging.ERROR,
        "The code of a kind raised instead of returning a result: a defect.",
    )
    ATTEMPT_OVERRAN = _Spec(
        "attempt overran its deadline",
        logging.ERROR,
        "The code of a kind did not return by its deadline and was cancelled.",
    )
    CATALOGUE_UNREADABLE = _Spec(
        "job catalogue cannot be read",
        logging.WARNING,
        "This node could not find out which jobs it has, and asks again every second."
        " Nothing is lost meanwhile: what is due stays due, and keeps its history.",
    )
    CATALOGUE_READ = _Spec(
        "job catalogue read",
        logging.INFO,
        "The node knows which jobs it has, and fires them.",
    )
    JOBS_CHANGED = _Spec(
        "jobs changed",
        logging.INFO,
        "This release brought jobs that were not known, or calls some otherwise.",
    )
    JOB_UNREADABLE = _Spec(
        "job cannot be read by this release",
        logging.WARNING,
        "A job's definition was written by a newer release. It stays due for its nodes.",
    )
    JOB_PAUSED_ITSELF = _Spec(
        "job paused by its failures",
        logging.WARNING,
        "A job failed as often in a row as it allows, and fires again once resumed.",
    )
    TICK_FAILED = _Spec(
        "ticking waits for the database",
        logging.WARNING,
        "Due jobs could not be fired yet; they stay due and are asked for again.",
    )
    WINDOWS_MISSED = _Spec(
        "windows missed",
        logging.WARNING,
        "Windows of a job passed while nobody ticked, or came while it still ran; they"
        " are recorded as skipped, with the reason.",
    )
    LOAD_FAILED = _Spec(
        "row cannot be loaded",
        logging.ERROR,
        "What a claim needs could not be read; its row is parked.",
    )
    CLAIM_FAILED = _Spec(
        "claiming waits for the database",
        logging.WARNING,
        "The database did not answer a claim; the loop tries again.",
    )
    LOOP_FAILED = _Spec(
        "worker loop failed",
        logging.ERROR,
        "The worker loop met an error that it does not know; it goes on.",
    )
    BEAT_FAILED = _Spec(
        "beat failed",
        logging.WARNING,
        "This node could not say that it is alive.",
    )
    FENCED = _Spec(
        "fenced",
        logging.ERROR,
        "No beat succeeded for too long: nothing more is started until one does.",
    )
    UNFENCED = _Spec("unfenced", logging.INFO, "A beat succeeded again.")
    NODE_OPENED = _Spec("node opened", logging.INFO, "This process joined the fleet.")
    NODE_CLOSED = _Spec("node closed", logging.INFO, "This process left the fleet.")
    NODE_CLOSED_BY_OTHERS = _Spec(
        "node closed by others",
        logging.ERROR,
        "Another node closed this one's row; it goes on under a new id.",
    )
    PEER_CLOSED = _Spec(
        "peer closed", logging.WARNING, "This node closed another one, found dead."
    )
    STALLED = _Spec(
        "worker loop stalled",
        logging.ERROR,
        "The beats go on but the worker loop does not.",
    )
    SWEPT = _Spec(
        "claims lost", logging.WARNING, "Claims of nodes that are gone were taken back."
    )
    RECONCILED = _Spec(
        "claims reconciled",
        logging.WARNING,
        "Claims in memory and in the database differed and were brought together.",
    )
    SUSPECT = _Spec(
        "suspect runs alone",
        logging.WARNING,
        "A row whose holders died twice runs with nothing beside it.",
    )
    COPY = _Spec(
        "database looks like a copy",
        logging.ERROR,
        "Work is accepted but nothing is sent until an operator adopts the database.",
    )
    WAKEUPS_LOST = _Spec(
        "wake-ups lost",
        logging.WARNING,
        "PostgreSQL's notifications do not arrive or cannot be sent: what others accept"
        " starts at the next poll, a second later at most. Nothing else changes.",
    )
    WAKEUPS_BACK = _Spec("wake-ups back", logging.INFO, "Notifications arrive again.")
    ADOPTED = _Spec(
        "database adopted",
        logging.WARNING,
        "An operator said that this copy is meant; what is not held may go out.",
    )
    HOUSEKEEPING_FAILED = _Spec(
        "housekeeping failed",
        logging.WARNING,
        "A periodic pass over what has passed its time ended early; it comes again.",
    )
    PULLING_FAILED = _Spec(
        "pulling failed",
        logging.WARNING,
        "A source's broker cannot be reached or refuses; it is tried again.",
    )
    REFUSED_NOT_KEPT = _Spec(
        "refused requests not kept",
        logging.ERROR,
        "Some refused requests could not be written as they are: a defect. They are"
        " counted with the next ones.",
    )
    RECEIPTS_REFUSED = _Spec(
        "receipts refused",
        logging.INFO,
        "A source refused requests for this reason, so many since the last such line.",
    )
    MESSAGE_LOGGED = _Spec(
        "message",
        logging.INFO,
        "An endpoint of the kind `log` took a message: its ids, and its body cut to a"
        " bound with members masked that are named as credentials.",
    )
    REQUEST_FAILED = _Spec(
        "request failed",
        logging.ERROR,
        "A request met an error that nobody foresaw: a defect. The caller has its id.",
    )
    LOG_LEVEL = _Spec(
        "log level changed",
        logging.WARNING,
        "An operator asked for other lines (SIGUSR1: all, SIGUSR2: as configured).",
    )
    DRAINING = _Spec("draining", logging.INFO, "Stopping: nothing new is started.")
    CUT = _Spec(
        "attempts cut", logging.WARNING, "The drain budget ended before they did."
    )

    @property
    def text(self) -> str:
        """The stable text of its line."""
        return self.value.text

    @property
    def level(self) -> int:
        """The level of its line, as `logging` counts it."""
        return self.value.level

    @property
    def meaning(self) -> str:
        """What it tells an operator."""
        return self.value.meaning


Listener: TypeAlias = "Callable[[Event, Mapping[str, object]], None]"
"""Is told of each event; what it raises is nobody's end."""


class Events:
    """Writes one line per event and counts it. Safe to use from any thread."""

    __slots__ = ("_counts", "_listeners", "_lock", "_log")

    def __init__(self, log: Log | None = None) -> None:
        self._log: Final[Log] = logger("tenure") if log is None else log
        self._counts: Final[Counter[Event]] = Counter()
        self._lock: Final = threading.Lock()
        self._listeners: Final[list[Listener]] = []

    def listen(self, listener: Listener) -> None:
        """Call this with each event and its fields, on the thread that tells it."""
        self._listeners.append(listener)

    def tell(
        self, event: Event, *, error: BaseException | None = None, **fields: object
    ) -> None:
        """Write one line with its fields; ``error`` adds its traceback.

        Never raises: a log that cannot be written (a closed pipe, a full disk) must
        not end the loop or the thread that has something to say.
        """
        with self._lock:
            self._counts[event] += 1
        for listener in self._listeners:
            with contextlib.suppress(Exception):
                listener(event, fields)
        if error is not None:
            # Formatted here: renderers of others may print locals, and so secrets.
            fields["exception"] = "".join(traceback.format_exception(error)).rstrip()
        with contextlib.suppress(Exception):
            self._log.log(event.level, event.text, **fields)

    def count(self, event: Event) -> int:
        """Return how often an event was told."""
        with self._lock:
            return self._counts[event]

    def counts(self) -> Mapping[Event, int]:
        """Return every event that was told, and how often."""
        with self._lock:
            return dict(self._counts)
