"""The door of sources over real sockets: every payload that GitHub publishes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.inbox.world import SECRET, make_source
from tests.server.running import BOTH, Service

DATA = Path(__file__).parents[1] / "inbox" / "data" / "github.json.xz"


def payloads() -> Iterator[tuple[str, str, bytes]]:
    """Yield event, the type it must get, and the bytes as a sender would write them."""
    for event, examples in json.loads(lzma.decompress(DATA.read_bytes())).items():
        for at, example in enumerate(examples):
            action = example.get("action")
            wanted = f"{event}.{action}" if isinstance(action, str) else event
            indent = 1 if at % 2 else None
            text = json.dumps(example, ensure_ascii=bool(at % 3), indent=indent)
            yield event, wanted, text.encode()


@BOTH
async def test_every_payload_of_github_is_received_byte_for_byte(
    client: httpx.AsyncClient, service: Service
):
    source = await make_source(service.engine.inbox)
    given = list(payloads())
    assert len(given) > 300
    slots = asyncio.Semaphore(16)

    async def post(number: int, event: str, body: bytes) -> str:
        mac = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {
            "x-github-event": event,
            "x-github-delivery": f"delivery-{number}",
            "x-hub-signature-256": f"sha256={mac}",
            "content-type": "application/json",
        }
        async with slots:
            done = await client.post(
                f"/in/{source.path}", content=body, headers=headers
            )
        assert done.status_code == 200, (event, done.text)
        receipt: str = done.json()["receipt"]
        return receipt

    receipts = await asyncio.gather(
        *(post(at, event, body) for at, (event, _, body) in enumerate(given))
    )
    stored = await service.engine.backend.read(
        lambda tx: tx.all(
            "SELECT r.id, r.event_type, p.body FROM receipt r"
            " JOIN payload p ON p.message = r.message"
        )
    )
    found = {row.id: (row.event_type, bytes(row.body)) for row in stored}
    assert len(found) == len(given)
    for receipt, (_, wanted, body) in zip(receipts, given, strict=True):
        assert found[receipt] == (wanted, body)
