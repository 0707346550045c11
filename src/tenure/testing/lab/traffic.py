"""The client of the lab: it submits every message and never gives one up."""

from __future__ import annotations

import asyncio
from functools import partial
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.errors import InvariantViolated
from tenure.ids import token
from tenure.limits import (
    LAB_AGAIN_SECONDS,
    LAB_CALL_SECONDS,
    LAB_CALLERS,
    LAB_LOOK_SECONDS,
    LAB_READY_SECONDS,
)
from tenure.outbox.http import (
    Failure,
    HttpTransport,
    Policy,
    Request,
    Response,
    parse_url,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.testing.lab.nodes import NodeProcess

__all__ = ["Traffic"]

UNAVAILABLE: Final = 500  # from here an answer may be asked for again
POLICY: Final = Policy(
    deadline_seconds=LAB_CALL_SECONDS, allow_networks=(ip_network("127.0.0.0/8"),)
)


class Traffic:
    """Calls any of the nodes, the next one when one does not answer."""

    def __init__(self, nodes: Sequence[NodeProcess], key: str) -> None:
        self._nodes: Final = nodes
        self._transport: Final = HttpTransport()
        self._headers: Final = (
            (b"Authorization", f"Bearer {key}".encode()),
            (b"Content-Type", b"application/json"),
        )
        self.accepted: Final[dict[str, str]] = {}
        """Message id by idempotency key, as the first 202 said it."""
        self.asked_again = 0
        self._allowed = 0
        self._opened: Final = asyncio.Condition()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def prepare(self, sink: str, endpoints: int) -> str:
        """Make an application with its endpoints at the sink; return its id."""
        made = await self._api("/api/v1/app", {"name": "lab"})
        app: str = made["id"]
        for at in range(endpoints):
            await self._api(f"/api/v1/app/{app}/endpoint", {"url": f"{sink}/e{at}"})
        return app

    async def allow(self, messages: int) -> None:
        """Let so many messages in all be submitted by now.

        What is held back goes on after a fault: else a small run would be over before
        it, and nothing would show that the service went on.
        """
        async with self._opened:
            self._allowed = messages
            self._opened.notify_all()

    async def submit(self, app: str, messages: int) -> None:
        """Submit so many messages as they are allowed; returns when each has its 202.

        Raises InvariantViolated for an answer that no fault explains.
        """
        run = token(6)
        left = iter(range(messages))

        async def caller(turn: int) -> None:
            for number in left:
                async with self._opened:
                    await self._opened.wait_for(partial(self._may, number))
                await self._submit(app, f"{run}-{number}", turn + number)

        async with asyncio.TaskGroup() as group:
            for turn in range(LAB_CALLERS):
                group.create_task(caller(turn))

    def _may(self, number: int) -> bool:
        return number < self._allowed

    async def _submit(self, app: str, key: str, turn: int) -> None:
        body = msgspec.json.encode(
            {"eventType": "lab.made", "payload": {"key": key, "note": "grüße 🎉"}}
        )
        path = f"/api/v1/app/{app}/msg"
        while True:
            answer = await self._post(turn, path, body, key)
            if isinstance(answer, Response) and answer.status < UNAVAILABLE:
                break
            self.asked_again += 1
            turn += 1
            await asyncio.sleep(LAB_AGAIN_SECONDS)
        if answer.status != 202:
            raise InvariantViolated(f"a submit was answered {_said(answer)}")
        message: str = msgspec.json.decode(answer.body)["id"]
        if self.accepted.setdefault(key, message) != message:
            raise InvariantViolated(f"the submit {key} has two messages")

    async def _api(self, path: str, body: dict[str, Any]) -> Any:
        async with asyncio.timeout(LAB_READY_SECONDS):
            while True:
                answer = await self._post(0, path, msgspec.json.encode(body), None)
                if isinstance(answer, Response) and answer.status < UNAVAILABLE:
                    break
                await asyncio.sleep(LAB_LOOK_SECONDS)
        if answer.status != 201:
            raise InvariantViolated(f"{path} was answered {_said(answer)}")
        return msgspec.json.decode(answer.body)

    async def _post(
        self, turn: int, path: str, body: bytes, key: str | None
    ) -> Response | Failure:
        node = self._nodes[turn % len(self._nodes)]
        named = () if key is None else ((b"Idempotency-Key", key.encode()),)
        request = Request(
            method="POST",
            url=parse_url(f"{node.url}{path}"),
            headers=(*self._headers, *named),
            body=body,
        )
        return await self._transport.send(request, POLICY)


def _said(answer: Response) -> str:
    return f"{answer.status}: {answer.body.decode(errors='replace')[:500]}"
