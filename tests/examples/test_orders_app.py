"""The example is what a user copies: it runs here beside a node, as they would run it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from pydantic import SecretStr

from tenure.config import Settings
from tenure.engine import Engine
from tenure.outbox.keyring import new_key
from tenure.outbox.model import ApplicationIn, EndpointIn
from tenure.outbox.outbox import DEFAULT_TENANT
from tenure.testing import receiving
from tests.cli.rig import environment, until
from tests.outbox.http.servers import LOOPBACK
from tests.tidy.checkout import ROOT

# Any ASGI server does; this one is installed already.
SERVE = """
import asyncio
from examples.orders_app import app
from tenure.server.serving import serve

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stop.set)
    await serve(app, port=0, stop=stop, started=lambda l: print(l.url, flush=True))

asyncio.run(main())
"""


def address(output: Path) -> str | None:
    lines = output.read_text().splitlines()
    return next((line for line in lines if line.startswith("http://")), None)


def post(url: str) -> tuple[int, Any]:
    try:
        with urlopen(Request(url, method="POST"), timeout=30) as response:  # noqa: S310
            return response.status, json.load(response)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def shop_at_work(database_url: str, folder: Path, receiver: Any) -> None:
    """Place orders as a customer of the shop would."""
    output = folder / "output"
    with output.open("w") as out:
        process = Popen(
            [sys.executable, "-c", SERVE],
            cwd=folder,
            stdin=DEVNULL,
            stdout=out,
            env=environment(PYTHONPATH=str(ROOT), SHOP_DATABASE_URL=database_url),
        )
    try:
        url = until(lambda: address(output), "the address")
        placed = [
            post(f"{url}{path}?customer=acme&cents=500")
            for path in ("/orders/1", "/async/orders/2")
        ]
        assert [status for status, _ in placed] == [200, 200]
        # Taken, and by another amount: refused by the key or by the order's number.
        assert post(f"{url}/orders/1?customer=acme&cents=500")[0] == 409
        assert post(f"{url}/async/orders/2?customer=acme&cents=500")[0] == 409
        assert post(f"{url}/orders/3?customer=acme&cents=700")[0] == 200
        received = receiver.wait(3, seconds=30)
        bodies = sorted(each.body for each in received)
        assert bodies == [
            b'{"order":1,"cents":500}',
            b'{"order":2,"cents":500}',
            b'{"order":3,"cents":700}',
        ]
        ids = {each.message_id for each in received}
        assert {answer["message"] for _, answer in placed} < ids
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


async def beside_a_node(database_url: str, folder: Path, receiver: Any) -> None:
    settings = Settings(
        database_url=database_url,
        secret_keys=(SecretStr(new_key()),),
        allow_networks=LOOPBACK,
    )
    async with Engine(settings) as engine:
        await engine.outbox.create_application(
            DEFAULT_TENANT, ApplicationIn(name="Acme", uid="acme")
        )
        endpoint = EndpointIn(url=receiver.url)
        await engine.outbox.create_endpoint(DEFAULT_TENANT, "acme", endpoint)
        await asyncio.to_thread(shop_at_work, database_url, folder, receiver)


def test_a_shop_commits_its_order_and_the_message_together(
    database_url: str, tmp_path: Path
) -> None:
    with receiving() as receiver:
        asyncio.run(beside_a_node(database_url, tmp_path, receiver))
