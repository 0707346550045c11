"""A transport that is told its answers, and what tests read of an attempt."""

from __future__ import annotations

from typing import Any

from tenure.outbox.http import Failure, Policy, Request, Response, Timings
from tenure.outbox.model import (
    Application,
    Attempt,
)
from tenure.outbox.outbox import Outbox
from tests.outbox.world import (
    ONE,
)


class Scripted:
    """A transport that answers what it is told and keeps what it was given."""

    def __init__(self, *answers: Response | Failure) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.policies: list[Policy] = []

    async def send(
        self, request: Request, policy: Policy, before_write: Any = None
    ) -> Response | Failure:
        if before_write is not None and not before_write():
            return failure("fenced", began=False)
        self.requests.append(request)
        self.policies.append(policy)
        return self.answers.pop(0)

    async def aclose(self) -> None:
        return None


TIMINGS = Timings(dns=None, connect=1, tls=None, first_byte=2, total=3)


def response(status: int, *headers: tuple[bytes, bytes]) -> Response:
    return Response(
        status=status,
        headers=headers,
        body=b"body",
        truncated=False,
        http_version="1.1",
        address="127.0.0.1",
        tls_version=None,
        reused=False,
        timings=TIMINGS,
    )


def failure(cause: str, **changes: Any) -> Failure:
    from tenure.outbox.http import Cause, Phase

    fields: dict[str, Any] = {
        "cause": Cause(cause),
        "phase": Phase.CONNECT,
        "detail": "told so",
        "address": None,
        "reused": False,
        "began": True,
        "bytes_received": False,
        "timings": TIMINGS,
    }
    return Failure(**(fields | changes))


def parse(request: bytes) -> tuple[dict[str, str], bytes]:
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.split(": ", 1) for line in lines)
    return {name.lower(): value for name, value in pairs}, body


async def only_attempt(outbox: Outbox, app: Application, message: str) -> Attempt:
    page = await outbox.list_attempts_by_message(ONE, app.id, message)
    (found,) = page.data
    return found
