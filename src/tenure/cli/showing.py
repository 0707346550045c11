"""What `tenure demo` does: a server, two receivers, and messages to watch."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from tenure.cli.databases import sqlite_file
from tenure.cli.ports import is_free
from tenure.cli.running import first_start, run_node, run_on_loop
from tenure.cli.screen import Screen
from tenure.cli.verbs import Call
from tenure.config import LogLevel, Settings
from tenure.engine import Engine
from tenure.errors import ConfigInvalid, Unavailable
from tenure.limits import DEMO_PER_SECOND, PORTS_TRIED_MAX
from tenure.outbox.model import ApplicationIn, EndpointIn, NewMessage, Scope
from tenure.outbox.outbox import DEFAULT_TENANT
from tenure.outbox.signing import SignatureRefused
from tenure.telemetry import logs
from tenure.testing.receivers import Received, Receiver, Reply

__all__ = ["demonstrate"]

DATABASE: Final = "sqlite:///tenure-demo.db"
LOOPBACK: Final = "127.0.0.0/8"
APP: Final = "demo"
GOOD: Final = "good"
FAILING: Final = "failing"
KEY: Final = "demo"
SUMMARY_SECONDS: Final = 1.0
SUMMARY_PIPED_SECONDS: Final = 5.0


def demonstrate(call: Call, *, port: int | None, seconds: float) -> None:
    """Run the demonstration until a signal."""
    settings = call.settings(
        database_url=call.given("database_url") or DATABASE,
        port=port,
        allow_networks=LOOPBACK,
        sending="on",
        https_only="off",
    )
    free = _free_port(settings, call.screen)
    settings = settings.model_copy(update={"port": free, "processes": 1})
    quiet = max(settings.log_level, LogLevel.ERROR, key=list(LogLevel).index)
    logs.configure(form=settings.log_format, level=quiet)
    first_start(settings, make_key=False)
    show = Demo(call.screen, seconds=seconds)
    run_on_loop(
        lambda: run_node(
            settings,
            listening=show.listening,
            draining=lambda plan: call.screen.note(
                f"\nstopping: {plan.in_flight} in flight get up to"
                f" {plan.budget_seconds:.1f} s"
                if plan.in_flight
                else "\nstopping"
            ),
            drained=lambda _how: None,
            beside=show.run,
        )
    )
    file = sqlite_file(settings)
    if file is not None:
        call.screen.note(f"what is left: {file} and {file}.keys; delete both to forget")


def _free_port(settings: Settings, screen: Screen) -> int:
    wanted = settings.port
    if wanted == 0 or is_free(settings.host, wanted):
        return wanted
    for port in range(wanted + 1, min(wanted + PORTS_TRIED_MAX, 65_536)):
        if is_free(settings.host, port):
            screen.note(f"port {wanted} is taken, so it is {port}")
            return port
    raise ConfigInvalid(
        f"ports {wanted} and the {PORTS_TRIED_MAX} after it are taken: choose one with"
        " --port"
    )


class Demo:
    """The receivers, the messages, and the lines that tell about them."""

    def __init__(self, screen: Screen, *, seconds: float) -> None:
        self._screen: Final = screen
        self._seconds: Final = seconds
        self._url = ""
        self._secret = ""
        self._accepted = 0
        self._delivered = 0
        self._unsigned = 0
        self._failed = 0

    def listening(self, url: str) -> None:
        """Remember where the server answers."""
        self._url = url

    async def run(self, engine: Engine) -> None:
        """Set everything up, make messages for a while, tell about them for ever."""
        async with Receiver(self._answer) as receiver:
            await self._prepare(engine, receiver.url)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._make_messages(engine))
                group.create_task(self._tell())

    def _answer(self, received: Received) -> Reply:
        if received.target == f"/{FAILING}":
            self._failed += 1
            return Reply(status=503, body=b"this receiver always fails")
        try:
            received.check_signature(self._secret)
        except SignatureRefused:
            self._unsigned += 1
            return Reply(status=400, body=b"the signature does not hold")
        self._delivered += 1
        return Reply(status=204)

    async def _prepare(self, engine: Engine, receiver: str) -> None:
        outbox = engine.outbox
        made = await outbox.create_application(
            DEFAULT_TENANT,
            ApplicationIn(name="Demonstration", uid=APP),
            get_if_exists=True,
        )
        app = made.value.id
        for uid, what in ((GOOD, "takes everything"), (FAILING, "always answers 503")):
            endpoint = EndpointIn(url=f"{receiver}/{uid}", uid=uid, description=what)
            await outbox.update_endpoint(DEFAULT_TENANT, app, uid, endpoint)
        self._secret = await outbox.endpoint_secret(DEFAULT_TENANT, app, GOOD)
        for key in (await outbox.list_api_keys(DEFAULT_TENANT)).data:
            if key.name == KEY and key.revoked_at is None:
                await outbox.revoke_api_key(DEFAULT_TENANT, key.id)
        new = await outbox.create_api_key(DEFAULT_TENANT, name=KEY, scope=Scope.ADMIN)
        self._introduce(new.token)

    def _introduce(self, token: str) -> None:
        if self._screen.as_json:
            self._screen.json({"event": "started", "url": self._url, "key": token})
            return
        self._screen.line(f"page      {self._url}/", style="bold")
        self._screen.line("user      anything")
        self._screen.line(f"password  {token}", style="bold")
        self._screen.line()
        self._screen.line(
            "An application sends signed messages to two endpoints: one takes them, one"
            " always fails and is tried again later. Ctrl-C ends."
        )

    async def _make_messages(self, engine: Engine) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds
        while loop.time() < until:
            number = self._accepted + 1
            body = b'{"invoice":%d,"total":"%d.00"}' % (number, number * 7)
            message = NewMessage(event_type="invoice.paid", body=body)
            with suppress(Unavailable):  # the next one may be accepted again
                await engine.outbox.accept(DEFAULT_TENANT, APP, message)
                self._accepted += 1
            await asyncio.sleep(1 / DEMO_PER_SECOND)

    async def _tell(self) -> None:
        screen = self._screen
        while True:
            await asyncio.sleep(
                SUMMARY_SECONDS if screen.people else SUMMARY_PIPED_SECONDS
            )
            if screen.as_json:
                screen.json(self._facts())
            elif screen.people:
                screen.rewrite(self._summary())
            else:
                screen.line(self._summary())

    def _facts(self) -> dict[str, Any]:
        return {
            "event": "summary",
            "accepted": self._accepted,
            "delivered": self._delivered,
            "failed_attempts": self._failed,
            "bad_signatures": self._unsigned,
        }

    def _summary(self) -> str:
        text = (
            f"accepted {self._accepted}   delivered {self._delivered}, signatures hold"
            f"   failing endpoint: {self._failed} attempts answered 503"
        )
        return text + (f"   bad signatures: {self._unsigned}" if self._unsigned else "")
