from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from tenure.config import Settings
from tenure.engine import SENDING_OFF, Engine
from tenure.errors import ConfigInvalid, WrongKeyRing
from tenure.ids import TenantId
from tenure.outbox.http import Failure, Policy, Request, Response, Timings
from tenure.outbox.keyring import new_key
from tenure.outbox.model import ApplicationIn, EndpointIn, NewMessage
from tenure.telemetry.events import Event
from tests.work.rig import until, until_read

DEFAULT = TenantId("default")


class Sink:
    """Takes every request and answers 204."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.closed = False

    async def send(
        self,
        request: Request,
        policy: Policy,
        before_write: Callable[[], bool] | None = None,
    ) -> Response | Failure:
        assert before_write is not None
        assert before_write()
        self.requests.append(request)
        return Response(
            status=204,
            http_version="1.1",
            headers=(),
            body=b"",
            truncated=False,
            reused=False,
            address="203.0.113.1",
            tls_version=None,
            timings=Timings(dns=None, connect=None, tls=None, first_byte=1, total=1),
        )

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, secret_keys=(SecretStr(new_key()),))


async def send_one(engine: Engine) -> None:
    outbox = engine.outbox
    app = await outbox.create_application(DEFAULT, ApplicationIn(name="a"))
    endpoint = EndpointIn(url="https://example.com/hook")
    await outbox.create_endpoint(DEFAULT, app.value.id, endpoint)
    message = NewMessage(event_type="a.b", body=b'{"a":1}')
    await outbox.accept(DEFAULT, app.value.id, message)


async def test_what_the_outbox_accepts_is_sent_and_settled(settings: Settings) -> None:
    sink = Sink()
    async with Engine(settings, transport=sink) as engine:
        await send_one(engine)
        await until(lambda: sink.requests)
        await until_read(
            engine.backend,
            lambda tx: tx.scalar("SELECT count(*) FROM work WHERE state = 'succeeded'"),
            lambda count: count == 1,
        )
        health = engine.health()
        assert health.ready
        assert health.node is not None
        assert health.node.good
    assert sink.closed
    assert len(sink.requests) == 1


async def test_with_sending_off_work_is_kept_and_nothing_is_claimed(
    settings: Settings,
) -> None:
    sink = Sink()
    off = settings.model_copy(update={"sending": False})
    async with Engine(off, transport=sink) as engine:
        await send_one(engine)
        loop = engine._loop
        assert loop is not None
        passes = loop.tick
        engine.wake()
        await until(lambda: loop.tick > passes + 1)
        state = await engine.backend.read(
            lambda tx: tx.first("SELECT state, claim FROM work")
        )
        assert state is not None
        assert tuple(state) == ("ready", 0)
        assert engine.health().off == SENDING_OFF
    async with Engine(settings, transport=sink):
        await until(lambda: sink.requests)


async def test_an_engine_that_does_not_work_opens_no_node(settings: Settings) -> None:
    async with Engine(settings, works=False) as engine:
        nodes = await engine.backend.read(lambda tx: tx.all("SELECT id FROM node"))
        assert list(nodes) == []
        assert engine.node is None
        assert engine.health().node is None


async def test_other_secret_keys_than_at_first_use_are_refused(
    settings: Settings,
) -> None:
    async with Engine(settings, works=False):
        pass
    other = settings.model_copy(update={"secret_keys": (SecretStr(new_key()),)})
    with pytest.raises(WrongKeyRing, match="do not open this database"):
        await Engine(other, works=False).start()
    async with Engine(settings, works=False):
        pass


async def test_sqlite_keeps_a_ring_of_its_own_beside_the_file(tmp_path: Path) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path}/new.db")
    async with Engine(settings, works=False):
        pass
    ring = tmp_path / "new.db.keys"
    kept = ring.read_text()
    assert ring.stat().st_mode & 0o777 == 0o600
    async with Engine(settings, works=False):
        assert ring.read_text() == kept
    left = sorted(p.name for p in tmp_path.iterdir() if ".keys" in p.name)
    assert left == ["new.db.keys"]


async def test_two_first_starts_at_once_share_one_ring(tmp_path: Path) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path}/new.db")
    engines = [Engine(settings, works=False) for _ in range(2)]
    await asyncio.gather(*(engine.start() for engine in engines))
    for engine in engines:
        await engine.stop()


async def test_postgresql_without_secret_keys_is_refused_with_a_fresh_key(
    postgres_url: str,
) -> None:
    with pytest.raises(ConfigInvalid, match="here is a fresh key"):
        await Engine(Settings(database_url=postgres_url)).start()


async def test_a_database_of_another_deployment_is_served_but_sends_nothing(
    settings: Settings,
) -> None:
    async with Engine(settings, works=False):
        pass
    sink = Sink()
    copied = settings.model_copy(update={"deployment": "staging"})
    async with Engine(copied, transport=sink) as engine:
        assert engine.events.count(Event.COPY) == 1
        off = engine.health().off
        assert off is not None
        assert "looks like a copy" in off


async def test_stopping_says_both_budgets_and_closes_the_node_last(
    settings: Settings,
) -> None:
    told: list[object] = []
    engine = Engine(settings, transport=Sink())
    await engine.start()
    drained = await engine.stop(told=told.append)
    assert len(told) == 1
    assert drained is not None
    assert drained.cut == 0
    assert not engine.health().ready
    assert await engine.stop() is None
    async with Engine(settings, works=False) as after:
        rows = await after.backend.read(
            lambda tx: tx.all("SELECT state, closed_why FROM node")
        )
    assert [tuple(row) for row in rows] == [("closed", "drained")]


async def test_a_key_ring_that_is_gone_is_named_and_not_replaced(
    tmp_path: Path,
) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'new.db'}")
    async with Engine(settings, works=False):
        pass
    ring = tmp_path / "new.db.keys"
    ring.rename(tmp_path / "kept")
    with pytest.raises(WrongKeyRing, match=r"new\.db\.keys is missing"):
        await Engine(settings, works=False).start()
    assert not ring.exists()
    (tmp_path / "kept").rename(ring)
    async with Engine(settings, works=False):
        pass
