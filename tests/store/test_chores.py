"""Chores: one node at a time, from a kept place, with a holder that can be replaced."""

from __future__ import annotations

import asyncio

from tenure.ids import NodeId
from tenure.limits import CHORE_LEASE_SECONDS, CHORE_REST_FACTOR, DAY_SECONDS
from tenure.store import chores, nodes
from tenure.store.backend import Backend
from tenure.store.chores import Chore
from tenure.store.tx import Tx
from tests.databases import MakeBackend
from tests.store.yard import Yard

EVERY = 900.0


async def taken(backend: Backend, node: NodeId, name: str = "sweep") -> Chore | None:
    return await backend.write(lambda tx: chores.take(tx, name, node))


async def test_a_chore_that_nobody_ever_did_is_due_and_taken_by_one(
    make_backend: MakeBackend,
) -> None:
    backends = [await make_backend() for _ in range(3)]
    yards = [Yard(backend) for backend in backends]
    ids = [await yard.node() for yard in yards]
    due = await backends[0].read(lambda tx: chores.due(tx, ["sweep", "other"]))
    assert due == ["sweep", "other"]
    found = await asyncio.gather(
        *(taken(backend, node) for backend, node in zip(backends, ids, strict=True))
    )
    assert sum(chore is not None for chore in found) == 1


async def test_the_place_is_kept_for_the_holder_and_for_whoever_comes_after_it(
    backend: Backend,
) -> None:
    yard = Yard(backend)
    first, second = await yard.node(), await yard.node()

    def step(tx: Tx) -> None:
        chore = chores.take(tx, "sweep", first)
        assert chore is not None
        chores.advance(tx, chore, "app_1 msg_1")

    await backend.write(step)
    again = await taken(backend, first)
    assert again is not None
    assert again.place == "app_1 msg_1"
    assert await taken(backend, second) is None
    await yard.close(first, "drained")
    after = await taken(backend, second)
    assert after is not None
    assert (after.place, after.began_at) == (again.place, again.began_at)


async def test_a_silent_holder_is_replaced_when_its_lease_is_over(
    backend: Backend,
) -> None:
    yard = Yard(backend)
    first, second = await yard.node(), await yard.node()
    assert await taken(backend, first) is not None
    yard.pass_time(CHORE_LEASE_SECONDS - 5)
    assert await taken(backend, second) is None
    yard.pass_time(6)
    assert await taken(backend, second) is not None


async def test_a_lease_of_a_clock_that_was_set_back_holds_up_nobody(
    backend: Backend,
) -> None:
    yard = Yard(backend)
    first, second = await yard.node(), await yard.node()

    def later(tx: Tx) -> None:
        tx.set_now(tx.now + 3600_000_000)
        chore = chores.take(tx, "sweep", first)
        assert chore is not None

    assert await taken(backend, first) is not None
    await backend.write(later)
    assert await taken(backend, second) is not None


async def test_a_pass_that_is_over_comes_again_after_its_rest(backend: Backend) -> None:
    yard = Yard(backend)
    node, other = await yard.node(), await yard.node()

    async def whole_pass(seconds: float) -> None:
        assert await taken(backend, node) is not None
        yard.pass_time(seconds)

        def end(tx: Tx) -> None:
            chore = chores.take(tx, "sweep", node)
            assert chore is not None
            chores.advance(tx, chore, "x")
            chores.rest(tx, chore, EVERY)

        await backend.write(end)

    def keep_start(tx: Tx) -> None:
        chore = chores.take(tx, "sweep", node)
        assert chore is not None
        chores.advance(tx, chore, "x")

    await whole_pass(0)
    assert await backend.read(lambda tx: chores.due(tx, ["sweep"])) == []
    assert await taken(backend, other) is None
    yard.pass_time(EVERY + 1)
    chore = await taken(backend, other)
    assert chore is not None
    assert chore.place == ""
    await yard.close(other, "drained")
    # A pass that took long takes its rest by that, or it would never end.
    await backend.write(keep_start)
    await whole_pass(EVERY)
    yard.pass_time(EVERY + 1)
    assert await taken(backend, node) is None
    yard.pass_time(EVERY * (CHORE_REST_FACTOR - 1))
    assert await taken(backend, node) is not None


async def test_an_open_holder_is_known_by_its_row(backend: Backend) -> None:
    yard = Yard(backend)
    node, other = await yard.node(), await yard.node()
    assert await taken(backend, node) is not None
    await backend.write(lambda tx: nodes.drain_node(tx, node))
    assert await taken(backend, other) is None


async def test_a_chore_put_off_by_a_clock_that_was_set_back_is_due(
    backend: Backend,
) -> None:
    yard = Yard(backend)
    node = await yard.node()

    def whole_pass(tx: Tx) -> None:
        chore = chores.take(tx, "sweep", node)
        assert chore is not None
        chores.rest(tx, chore, EVERY)

    yard.pass_time(400 * DAY_SECONDS)
    await backend.write(whole_pass)
    yard.pass_time(-1)
    assert await taken(backend, node) is None, "a small step changes nothing"
    yard.pass_time(1 - 400 * DAY_SECONDS)
    assert await backend.read(lambda tx: chores.due(tx, ["sweep"])) == ["sweep"]
    assert await taken(backend, node) is not None
