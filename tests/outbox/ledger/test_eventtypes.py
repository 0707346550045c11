"""Event types: a catalogue whose deleted entries are archived."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.errors import EventTypeExists, NotFound, ValidationFailed
from tenure.outbox.ledger.eventtypes import create_event_type
from tenure.outbox.model import (
    EventTypeIn,
    EventTypePatch,
    Idempotency,
    Order,
    PageIn,
)
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tests.outbox.world import (
    ONE,
    OTHER,
    count,
    held_transaction,
    make_event_types,
    wait_until_blocked,
)


def given(name: str = "a.b", **changes: Any) -> EventTypeIn:
    fields: dict[str, Any] = {"name": name, "description": "d"}
    return EventTypeIn(**(fields | changes))


async def test_an_event_type_reads_as_it_was_given(outbox: Outbox) -> None:
    schemas = {"1": {"type": "object", "examples": [{"a": 1.5}]}}
    made = await outbox.create_event_type(
        ONE, given(schemas=schemas, feature_flags=["b", "a"], group_name="g")
    )
    found = await outbox.get_event_type(ONE, "a.b")
    assert found == made.value
    assert (found.schemas, found.feature_flags, found.group_name) == (
        schemas,
        ("a", "b"),
        "g",
    )
    for call in (
        outbox.get_event_type(OTHER, "a.b"),
        outbox.patch_event_type(OTHER, "a.b", EventTypePatch(description="x")),
        outbox.delete_event_type(OTHER, "a.b"),
        outbox.delete_event_type(OTHER, "a.b", expunge=True),
    ):
        with pytest.raises(NotFound):
            await call
    assert (await outbox.list_event_types(OTHER)).data == ()


async def test_a_live_name_is_refused_and_an_archived_one_revived(
    outbox: Outbox,
) -> None:
    await make_event_types(outbox, "a.b")
    with pytest.raises(EventTypeExists):
        await outbox.create_event_type(ONE, given())
    await outbox.create_event_type(OTHER, given())
    await outbox.delete_event_type(ONE, "a.b")
    await outbox.delete_event_type(ONE, "a.b")
    assert (await outbox.get_event_type(ONE, "a.b")).archived
    assert (await outbox.list_event_types(ONE)).data == ()
    revived = await outbox.create_event_type(ONE, given(description="again"))
    assert (revived.created, revived.value.archived, revived.value.description) == (
        True,
        False,
        "again",
    )
    await outbox.delete_event_type(ONE, "a.b", expunge=True)
    with pytest.raises(NotFound):
        await outbox.get_event_type(ONE, "a.b")
    with pytest.raises(NotFound):
        await outbox.delete_event_type(ONE, "a.b")


async def test_two_creates_at_once_make_one(
    postgres_url: str, postgres_backend: Backend
) -> None:
    async with held_transaction(postgres_url) as held:
        await held.run(lambda tx: create_event_type(tx, ONE, given()))
        second = asyncio.create_task(
            postgres_backend.write(lambda tx: create_event_type(tx, ONE, given()))
        )
        await wait_until_blocked(postgres_backend)
        await held.commit()
        with pytest.raises(EventTypeExists):
            await second
    assert await count(postgres_backend, "event_type") == 1


async def test_put_creates_by_the_paths_name_and_replaces_all(outbox: Outbox) -> None:
    made = await outbox.update_event_type(ONE, "a.b", given(deprecated=True))
    assert made.created
    put = await outbox.update_event_type(ONE, "a.b", given(description="new"))
    assert (put.created, put.value.deprecated, put.value.description) == (
        False,
        False,
        "new",
    )
    with pytest.raises(ValidationFailed):
        await outbox.update_event_type(ONE, "other", given())


async def test_a_patch_changes_only_what_it_names(outbox: Outbox) -> None:
    await outbox.create_event_type(ONE, given(schemas={"1": {}}, group_name="g"))
    changed = await outbox.patch_event_type(ONE, "a.b", EventTypePatch(archived=True))
    assert (changed.archived, changed.schemas, changed.group_name) == (
        True,
        {"1": {}},
        "g",
    )
    cleared = await outbox.patch_event_type(
        ONE, "a.b", EventTypePatch(schemas=None, description="new")
    )
    assert (cleared.schemas, cleared.description, cleared.archived) == (
        None,
        "new",
        True,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "x" * 257},
        {"name": "\ud800"},
        {"description": "\x00"},
        {"description": "x" * 4097},
        {"schemas": {"1": {"readOnly": 15}}},
        {"schemas": {"1": {"$ref": "http://example.com/"}}},
        {"schemas": {"1": []}},
        {"feature_flags": ["a b"]},
        {"group_name": ""},
    ],
)
async def test_a_bad_event_type_is_refused(
    outbox: Outbox, backend: Backend, changes: dict[str, Any]
) -> None:
    with pytest.raises(ValidationFailed):
        await outbox.create_event_type(ONE, given(**changes))
    await make_event_types(outbox, "a.b")
    if "name" not in changes:
        with pytest.raises(ValidationFailed):
            await outbox.patch_event_type(ONE, "a.b", EventTypePatch(**changes))
    assert await count(backend, "event_type") == 1


async def test_the_list_is_by_name_in_bytes_whatever_order_is_asked(
    outbox: Outbox,
) -> None:
    names = ["B", "a", "a.b", "a-b", "_x", "0"]
    await make_event_types(outbox, *names)
    wanted = sorted(names)
    for order in (None, Order.ASCENDING, Order.DESCENDING):
        page = await outbox.list_event_types(ONE, PageIn(order=order))
        assert [each.name for each in page.data] == wanted
    first = await outbox.list_event_types(ONE, PageIn(limit=2))
    assert (first.iterator, first.prev_iterator) == (wanted[1], f"-{wanted[0]}")
    rest = await outbox.list_event_types(ONE, PageIn(iterator=first.iterator))
    assert [each.name for each in rest.data] == wanted[2:]
    with pytest.raises(ValidationFailed):
        await outbox.list_event_types(ONE, PageIn(iterator="a b"))


async def test_a_create_repeated_with_its_key_is_no_conflict(outbox: Outbox) -> None:
    once = Idempotency(key="k", body_hash="b")
    schemas = {"1": {"type": "object"}}
    first = await outbox.create_event_type(
        ONE, given(schemas=schemas), idempotency=once
    )
    again = await outbox.create_event_type(
        ONE, given(schemas=schemas), idempotency=once
    )
    assert (again.replayed, again.value) == (True, first.value)
