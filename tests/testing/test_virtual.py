from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import SecretStr

from tenure.clock import US
from tenure.config import Settings
from tenure.outbox.keyring import new_key
from tenure.outbox.model import ApplicationIn, EndpointIn, NewMessage
from tenure.outbox.outbox import DEFAULT_TENANT
from tenure.telemetry.events import Event
from tenure.testing import Receiver, Reply, VirtualEngine

MESSAGE = NewMessage(event_type="a.b", body=b"{}")


async def application(engine: VirtualEngine, url: str) -> str:
    made = await engine.outbox.create_application(
        DEFAULT_TENANT, ApplicationIn(name="a")
    )
    await engine.outbox.create_endpoint(
        DEFAULT_TENANT,
        made.value.id,
        EndpointIn(url=f"{url}/hook"),
    )
    return made.value.id


async def test_time_stands_still_until_it_is_advanced():
    async with VirtualEngine() as engine, Receiver(clock=engine.clock) as receiver:
        begin = engine.now
        app = await application(engine, receiver.url)
        await engine.outbox.accept(DEFAULT_TENANT, app, MESSAGE)
        await engine.idle()
        assert engine.now == begin
        assert [request.at for request in receiver.requests] == [begin]
        await engine.advance(days=1, hours=2, minutes=3, seconds=4)
        assert engine.now - begin == (((26 * 60) + 3) * 60 + 4) * US


async def test_a_receiver_that_takes_its_time_takes_none_of_this_clock():
    async with VirtualEngine() as engine, Receiver(clock=engine.clock) as receiver:
        receiver.answer(Reply(delay_seconds=0.2))
        app = await application(engine, receiver.url)
        await engine.outbox.accept(DEFAULT_TENANT, app, MESSAGE)
        await engine.idle()
        states = await engine.backend.read(lambda tx: tx.all("SELECT state FROM work"))
        assert [row[0] for row in states] == ["succeeded"]


async def test_a_rate_spaces_requests_by_this_clock():
    async with VirtualEngine() as engine, Receiver(clock=engine.clock) as receiver:
        app = await application(engine, receiver.url)
        await engine.backend.write(
            lambda tx: tx.run("UPDATE lane SET rate_per_second = 2")
        )
        for _ in range(7):
            await engine.outbox.accept(DEFAULT_TENANT, app, MESSAGE)
        await engine.advance(minutes=1)
        at = [request.at for request in receiver.requests]
        assert len(at) == 7
        assert all(after - before >= US // 2 for before, after in pairwise(at))
        assert at[-1] - at[0] < 6 * US


async def test_a_jump_is_no_silence_and_no_deadline_of_the_node():
    async with VirtualEngine() as engine:
        node = engine.engine.node
        await engine.advance(days=30)
        assert engine.engine.node == node
        for event in (Event.FENCED, Event.NODE_CLOSED_BY_OTHERS, Event.STALLED):
            assert engine.engine.events.count(event) == 0


async def test_time_does_not_go_back():
    async with VirtualEngine() as engine:
        with pytest.raises(ValueError, match="is in the past"):
            await engine.advance(seconds=-1)
        with pytest.raises(ValueError, match="is in the past"):
            await engine.advance_to(engine.now - 1)


async def test_an_engine_that_does_not_come_to_rest_says_what_is_in_flight():
    async with VirtualEngine(patience_seconds=0.5) as engine, Receiver() as receiver:
        receiver.answer(Reply(delay_seconds=2.0))
        app = await application(engine, receiver.url)
        await engine.outbox.accept(DEFAULT_TENANT, app, MESSAGE)
        with pytest.raises(TimeoutError, match="1 attempts are in flight"):
            await engine.idle()
        await receiver.stop()


async def test_it_keeps_the_database_it_is_given_and_removes_its_own(tmp_path: Path):
    settings = Settings(
        database_url=f"sqlite:///{tmp_path}/kept.db",
        secret_keys=(SecretStr(new_key()),),
    )
    async with VirtualEngine(settings):
        pass
    assert (tmp_path / "kept.db").exists()
    async with VirtualEngine() as engine:
        own = Path(str(engine.backend.url.database))
        assert own.exists()
    assert not own.parent.exists()


async def test_before_it_is_started_there_is_no_engine():
    with pytest.raises(RuntimeError, match="async with"):
        _ = VirtualEngine().engine
