"""The answers that carriers give, in the words of the table of outcomes."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from tenure.clock import US
from tenure.limits import REASON_MAX, RETRY_AFTER_MAX_SECONDS
from tenure.outbox.carriers.model import Carried
from tenure.outbox.outcome import Answer

if TYPE_CHECKING:
    from tenure.clock import Clock

_DONE: Final = Answer(status=HTTPStatus.OK)


class Stopwatch:
    """Makes the answers of one attempt, with its duration and its method."""

    __slots__ = ("_began", "_clock", "_method")

    def __init__(self, clock: Clock, method: str) -> None:
        self._clock: Final = clock
        self._method: Final = method
        self._began: Final = clock.monotonic()

    def done(self, reason: str | None = None) -> Carried:
        """It was taken."""
        return self._carried(_DONE, reason)

    def failed(self, cause: str, detail: str, *, phase: str | None = None) -> Carried:
        """It was not: tried again, charged."""
        answer = Answer(cause=cause, phase=phase)
        return self._carried(answer, readable(f"{cause}: {detail}"))

    def later(self, seconds: float, reason: str) -> Carried:
        """It asks to be tried again after so long, which charges nothing."""
        wait = f"{min(max(0.0, seconds), RETRY_AFTER_MAX_SECONDS):.3f}".encode()
        answer = Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, retry_after=wait)
        return self._carried(answer, readable(reason))

    def stopped(self, reason: str) -> Carried:
        """It asks never to be tried again."""
        return self._carried(Answer(cause="stopped"), readable(reason), final=True)

    def fenced(self) -> Carried:
        """Nothing was begun."""
        return self._carried(Answer(cause="fenced"), None, began=False)

    def _carried(
        self,
        answer: Answer,
        reason: str | None,
        *,
        began: bool = True,
        final: bool = False,
    ) -> Carried:
        spent = round((self._clock.monotonic() - self._began) * US)
        return Carried(
            answer=answer,
            method=self._method,
            duration_us=spent,
            reason=reason,
            began=began,
            final=final,
        )


def readable(text: str) -> str:
    """Return a text of strangers as it may be stored: printable, and short."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown.strip()[:REASON_MAX]
