"""API keys: shown once, stored as a hash, scoped, revoked."""

from __future__ import annotations

import pytest

from tenure.clock import US, SystemClock
from tenure.errors import NotFound, ValidationFailed
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import Caller, OutboxSettings, PageIn, Scope
from tenure.outbox.outbox import DEFAULT_TENANT, Outbox
from tenure.store.backend import Backend
from tests.outbox.world import ONE, OTHER, make_app, rows

BOOTSTRAP = "bootstrap-key-of-this-test"


async def test_a_token_is_shown_once_and_only_its_hash_is_stored(
    outbox: Outbox, backend: Backend
) -> None:
    made = await outbox.create_api_key(ONE, name="ci", scope=Scope.WRITE)
    assert made.token.startswith("tnr_")
    assert len(made.token) >= 4 + 43, "256 bits"
    stored = repr(await rows(backend, "SELECT * FROM api_key"))
    assert made.token not in stored
    assert made.token[4:] not in stored
    caller = await outbox.verify_api_key(made.token)
    assert caller == Caller(tenant=ONE, scope=Scope.WRITE, key=made.key.id)
    (listed,) = (await outbox.list_api_keys(ONE)).data
    assert listed == made.key
    assert (await outbox.list_api_keys(OTHER)).data == ()


@pytest.mark.parametrize(
    "token",
    ["", "tnr_", "nonsense", "\x00", "\ud800", "x" * 100_000, "tnr_" + "A" * 43],
)
async def test_any_other_token_is_nobody(outbox: Outbox, token: str) -> None:
    await outbox.create_api_key(ONE, name="ci", scope=Scope.ADMIN)
    assert await outbox.verify_api_key(token) is None


async def test_a_revoked_or_expired_key_is_nobody(
    outbox: Outbox, backend: Backend
) -> None:
    revoked = await outbox.create_api_key(ONE, name="a", scope=Scope.READ)
    with pytest.raises(NotFound):
        await outbox.revoke_api_key(OTHER, revoked.key.id)
    assert await outbox.verify_api_key(revoked.token) is not None
    first = await outbox.revoke_api_key(ONE, revoked.key.id)
    again = await outbox.revoke_api_key(ONE, revoked.key.id)
    assert first.revoked_at == again.revoked_at is not None
    assert await outbox.verify_api_key(revoked.token) is None
    until = SystemClock().wall_us() + 3600 * US
    short = await outbox.create_api_key(
        ONE, name="b", scope=Scope.READ, expires_at=until
    )
    assert await outbox.verify_api_key(short.token) is not None
    backend.clock_offset_us = 3601 * US
    assert await outbox.verify_api_key(short.token) is None


async def test_a_key_may_be_for_one_application(outbox: Outbox) -> None:
    app = await make_app(outbox, "shop")
    made = await outbox.create_api_key(
        ONE, name="portal", scope=Scope.WRITE, app_ref="shop"
    )
    assert made.key.app == app.id
    caller = await outbox.verify_api_key(made.token)
    assert caller is not None
    assert caller.app == app.id
    with pytest.raises(NotFound):
        await outbox.create_api_key(OTHER, name="x", scope=Scope.READ, app_ref=app.id)
    with pytest.raises(ValidationFailed):
        await outbox.create_api_key(ONE, name="x", scope=Scope.ADMIN, app_ref="shop")
    with pytest.raises(ValidationFailed):
        await outbox.create_api_key(ONE, name="", scope=Scope.READ)


async def test_the_bootstrap_key_is_the_admin_of_the_default_tenant(
    backend: Backend, ring: KeyRing
) -> None:
    outbox = Outbox(
        backend, OutboxSettings(), ring, SystemClock(), bootstrap_key=BOOTSTRAP
    )
    caller = await outbox.verify_api_key(BOOTSTRAP)
    assert caller == Caller(tenant=DEFAULT_TENANT, scope=Scope.ADMIN)
    assert await outbox.verify_api_key(BOOTSTRAP + "x") is None
    assert await rows(backend, "SELECT * FROM api_key") == []


async def test_the_periodic_pass_notes_when_keys_were_used(outbox: Outbox) -> None:
    used = await outbox.create_api_key(ONE, name="used", scope=Scope.READ)
    await outbox.create_api_key(ONE, name="unused", scope=Scope.READ)
    await outbox.verify_api_key(used.token)
    await outbox.sweep()
    found = (await outbox.list_api_keys(ONE, PageIn())).data
    assert [each.last_used_at is not None for each in found] == [True, False]
