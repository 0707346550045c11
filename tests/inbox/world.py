"""Short names for what most tests of the inbox begin with."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tenure.ids import TenantId
from tenure.inbox.arrivals import Arrival
from tenure.inbox.inbox import Inbox
from tenure.inbox.model import Source, SourceIn, SourceSettings, Verification
from tenure.inbox.receiver import Reply
from tests.inbox.signed import compact, mac

ONE = TenantId("default")
SECRET = "a-secret-of-the-tests"


async def make_source(
    inbox: Inbox,
    *,
    preset: str = "github",
    secrets: tuple[str, ...] = (SECRET,),
    options: dict[str, Any] | None = None,
    tenant: TenantId = ONE,
    uid: str | None = None,
    app: str | None = None,
    **settings: Any,
) -> Source:
    """Make a source; GitHub's preset unless told otherwise."""
    given = SourceIn(
        name="Hooks",
        uid=uid,
        app=app,
        verification=Verification(preset=preset, options=options or {}),
        secrets=secrets,
        settings=SourceSettings(**settings),
    )
    return (await inbox.create_source(tenant, given)).value


def hook(
    event: str,
    *,
    body: bytes | None = None,
    secret: str = SECRET,
    method: str = "POST",
    address: str | None = "203.0.113.7",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> Arrival:
    """Return a delivery of GitHub's: `event` is its id."""
    raw = compact({"action": "opened", "number": event}) if body is None else body
    signature = "sha256=" + mac(secret.encode(), raw).hex()
    return Arrival(
        method=method,
        url="http://127.0.0.1/in/x",
        query=b"",
        headers=(
            (b"host", b"127.0.0.1"),
            (b"content-type", b"application/json"),
            (b"x-github-event", b"issues"),
            (b"x-github-delivery", event.encode()),
            (b"x-hub-signature-256", signature.encode()),
            *headers,
        ),
        body=raw,
        address=address,
    )


async def send(inbox: Inbox, path: str, arrival: Arrival) -> Reply:
    """Let a request arrive, its body behind its head."""

    async def read(most: int) -> bytes:
        assert most > 0
        return arrival.body

    return await inbox.receive(path, replace(arrival, body=b""), read)
