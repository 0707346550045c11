"""The example is what a user copies: it runs here as they would run it."""

import json
import sys
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tenure.testing import receiving
from tests.cli.rig import environment, tenure, until
from tests.tidy.checkout import ROOT

KEY = "a bootstrap key for the example"

# Any ASGI server does; this one is installed already.
SERVE = """
import asyncio, sys
from examples.fastapi_app import app
from tenure.server.serving import serve

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stop.set)
    async with app.router.lifespan_context(app):
        await serve(app, port=0, stop=stop, started=lambda l: print(l.url, flush=True))

asyncio.run(main())
"""


def address(output: Path) -> str | None:
    lines = output.read_text().splitlines()
    return next((line for line in lines if line.startswith("http://")), None)


def post(url: str) -> Any:
    with urlopen(Request(url, method="POST"), timeout=30) as response:  # noqa: S310
        return json.load(response)


def test_an_application_with_tenure_inside_delivers_and_drains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    output = tmp_path / "output"
    with output.open("w") as out:
        process = Popen(
            [sys.executable, "-c", SERVE],
            cwd=tmp_path,
            stdin=DEVNULL,
            stdout=out,
            env=environment(
                PYTHONPATH=str(ROOT),
                TENURE_ALLOW_NETWORKS="127.0.0.0/8",
                TENURE_BOOTSTRAP_KEY=KEY,
            ),
        )
    try:
        url = until(lambda: address(output), "the address")
        with receiving() as receiver:
            made = post(f"{url}/customers/acme/hook?url={receiver.url}")
            sent = post(f"{url}/customers/acme/invoices/7/paid")
            [received] = receiver.wait(1, seconds=30)
        assert received.message_id == sent["message"]
        assert received.body == b'{"invoice":7,"paid":true}'
        received.check_signature(made["secret"])
        access = ("--server", f"{url}/tenure", "--key", KEY)
        assert tenure("explain", sent["message"], *access).code == 0
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
