"""Real `tenure serve` processes: started, asked, terminated and killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tenure.clock import Clock, SystemClock
from tenure.outbox.keyring import new_key
from tenure.testing.lab.nodes import NodeProcess, free_port

KEY = "tnr_bootstrap-key-of-a-test-0123456789abcdef"


@dataclass(slots=True, kw_only=True)
class Fleet:
    """Some nodes on one database, and a client that never gives a message up."""

    nodes: list[NodeProcess]
    clock: Clock = field(default_factory=SystemClock)
    accepted: dict[str, str] = field(default_factory=dict[str, str])
    """Message id by idempotency key, as the first 202 said it."""
    refused: int = 0

    async def api(self, method: str, path: str, **kwargs: Any) -> Any:
        """Call the first node's API; the answer must be 2xx."""
        async with self._client(self.nodes[0]) as client:
            answer = await client.request(method, f"/api/v1{path}", **kwargs)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def submit_all(self, app: str, keys: list[str], *, callers: int = 8) -> None:
        """Submit one message for each key, asking again until each has its 202."""
        pending = list(reversed(keys))

        async def caller(first: int) -> None:
            turn = first
            while pending:
                key = pending.pop()
                while not await self._submit(app, key, turn):
                    turn += 1
                    await asyncio.sleep(0.05)
                turn += 1

        async with asyncio.TaskGroup() as group:
            for at in range(callers):
                group.create_task(caller(at))

    async def _submit(self, app: str, key: str, turn: int) -> bool:
        node = self.nodes[turn % len(self.nodes)]
        body = {"eventType": "order.paid", "payload": {"key": key, "note": "grüße 🎉"}}
        try:
            async with self._client(node) as client:
                answer = await client.post(
                    f"/api/v1/app/{app}/msg",
                    json=body,
                    headers={"idempotency-key": key},
                )
        except httpx.TransportError:
            self.refused += 1
            return False
        if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE, answer.text
            self.refused += 1
            return False
        assert answer.status_code == httpx.codes.ACCEPTED, answer.text
        message: str = answer.json()["id"]
        assert self.accepted.setdefault(key, message) == message
        return True

    def _client(self, node: NodeProcess) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=node.url,
            headers={"authorization": f"Bearer {KEY}"},
            timeout=20,
        )


@contextlib.asynccontextmanager
async def fleet(
    database_url: str, folder: Path, *, nodes: int, settings: Mapping[str, str]
) -> AsyncGenerator[Fleet]:
    """Start nodes on one database; end what is left of them afterwards."""
    environ = {
        "TENURE_DATABASE_URL": database_url,
        "TENURE_BOOTSTRAP_KEY": KEY,
        "TENURE_SECRET_KEYS": new_key(),
        "TENURE_ALLOW_NETWORKS": "127.0.0.0/8",
        **settings,
    }
    serving = [
        NodeProcess(
            port=free_port(), environ=environ, log=folder / f"node-{at}.log", cwd=folder
        )
        for at in range(nodes)
    ]
    try:
        for node in serving:
            await node.start()
        yield Fleet(nodes=serving)
    finally:
        for node in serving:
            if node.process is not None and node.process.returncode is None:
                await node.kill()
