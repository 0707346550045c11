"""Accepted messages: one commit, one message, whoever asks again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.clock import SettableClock, SystemClock
from tenure.errors import (
    DatabaseUnavailable,
)
from tenure.ids import new_message_id
from tenure.outbox.keyring import KeyRing
from tenure.outbox.ledger.accepting import AcceptItem, accept_batch
from tenure.outbox.model import (
    Idempotency,
    OutboxSettings,
)
from tenure.outbox.outbox import Outbox
from tenure.outbox.routes import Routes
from tenure.store.backend import Backend
from tenure.store.tx import Tx
from tests.databases import MakeBackend
from tests.outbox.world import (
    ONE,
    OTHER,
    accept,
    count,
    make_app,
    make_endpoint,
    message,
    rows,
)


class Crash(Exception):
    """Stands for the end of the process: nothing after it runs."""


async def test_case_14_a_submit_repeated_with_its_key_is_one_message(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    first = await accept(outbox, app, "k1")
    again = await accept(outbox, app, "k1")
    assert (first.replayed, again.replayed) == (False, True)
    assert again.message == first.message
    assert again.matched == first.matched == 1
    assert await count(backend, "message") == await count(backend, "work") == 1
    control = await accept(outbox, app)
    assert control.message.id != first.message.id


async def test_case_14_a_lost_commit_answer_is_asked_again_and_makes_no_second_message(
    backend: Backend, outbox: Outbox, settings: OutboxSettings
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    items = [
        AcceptItem(
            tenant=ONE,
            app_ref=app.id,
            message=message(event_id=event_id),
            id=new_message_id(),
            idempotency=once,
        )
        for event_id, once in (
            ("e1", Idempotency(key="k1", body_hash="b1")),
            ("e2", None),
            (None, Idempotency(key="k3", body_hash="b3")),
            (None, None),
        )
    ]

    def batch(tx: Tx) -> Any:
        return accept_batch(tx, items, routes=Routes(), settings=settings).answers

    first = await backend.write(batch)
    again = await backend.write(batch)
    assert [answer.message.id for answer in first] == [item.id for item in items]
    assert [
        (answer.message.id, answer.matched, answer.replayed) for answer in again
    ] == [(item.id, 1, False) for item in items]
    assert await count(backend, "message") == await count(backend, "work") == 4


async def test_case_15_another_tenants_idempotency_key_is_another_key(
    outbox: Outbox,
) -> None:
    ours = await make_app(outbox, "shop")
    theirs = await make_app(outbox, "shop", tenant=OTHER)
    first = await accept(outbox, ours, "k1")
    second = await accept(outbox, theirs, "k1", body=b"{}")
    assert not second.replayed
    assert second.message.tenant == OTHER
    assert first.message.id != second.message.id


async def test_case_13_a_rolled_back_transaction_leaves_nothing(
    backend: Backend, outbox: Outbox, settings: OutboxSettings
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)

    def undone(tx: Tx) -> None:
        item = AcceptItem(
            tenant=ONE,
            app_ref=app.id,
            message=message(),
            id=new_message_id(),
            idempotency=Idempotency(key="k", body_hash="b"),
        )
        accept_batch(tx, [item], routes=Routes(), settings=settings)
        raise DatabaseUnavailable("undone")

    with pytest.raises(DatabaseUnavailable):
        await backend.write(undone)
    for table in ("message", "payload", "delivery", "work", "idempotency"):
        assert await count(backend, table) == 0, table


async def test_case_12_a_crash_between_any_two_statements_leaves_nothing(
    backend: Backend, outbox: Outbox, settings: OutboxSettings
) -> None:
    """Whatever statement is the last one before the crash, all of it or nothing."""
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    crashed = 0
    for last in range(1, 30):
        reached = 0

        def dying(tx: Tx, stop: int = last) -> None:
            nonlocal reached
            execute, insert = tx.conn.execute, tx.conn.exec_driver_sql

            def counted(real: Any) -> Any:
                def call(*args: Any, **named: Any) -> Any:
                    nonlocal reached
                    reached += 1
                    if reached > stop:
                        raise Crash
                    return real(*args, **named)

                return call

            tx.conn.execute, tx.conn.exec_driver_sql = (  # type: ignore[method-assign]
                counted(execute),
                counted(insert),
            )
            try:
                item = AcceptItem(
                    tenant=ONE,
                    app_ref=app.id,
                    message=message(event_id="e1"),
                    id=new_message_id(),
                    idempotency=Idempotency(key="k", body_hash="b"),
                )
                accept_batch(tx, [item], routes=Routes(), settings=settings)
            finally:
                del tx.conn.execute, tx.conn.exec_driver_sql

        try:
            await backend.write(dying)
        except Crash:
            crashed += 1
            assert await count(backend, "message") == 0
            assert await count(backend, "work") == 0
        else:
            break
    assert crashed >= 5
    assert await count(backend, "message") == await count(backend, "work") == 1
    assert await count(backend, "payload") == await count(backend, "delivery") == 1


async def test_case_11_two_updates_in_one_microsecond_are_two_messages(
    make_backend: MakeBackend, ring: KeyRing, settings: OutboxSettings
) -> None:
    """The clock stands still, and both are equal in everything but their ids."""
    clock = SettableClock(SystemClock().wall_us())
    backend = await make_backend(clock=clock, server_time=False)
    outbox = Outbox(backend, settings, ring, clock)
    outbox.start()
    try:
        app = await make_app(outbox)
        await make_endpoint(outbox, app)
        both = await asyncio.gather(accept(outbox, app), accept(outbox, app))
    finally:
        await outbox.aclose()
    first, second = (accepted.message for accepted in both)
    assert first.created_at == second.created_at
    assert first.id != second.id
    instants = await rows(backend, "SELECT DISTINCT created_at, due_at FROM work")
    assert len(instants) == 1
    assert await count(backend, "message") == await count(backend, "delivery") == 2
    subjects = await rows(backend, "SELECT DISTINCT subject FROM work")
    assert {row["subject"] for row in subjects} == {first.id, second.id}
