"""Kinds and addresses: which there are, and what of them may be read."""

from __future__ import annotations

import pytest

from tenure.errors import Forbidden, ValidationFailed
from tenure.outbox.carriers.naming import check_kind, parse_coordinate, place_of
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import EndpointIn, EndpointPatch, EndpointSettings
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tests.outbox.world import ONE, count, make_app, make_endpoint, rows


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("log", "https://a.example/"),
        ("chat", "json://127.0.0.1/"),
        ("chat", "discord://1/2?template=/etc/passwd"),
        ("chat", "workflows://a.example/w/s"),
        ("chat", "workflows://x@a.example:443@b.logic.azure.com/w/s"),
        ("chat", "https://discord.com/api/webhooks/1/2"),
        ("slack", "slack://A/B/C"),
        ("http", "slack://hooks.slack.com/***"),
    ],
)
def test_an_address_that_its_kind_does_not_take_is_refused(kind: str, url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        place_of(kind, url)


@pytest.mark.parametrize(
    "kind", ["", "ftp", "handler", "handler:", "handler:paid", "handler:env.x", "log:x"]
)
def test_a_kind_that_does_not_exist_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_kind(kind)


def test_a_coordinate_is_a_package_and_a_name() -> None:
    found = parse_coordinate("acme.billing.on_paid")
    assert (found.package, found.name) == ("acme.billing", "on_paid")
    assert str(found) == "acme.billing.on_paid"
    with pytest.raises(ValueError, match="package"):
        parse_coordinate(f"{'a' * 101}.x")


async def test_a_chat_address_is_a_secret_and_its_mask_keeps_it(
    outbox: Outbox, backend: Backend, ring: KeyRing
) -> None:
    app = await make_app(outbox)
    chat = EndpointSettings(kind="chat")
    made = await make_endpoint(outbox, app, "discord://123/s3cret", settings=chat)
    assert made.url == "discord://***"
    sealed = "SELECT url, userinfo FROM endpoint"
    (stored,) = await rows(backend, sealed)
    assert "s3cret" not in repr(stored)
    assert ring.open(stored["userinfo"]) == b"discord://123/s3cret"
    # What was read and written back keeps it; under another service it is nothing.
    patch = EndpointPatch(url=made.url, description="ours")
    await outbox.patch_endpoint(ONE, app.id, made.id, patch)
    assert await rows(backend, sealed) == [stored]
    for masked in ("tgram://***", "slack://hooks.slack.com/***"):
        kind = "slack" if masked.startswith("slack") else "chat"
        strange = EndpointPatch(url=masked, settings=EndpointSettings(kind=kind))
        with pytest.raises(ValidationFailed):
            await outbox.patch_endpoint(ONE, app.id, made.id, strange)
    # As another kind's it goes nowhere: not as user info, not to a log.
    for kind, url in (("http", "https://***@a.example/"), ("log", "log")):
        patch = EndpointPatch(url=url, settings=EndpointSettings(kind=kind))
        again = await make_endpoint(outbox, app, "discord://1/s3cret", settings=chat)
        await outbox.patch_endpoint(ONE, app.id, again.id, patch)
        one = f"{sealed} WHERE id = '{again.id}'"
        assert [row["userinfo"] for row in await rows(backend, one)] == [None]


@pytest.mark.parametrize("kind", ["handler:app.paid", "log", "archive"])
async def test_only_an_operator_points_endpoints_into_the_deployment(
    outbox: Outbox, backend: Backend, kind: str
) -> None:
    app = await make_app(outbox)
    made = await make_endpoint(outbox, app)
    wanted = EndpointSettings(kind=kind)
    inside = EndpointIn(url=kind, settings=wanted)
    with pytest.raises(Forbidden):
        await outbox.create_endpoint(ONE, app.id, inside, operator=False)
    patch = EndpointPatch(url=kind, settings=wanted)
    with pytest.raises(Forbidden):
        await outbox.patch_endpoint(ONE, app.id, made.id, patch, operator=False)
    assert await count(backend, "endpoint", f"url = '{kind}'") == 0
    await outbox.patch_endpoint(ONE, app.id, made.id, patch)
    # What is there already may be written back.
    again = await outbox.patch_endpoint(ONE, app.id, made.id, patch, operator=False)
    assert (again.url, again.settings.kind) == (kind, kind)
