"""Applications: the writes of the Svix API, under races and hostile input."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.clock import US
from tenure.errors import Conflict, IdempotencyKeyReused, NotFound, ValidationFailed
from tenure.limits import DAY_SECONDS
from tenure.outbox.ledger.applications import create_application, find_application
from tenure.outbox.ledger.applications import patch_application as patch_in
from tenure.outbox.model import (
    Application,
    ApplicationIn,
    ApplicationPatch,
    Idempotency,
    Kept,
    Order,
    PageIn,
    Written,
)
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tenure.store.tx import Tx
from tests.outbox.world import (
    ONE,
    OTHER,
    accept,
    count,
    held_transaction,
    make_app,
    make_endpoint,
    rows,
    wait_until_blocked,
)


def given(**changes: Any) -> ApplicationIn:
    fields: dict[str, Any] = {"name": "Shop"}
    return ApplicationIn(**(fields | changes))


async def test_a_created_application_reads_as_it_was_given(outbox: Outbox) -> None:
    wanted = given(uid="shop", throttle_rate=5, metadata={"a": "\u2028😀"})
    made = await outbox.create_application(ONE, wanted)
    assert made.created
    app = made.value
    assert app.id.startswith("app_")
    assert (app.uid, app.throttle_rate, app.metadata) == (
        "shop",
        5,
        {"a": "\u2028😀"},
    )
    assert await outbox.get_application(ONE, "shop") == app
    assert await outbox.get_application(ONE, app.id) == app


async def test_a_uid_is_taken_once_per_tenant_and_free_after_deletion(
    outbox: Outbox,
) -> None:
    first = await make_app(outbox, "shop")
    with pytest.raises(Conflict):
        await make_app(outbox, "shop")
    await make_app(outbox, "shop", tenant=OTHER)
    await outbox.delete_application(ONE, "shop")
    with pytest.raises(NotFound):
        await outbox.get_application(ONE, first.id)
    with pytest.raises(NotFound):
        await outbox.delete_application(ONE, first.id)
    again = await make_app(outbox, "shop")
    assert again.id != first.id


async def test_get_if_exists_returns_the_stored_one_unchanged(outbox: Outbox) -> None:
    first = await make_app(outbox, "shop")
    found = await outbox.create_application(
        ONE, given(name="Other", uid="shop"), get_if_exists=True
    )
    assert (found.created, found.value) == (False, first)


async def test_two_creates_of_one_uid_at_once_make_one(
    postgres_url: str, postgres_backend: Backend
) -> None:
    """Both read that the uid is free; the index decides, and each learns what."""

    def create(tx: Tx) -> Written[Application]:
        return create_application(tx, ONE, given(uid="shop"))

    def get_or_create(tx: Tx) -> Written[Application]:
        return create_application(tx, ONE, given(uid="shop"), get_if_exists=True)

    async with held_transaction(postgres_url) as held:
        first = await held.run(create)
        second = asyncio.create_task(postgres_backend.write(create))
        third = asyncio.create_task(postgres_backend.write(get_or_create))
        await wait_until_blocked(postgres_backend)
        await held.commit()
        with pytest.raises(Conflict):
            await second
        found = await third
    assert first.created
    assert (found.created, found.value.id) == (False, first.value.id)
    assert await count(postgres_backend, "application") == 1


async def test_two_patches_at_once_lose_neither(
    postgres_url: str, postgres_backend: Backend
) -> None:
    made = await postgres_backend.write(
        lambda tx: create_application(tx, ONE, given(uid="shop"))
    )
    app = made.value.id
    async with held_transaction(postgres_url) as held:
        await held.run(lambda tx: patch_in(tx, ONE, app, ApplicationPatch(name="New")))
        second = asyncio.create_task(
            postgres_backend.write(
                lambda tx: patch_in(tx, ONE, app, ApplicationPatch(throttle_rate=9))
            )
        )
        await wait_until_blocked(postgres_backend)
        await held.commit()
        await second
    found = await postgres_backend.read(lambda tx: find_application(tx, ONE, app))
    assert (found.name, found.throttle_rate) == ("New", 9)


async def test_a_put_replaces_all_and_creates_what_is_missing(outbox: Outbox) -> None:
    made = await outbox.update_application(ONE, "nowhere", given(uid="shop"))
    assert made.created
    put = await outbox.update_application(ONE, made.value.id, given(name="New"))
    assert not put.created
    assert (put.value.name, put.value.uid) == ("New", None)
    with pytest.raises(NotFound):
        await outbox.get_application(ONE, "shop")
    with pytest.raises(NotFound):
        await outbox.get_application(ONE, "nowhere")


async def test_a_uid_of_another_application_cannot_be_put_or_patched(
    outbox: Outbox,
) -> None:
    await make_app(outbox, "taken")
    app = await make_app(outbox, "own")
    with pytest.raises(Conflict):
        await outbox.update_application(ONE, app.id, given(uid="taken"))
    with pytest.raises(Conflict):
        await outbox.patch_application(ONE, app.id, ApplicationPatch(uid="taken"))
    own = await outbox.update_application(ONE, app.id, given(uid="own"))
    assert own.value.uid == "own"


async def test_a_patch_changes_only_what_it_names(outbox: Outbox) -> None:
    wanted = given(uid="shop", throttle_rate=5, metadata={"a": "b"})
    app = (await outbox.create_application(ONE, wanted)).value
    changed = await outbox.patch_application(ONE, app.id, ApplicationPatch(name="New"))
    assert (changed.name, changed.uid, changed.throttle_rate, changed.metadata) == (
        "New",
        "shop",
        5,
        {"a": "b"},
    )
    cleared = await outbox.patch_application(
        ONE, app.id, ApplicationPatch(uid=None, throttle_rate=None, metadata=None)
    )
    assert (cleared.name, cleared.uid, cleared.throttle_rate, cleared.metadata) == (
        "New",
        None,
        None,
        {},
    )
    with pytest.raises(NotFound):
        await outbox.patch_application(ONE, "nowhere", ApplicationPatch(name="x"))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "a\x00b"},
        {"name": "\ud800"},
        {"uid": "$$x"},
        {"uid": "app_x"},
        {"uid": "x" * 300},
        {"uid": ""},
        {"throttle_rate": 0},
        {"throttle_rate": 65_536},
        {"throttle_rate": True},
        {"metadata": {"a": "x" * 4096}},
        {"metadata": {"a": "\x00"}},
        {"metadata": {"a": 1}},
    ],
)
async def test_a_bad_application_is_refused_at_create_put_and_patch(
    outbox: Outbox, backend: Backend, changes: dict[str, Any]
) -> None:
    app = await make_app(outbox)
    for call in (
        outbox.create_application(ONE, given(**changes)),
        outbox.update_application(ONE, app.id, given(**changes)),
        outbox.patch_application(ONE, app.id, ApplicationPatch(**changes)),
    ):
        with pytest.raises(ValidationFailed) as refused:
            await call
        assert refused.value.items[0].loc[0] == "body"
    assert await count(backend, "application") == 1


async def test_a_create_repeated_with_its_key_is_one_application(
    outbox: Outbox, backend: Backend
) -> None:
    once = Idempotency(key="k1", body_hash="b")
    first = await outbox.create_application(ONE, given(), idempotency=once)
    again = await outbox.create_application(ONE, given(), idempotency=once)
    assert (first.replayed, again.replayed) == (False, True)
    assert (again.value, again.created) == (first.value, True)
    with pytest.raises(IdempotencyKeyReused):
        await outbox.create_application(
            ONE, given(), idempotency=Idempotency(key="k1", body_hash="c")
        )
    with pytest.raises(IdempotencyKeyReused):
        await accept(outbox, first.value, "k1")
    theirs = await outbox.create_application(OTHER, given(), idempotency=once)
    assert theirs.value.id != first.value.id
    assert await count(backend, "application") == 2


async def test_an_error_is_not_remembered_under_its_key(
    outbox: Outbox, backend: Backend
) -> None:
    await make_app(outbox, "shop")
    once = Idempotency(key="k1", body_hash="b")
    with pytest.raises(Conflict):
        await outbox.create_application(ONE, given(uid="shop"), idempotency=once)
    assert await count(backend, "idempotency") == 0
    await outbox.delete_application(ONE, "shop")
    made = await outbox.create_application(ONE, given(uid="shop"), idempotency=once)
    assert (made.created, made.replayed) == (True, False)


async def test_another_tenant_reaches_nothing(outbox: Outbox) -> None:
    app = await make_app(outbox, "shop")
    for ref in (app.id, "shop"):
        for call in (
            outbox.get_application(OTHER, ref),
            outbox.patch_application(OTHER, ref, ApplicationPatch(name="x")),
            outbox.delete_application(OTHER, ref),
        ):
            with pytest.raises(NotFound):
                await call
    put = await outbox.update_application(OTHER, app.id, given(name="Theirs"))
    assert put.created
    assert put.value.id != app.id
    assert (await outbox.get_application(ONE, app.id)).name == "Shop"
    assert [each.id for each in (await outbox.list_applications(ONE)).data] == [app.id]


async def test_pages_go_forward_and_back_in_either_order(outbox: Outbox) -> None:
    made = [(await make_app(outbox)).id for _ in range(10)]
    await make_app(outbox, tenant=OTHER)

    async def ids(**page: Any) -> tuple[list[str], bool, str | None, str | None]:
        found = await outbox.list_applications(ONE, PageIn(**page))
        shown: list[str] = [each.id for each in found.data]
        return shown, found.done, found.iterator, found.prev_iterator

    first, done, after, before = await ids(limit=6)
    assert (first, done, after, before) == (made[:6], False, made[5], f"-{made[0]}")
    rest, done, _, before = await ids(limit=6, iterator=after)
    assert (rest, done) == (made[6:], True)
    assert (await ids(limit=10))[1] is True
    back, done, _, _ = await ids(limit=3, iterator=before)
    assert (back, done) == (made[3:6], False)
    back, done, _, _ = await ids(limit=6, iterator=before)
    assert (back, done) == (made[:6], True)
    down = list(reversed(made))
    first, done, after, _ = await ids(limit=6, order=Order.DESCENDING)
    assert (first, done) == (down[:6], False)
    rest, done, _, before = await ids(limit=6, order=Order.DESCENDING, iterator=after)
    assert (rest, done) == (down[6:], True)
    back, done, _, _ = await ids(limit=3, order=Order.DESCENDING, iterator=before)
    assert (back, done) == (down[3:6], False)
    assert await ids(limit=0) == ([], False, None, None)


async def test_an_empty_list_has_no_cursors_and_is_done(outbox: Outbox) -> None:
    page = await outbox.list_applications(ONE)
    assert (page.data, page.iterator, page.prev_iterator, page.done) == (
        (),
        None,
        None,
        True,
    )


@pytest.mark.parametrize(
    "page",
    [
        PageIn(limit=251),
        PageIn(limit=-1),
        PageIn(iterator="BAD-$$$ITERATOR"),
        PageIn(iterator=""),
        PageIn(iterator="-"),
        PageIn(iterator="ep_01m8pzph28et0sgdbag3p65h8b"),
        PageIn(iterator="app_01m8pzph28et0sgdbag3p65h8\x00"),
        PageIn(iterator="--app_01m8pzph28et0sgdbag3p65h8b"),
    ],
)
async def test_a_bad_page_is_refused(outbox: Outbox, page: PageIn) -> None:
    with pytest.raises(ValidationFailed) as refused:
        await outbox.list_applications(ONE, page)
    assert refused.value.items[0].loc[0] == "query"


async def test_deleting_ends_open_work_and_keeps_history(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    await outbox.delete_application(ONE, app.id)
    found = await rows(backend, "SELECT state, reason FROM work")
    assert found == [{"state": "cancelled", "reason": "application deleted"}] * 2
    lanes = await rows(backend, "SELECT state FROM lane")
    assert lanes == [{"state": "deleted"}] * 2
    assert await count(backend, "message") == 1
    with pytest.raises(NotFound):
        await outbox.get_message(ONE, app.id, accepted.message.id)
    with pytest.raises(NotFound):
        await accept(outbox, app)
    with pytest.raises(NotFound):
        await make_endpoint(outbox, app)


async def test_an_application_keeps_by_its_own_days_until_it_says_otherwise(
    outbox: Outbox, backend: Backend
) -> None:
    own = Kept(history_days=7, payload_days=2)
    given = ApplicationIn(name="Shop", kept=own)
    app = (await outbox.create_application(ONE, given)).value
    assert app.kept == own
    accepted = await accept(outbox, app)
    found = await rows(backend, "SELECT expires_at FROM payload")
    kept = (found[0]["expires_at"] - accepted.message.created_at) / US
    assert abs(kept - 2 * DAY_SECONDS) < 60
    put = await outbox.update_application(ONE, app.id, ApplicationIn(name="Other"))
    assert put.value.kept == own, "a client that knows nothing of it changes nothing"
    patched = await outbox.patch_application(
        ONE, app.id, ApplicationPatch(kept=Kept(response_days=1))
    )
    assert patched.kept == Kept(response_days=1)
