"""Idempotency keys: one use each, also when two come at once."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tenure.clock import US
from tenure.errors import IdempotencyKeyReused
from tenure.outbox.ledger.remembering import Use, once, reserve
from tenure.outbox.model import Idempotency, Written
from tenure.store.backend import Backend
from tenure.store.tx import Tx
from tests.outbox.world import ONE, OTHER, count, held_transaction, wait_until_blocked

KEEP = 60.0


class Doing:
    """Counts how often it was done, and answers the count."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Written[int]:
        self.times += 1
        return Written(value=self.times, created=True)


def run_once(
    tx: Tx, doing: Doing, body: str = "b", operation: str = "o"
) -> Written[int]:
    key = Idempotency(key="k", body_hash=body)
    return once(tx, ONE, key, operation, doing, int, keep_seconds=KEEP)


async def test_the_second_use_is_answered_and_not_done(backend: Backend) -> None:
    doing = Doing()
    first = await backend.write(lambda tx: run_once(tx, doing))
    again = await backend.write(lambda tx: run_once(tx, doing))
    assert (first.value, first.created, first.replayed) == (1, True, False)
    assert (again.value, again.created, again.replayed) == (1, True, True)
    assert doing.times == 1


@pytest.mark.parametrize(("body", "operation"), [("c", "o"), ("b", "p")])
async def test_another_body_or_operation_is_refused(
    backend: Backend, body: str, operation: str
) -> None:
    doing = Doing()
    await backend.write(lambda tx: run_once(tx, doing))
    with pytest.raises(IdempotencyKeyReused):
        await backend.write(lambda tx: run_once(tx, doing, body, operation))
    assert doing.times == 1


async def test_two_at_once_are_one(
    postgres_url: str, postgres_backend: Backend
) -> None:
    first, second = Doing(), Doing()
    async with held_transaction(postgres_url) as held:
        await held.run(lambda tx: run_once(tx, first))
        waiting = asyncio.create_task(
            postgres_backend.write(lambda tx: run_once(tx, second))
        )
        await wait_until_blocked(postgres_backend)
        await held.commit()
        answer = await waiting
    assert (answer.value, answer.replayed, second.times) == (1, True, 0)


async def test_two_at_once_take_over_an_expired_key_once(
    postgres_url: str, postgres_backend: Backend
) -> None:
    await postgres_backend.write(lambda tx: run_once(tx, Doing(), "old"))
    postgres_backend.clock_offset_us = 61 * US
    first, second = Doing(), Doing()

    def later(tx: Tx, doing: Doing) -> Written[int]:
        tx.set_now(tx.now + 61 * US)
        return run_once(tx, doing)

    async with held_transaction(postgres_url) as held:
        await held.run(partial(later, doing=first))
        waiting = asyncio.create_task(
            postgres_backend.write(lambda tx: run_once(tx, second))
        )
        await wait_until_blocked(postgres_backend)
        await held.commit()
        answer = await waiting
    assert (first.times, second.times, answer.replayed) == (1, 0, True)
    assert await count(postgres_backend, "idempotency") == 1


async def test_the_same_batch_again_finds_its_own_uses(backend: Backend) -> None:
    uses = [
        Use(tenant=tenant, key=f"k{n}", mark="m", subject=f"msg_{tenant}_{n}")
        for tenant in (OTHER, ONE)
        for n in range(3)
    ]
    for _ in range(2):
        held = await backend.write(lambda tx: reserve(tx, uses, keep_seconds=KEEP))
        assert all(held[use.tenant, use.key].ours for use in uses)
    foreign = [Use(tenant=ONE, key="k0", mark="m", subject="msg_else")]
    found = await backend.write(lambda tx: reserve(tx, foreign, keep_seconds=KEEP))
    assert not found[ONE, "k0"].ours
    assert found[ONE, "k0"].subject == f"msg_{ONE}_0"
