"""The API over the database itself: the server's application, called in this process.

No socket, no node, no worker: what is submitted here is delivered by the nodes that run
on the database. Whoever can open the database may do everything, so the calls carry an
admin key that exists in this process only.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from ipaddress import ip_network
from typing import Any, Final

from pydantic import SecretStr
from starlette.types import ASGIApp, Message

from tenure.cli.access import Answered
from tenure.cli.databases import existing, named
from tenure.config import Settings
from tenure.engine import Engine
from tenure.errors import ConfigInvalid
from tenure.ids import token
from tenure.server.app import asgi

__all__ = ["Direct", "direct"]


_ANYWHERE: Final = (ip_network("0.0.0.0/0"), ip_network("::/0"))


class Direct:
    """Calls an ASGI application on a loop of its own."""

    def __init__(
        self, app: ASGIApp, key: str, runner: asyncio.Runner, where: str
    ) -> None:
        self._app: Final = app
        self._key: Final = key
        self._runner: Final = runner
        self._where: Final = where

    @property
    def where(self) -> str:
        """The database."""
        return self._where

    def send(self, method: str, target: str, body: bytes | None) -> Answered:
        """Return the answer."""
        return self._runner.run(self._send(method, target, body or b""))

    async def _send(self, method: str, target: str, body: bytes) -> Answered:
        answer: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            answer.append(message)

        await self._app(self._scope(method, target, len(body)), receive, send)
        return Answered(
            status=answer[0]["status"],
            body=b"".join(message.get("body", b"") for message in answer[1:]),
        )

    def _scope(self, method: str, target: str, size: int) -> dict[str, Any]:
        from urllib.parse import unquote

        path, _, query = target.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [
                (b"authorization", f"Bearer {self._key}".encode()),
                (b"content-length", str(size).encode()),
                (b"content-type", b"application/json"),
            ],
            "client": None,
            "server": None,
        }


@contextmanager
def direct(settings: Settings) -> Generator[Direct]:
    """Open the database while the block lasts. Raises ConfigInvalid if there is none."""
    if not settings.is_sqlite and not settings.secret_keys:
        raise ConfigInvalid(
            "neither a key nor a key ring: --key or TENURE_API_KEY asks the server,"
            " TENURE_SECRET_KEYS opens the database directly"
        )
    key = token()
    changes = {
        "bootstrap_key": SecretStr(key),
        # Which networks are open is for the nodes to say, who dial; this process may
        # have been started without their settings.
        "allow_networks": _ANYWHERE,
    }
    own = existing(settings).model_copy(update=changes)
    with asyncio.Runner() as runner:
        engine = Engine(own, works=False)
        runner.run(engine.start())
        try:
            where = f"the database {named(settings)} directly (no --key)"
            yield Direct(asgi(engine), key, runner, where)
        finally:
            runner.run(engine.stop())
