"""Accepting on a node that sends: what is born, when nobody knows, and when it is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr

from tenure.config import Settings
from tenure.engine import Engine
from tenure.limits import Durations
from tenure.outbox.keyring import new_key
from tenure.store.contract import CommitUnknown
from tests.outbox.scripted import Scripted, response
from tests.outbox.world import ONE, accept, make_app, make_endpoint, rows
from tests.work.rig import Gate, until, until_read

FAST = Durations(20)
"""Beats four times a second; claims that only the database knows go back after 0.5 s."""


@dataclass(slots=True)
class Interrupted:
    """The acceptor's database: its answers can be lost, or wait at a gate."""

    inner: Any
    lose: list[str] = field(default_factory=list[str])
    gate: Gate | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def write(self, fn: Callable[..., Any], *, retry: bool = True) -> Any:
        how = self.lose.pop(0) if self.lose else "never"
        if how == "before":
            raise CommitUnknown("the request was lost")
        answer = await self.inner.write(fn, retry=retry)
        if how == "after":
            raise CommitUnknown("the answer was lost")
        if self.gate is not None:
            await self.gate.pass_through()
        return answer


def node(database_url: str, sink: Scripted) -> Engine:
    settings = Settings(
        database_url=database_url,
        secret_keys=(SecretStr(new_key()),),
        born_claimed=True,
    )
    return Engine(settings, transport=sink, durations=FAST)


async def ready(engine: Engine) -> tuple[Any, Interrupted]:
    """Make an application with one endpoint that this node knows already."""
    app = await make_app(engine.outbox)
    await make_endpoint(engine.outbox, app)
    await until(lambda: engine.worker.at_ease, "a claim that found nothing")
    database = Interrupted(engine.backend)
    engine.outbox.acceptor._backend = database  # pyright: ignore[reportAttributeAccessIssue]
    return app, database


async def settled(engine: Engine, count: int) -> list[dict[str, Any]]:
    await until_read(
        engine.backend,
        lambda tx: tx.scalar("SELECT count(*) FROM work WHERE state = 'succeeded'"),
        lambda found: found == count,
    )
    return await rows(
        engine.backend, "SELECT claim, releases, losses, failures FROM work ORDER BY id"
    )


@pytest.mark.parametrize("lose", [[], ["before"], ["after"], ["after", "after"]])
async def test_a_birth_whose_commit_is_unknown_is_accepted_and_sent_once(
    database_url: str, lose: list[str]
) -> None:
    sink = Scripted(response(204))
    async with node(database_url, sink) as engine:
        app, database = await ready(engine)
        database.lose = list(lose)
        accepted = await accept(engine.outbox, app)
        assert (accepted.matched, accepted.message.app) == (1, app.id)
        assert not engine.worker.births.since
        (row,) = await settled(engine, 1)
        # Only the database knew the first claim: it was given back, not lost.
        again = int("after" in lose)
        assert row == {
            "claim": 1 + again,
            "releases": again,
            "losses": 0,
            "failures": 0,
        }
        await until(lambda: not engine.worker.hand)
        assert engine.worker.bulkhead.used == 0
    assert len(sink.requests) == 1
    assert app.tenant == ONE


async def test_an_acceptor_that_is_cut_after_the_commit_leaves_no_slot_behind(
    database_url: str,
) -> None:
    sink = Scripted(response(204))
    async with node(database_url, sink) as engine:
        app, database = await ready(engine)
        database.gate = Gate()
        asked = asyncio.create_task(accept(engine.outbox, app))
        await database.gate.wait_entered()
        assert engine.worker.bulkhead.used == 1
        await engine.outbox.acceptor._batcher.aclose(0.01)
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert engine.worker.births.since is None
        (row,) = await settled(engine, 1)
        assert row == {"claim": 2, "releases": 1, "losses": 0, "failures": 0}
        await until(lambda: not engine.worker.hand)
        assert engine.worker.bulkhead.used == 0
    assert len(sink.requests) == 1


async def test_a_node_closed_by_others_while_work_is_born_gives_it_back_unbegun(
    database_url: str,
) -> None:
    sink = Scripted(response(204))
    async with node(database_url, sink) as engine:
        app, database = await ready(engine)
        database.gate = Gate()
        asked = asyncio.create_task(accept(engine.outbox, app))
        await database.gate.wait_entered()
        first = engine.node
        await engine.backend.write(
            lambda tx: tx.run("UPDATE node SET state = 'closed', closed_why = 'silent'")
        )
        await until(lambda: engine.node != first, "a new incarnation")
        assert sink.requests == []
        database.gate.opened.set()
        await asked
        (row,) = await settled(engine, 1)
        assert (row["claim"], row["failures"]) == (2, 0)
    assert len(sink.requests) == 1
