"""Functions in the application: what they are given, and what comes of what they do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tenure.clock import US
from tenure.errors import ConfigInvalid
from tenure.kernel.commands import Failed, Succeeded
from tenure.outbox.carriers.functions import Functions, Received, Retry, Stop
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import Endpoint, EndpointSettings
from tenure.outbox.outbox import Outbox
from tenure.outbox.relayed import Relay, dump
from tenure.store.backend import Backend
from tenure.work.kinds import Ran
from tests.outbox.scripted import only_attempt
from tests.outbox.sending import Sender
from tests.outbox.world import ONE, accept, count, make_app, make_endpoint


class App:
    """Functions as an application registers them; `got` is what they were given."""

    def __init__(self, functions: Functions) -> None:
        self.got: list[Received] = []
        self.cancelled = asyncio.Event()
        self.free = threading.Event()
        functions.on("invoice.*", source="src_a")(self.paid)
        functions.on()(self.plain)
        for each in (self.broken, self.later, self.never, self.slow, self.stuck):
            functions.on(package="acme.jobs")(each)

    async def paid(self, received: Received) -> None:
        self.got.append(received)

    def plain(self, received: Received) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.got.append(received)

    async def broken(self, _: Received) -> None:
        raise LookupError("no such\ncustomer")

    async def later(self, _: Received) -> None:
        raise Retry(after=120, reason="not open yet")

    def never(self, _: Received) -> None:
        raise Stop("we do not know them")

    async def slow(self, _: Received) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    def stuck(self, _: Received) -> None:
        self.free.wait(30)


@pytest_asyncio.fixture
async def calls(functions: Functions) -> AsyncIterator[App]:
    made = App(functions)
    yield made
    made.free.set()


@pytest_asyncio.fixture
async def node(calls: App, sender: Sender) -> Sender:
    """The sender, opened once the functions were registered."""
    return sender


async def _endpoint(outbox: Outbox, coordinate: str) -> Endpoint:
    kind = f"handler:{coordinate}"
    app = await make_app(outbox)
    wanted = EndpointSettings(kind=kind, timeout_seconds=1)
    return await make_endpoint(outbox, app, kind, settings=wanted)


async def _called(outbox: Outbox, node: Sender, name: str) -> tuple[Ran, str | None]:
    """Call one function with a message; return the result and what people read."""
    endpoint = await _endpoint(outbox, f"acme.jobs.{name}")
    app = await outbox.get_application(ONE, endpoint.app)
    accepted = await accept(outbox, app)
    (ran,) = await node.work_off()
    attempt = await only_attempt(outbox, app, accepted.message.id)
    assert (attempt.url, attempt.status_code) == (f"handler:acme.jobs.{name}", 0)
    return ran, attempt.reason


async def test_a_function_is_given_the_message_and_its_return_is_success(
    outbox: Outbox, calls: App, node: Sender, ring: KeyRing
) -> None:
    app = await make_app(outbox)
    for name in ("paid", "plain"):
        kind = f"handler:app.{name}"
        await make_endpoint(outbox, app, kind, settings=EndpointSettings(kind=kind))
    relay = Relay(
        receipt="rcpt_1",
        source="src_a",
        method="POST",
        query="",
        headers=(("X-Sig", "a"), ("x-sig", "b"), ("Cookie", "c")),
    )
    sealed = dump(relay, ring.seal, ())
    accepted = await accept(outbox, app, body=b'{"n": 1}', relay=sealed)
    assert [ran.result for ran in await node.work_off()] == [Succeeded()] * 2
    for received in calls.got:
        assert (received.id, received.type) == (accepted.message.id, "invoice.paid")
        assert (received.json(), received.attempt) == ({"n": 1}, 1)
        assert (received.source, received.receipt) == ("src_a", "rcpt_1")
        assert received.headers == relay.headers
        assert received.header("X-SIG") == "a"
    # From no source: `paid` does not ask for it, so it is done without a call.
    await accept(outbox, app)
    assert [ran.result for ran in await node.work_off()] == [Succeeded()] * 2
    assert len(calls.got) == 3


async def test_what_a_function_raises_is_a_charged_failure_with_its_text(
    outbox: Outbox, node: Sender
) -> None:
    ran, reason = await _called(outbox, node, "broken")
    assert isinstance(ran.result, Failed)
    assert (ran.result.charged, ran.result.retry_at is None) == (True, False)
    assert reason == "raised: LookupError: no such customer"


async def test_a_function_may_ask_for_another_time_or_for_none(
    outbox: Outbox, node: Sender
) -> None:
    before = node.clock.wall_us()
    ran, reason = await _called(outbox, node, "later")
    assert isinstance(ran.result, Failed)
    assert not ran.result.charged
    assert ran.result.retry_at is not None
    assert ran.result.retry_at >= before + 119 * US
    assert reason == "not open yet"
    ran, reason = await _called(outbox, node, "never")
    assert isinstance(ran.result, Failed)
    assert ran.result.retry_at is None
    assert reason == "we do not know them"


async def test_a_function_is_cancelled_at_the_deadline_and_a_thread_left_alone(
    outbox: Outbox, calls: App, node: Sender
) -> None:
    for name in ("slow", "stuck"):
        ran, reason = await _called(outbox, node, name)
        assert isinstance(ran.result, Failed)
        assert ran.result.charged
        assert reason == "timeout: the function did not return"
    assert calls.cancelled.is_set()


async def test_a_node_without_the_function_claims_nothing_and_says_so(
    outbox: Outbox, node: Sender, backend: Backend
) -> None:
    endpoint = await _endpoint(outbox, "acme.jobs.absent")
    app = await outbox.get_application(ONE, endpoint.app)
    accepted = await accept(outbox, app)
    assert await node.claim() == []
    explained = await outbox.explain(ONE, accepted.message.id)
    (delivery,) = explained.deliveries
    assert delivery.code == "no_capable_node"
    assert "handler:acme.jobs.absent" in delivery.why
    assert await count(backend, "work", "claim > 0") == 0


async def test_nothing_is_called_that_may_not_begin(
    outbox: Outbox, calls: App, node: Sender
) -> None:
    endpoint = await _endpoint(outbox, "app.plain")
    await accept(outbox, await outbox.get_application(ONE, endpoint.app))
    (claimed,) = await node.claim()
    ran = await node.send(claimed, node.permit(claimed, yes=False))
    assert ran.released
    assert calls.got == []
    assert (await node.send(claimed)).result == Succeeded()  # the control
    assert len(calls.got) == 1


def test_names_are_checked_are_single_and_come_before_the_start() -> None:
    functions = Functions()

    @functions.on()
    def paid(_: Received) -> None: ...

    for again in ({}, {"name": "Paid"}, {"package": "env"}):
        with pytest.raises(ConfigInvalid):
            functions.on(**again)(paid)
    functions.seal()
    with pytest.raises(ConfigInvalid, match="before"):
        functions.on(name="other")(paid)
