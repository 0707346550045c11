"""A whole engine carries for every kind, claimed as well as born claimed."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from tenure.config import Settings
from tenure.engine import Engine
from tenure.outbox.carriers.functions import Functions, Received
from tenure.outbox.keyring import KeyRing, new_key
from tenure.outbox.model import EndpointSettings
from tenure.outbox.relayed import Relay, dump
from tenure.testing import Receiver
from tests.outbox.http.servers import LOOPBACK
from tests.outbox.world import accept, count, make_app, make_endpoint
from tests.work.rig import until_read


@pytest.mark.parametrize("born", [True, False])
async def test_an_engine_calls_archives_logs_and_relays_what_it_accepts(
    database_url: str, *, born: bool
) -> None:
    key = new_key()
    sealed = KeyRing([key]).seal
    got: list[Received] = []
    functions = Functions()
    functions.on(name="paid")(got.append)
    settings = Settings(
        database_url=database_url,
        secret_keys=(SecretStr(key),),
        allow_networks=LOOPBACK,
        born_claimed=born,
    )
    relay = Relay(
        receipt="rcpt_1",
        source="src_a",
        method="POST",
        query="",
        headers=(("X-Sig", "a"), ("Authorization", "Bearer b")),
    )
    async with Receiver() as receiver, Engine(settings, functions=functions) as engine:
        outbox = engine.outbox
        app = await make_app(outbox)
        keep = EndpointSettings(drop_headers=())
        await make_endpoint(outbox, app, receiver.url, settings=keep)
        for kind in ("log", "archive", "handler:app.paid"):
            await make_endpoint(outbox, app, kind, settings=EndpointSettings(kind=kind))
        # The second one finds the configurations in memory.
        for number in (1, 2):
            await accept(outbox, app, relay=dump(relay, sealed, ()))
            await until_read(
                engine.backend,
                lambda tx: tx.scalar(
                    "SELECT count(*) FROM work WHERE state = 'succeeded'"
                ),
                lambda done, wanted=4 * number: done == wanted,
            )
        assert await count(engine.backend, "archived") == 2
    assert [each.header("x-sig") for each in got] == ["a", "a"]
    sent = [each.header("authorization") for each in receiver.requests]
    assert sent == ["Bearer b", "Bearer b"]
