"""Attempts as they are listed: by endpoint, by message, by state, by time."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from tenure.errors import NotFound, ValidationFailed
from tenure.ids import id_instant
from tenure.kernel.commands import Failed, Succeeded
from tenure.limits import REASON_MAX
from tenure.outbox.exchanges import Exchange
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import (
    Application,
    Attempt,
    AttemptFilter,
    AttemptStatus,
    Endpoint,
    PageIn,
    Trigger,
)
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tenure.work.kinds import Ran
from tests.outbox.http.servers import OK, answering, serving
from tests.outbox.sending import Sender, open_sender, sending
from tests.outbox.world import (
    ONE,
    OTHER,
    accept,
    make_app,
    make_endpoint,
    run,
)


def exchange(status: int | None, body: bytes | None = b"body") -> Exchange:
    return Exchange(
        url="https://receiver.example/hook",
        method="POST",
        address="192.0.2.1",
        tls_version="TLSv1.3",
        status_code=status,
        cause=None if status else "refused",
        phase=None if status else "connect",
        detail=None,
        request_headers=b'[["a","b"]]',
        response_headers=b"[]" if status else None,
        response_body=body if status else None,
        truncated=False,
        duration_us=1500,
        timings="{}",
        lane_version=1,
    )


def failed(status: int | None, retry_at: int | None = None) -> Ran:
    reason = f"status_{status}" if status else "refused"
    result = Failed(retry_at=retry_at, charged=True, counts_try=True, reason=reason)
    return Ran(result=result, evidence=exchange(status))


def succeeded() -> Ran:
    return Ran(result=Succeeded(), evidence=exchange(204, None))


@pytest_asyncio.fixture
async def sender(backend: Backend, ring: KeyRing) -> Sender:
    """A node whose sends the tests make up."""

    class Nothing:
        async def send(self, *args: Any, **named: Any) -> Any:
            raise AssertionError("these tests send nothing")

        async def aclose(self) -> None:
            return None

    return await open_sender(backend, ring, Nothing())


async def end(sender: Sender, *rans: Ran) -> None:
    """Claim as many rows as there are results, and settle them in claim order."""
    claimed = await sender.claim(len(rans))
    assert len(claimed) == len(rans)
    for each, ran in zip(claimed, rans, strict=True):
        await sender.settle(each, ran)


async def due_now(backend: Backend) -> None:
    await run(
        backend, "UPDATE work SET due_at = 1, phase = 'due' WHERE state = 'ready'"
    )


async def three(outbox: Outbox) -> tuple[Application, Endpoint, list[str]]:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    first = await accept(outbox, app, channels=["news"])
    second = await accept(outbox, app, event_type="invoice.sent", tags=["t"])
    third = await accept(outbox, app)
    return app, endpoint, [each.message.id for each in (first, second, third)]


async def by_endpoint(
    outbox: Outbox, app: Application, endpoint: Endpoint, **wanted: Any
) -> list[Attempt]:
    page = await outbox.list_attempts_by_endpoint(
        ONE, app.id, endpoint.id, wanted=AttemptFilter(**wanted)
    )
    return list(page.data)


async def test_attempts_are_filtered_by_outcome_and_by_what_the_message_says(
    outbox: Outbox, sender: Sender
) -> None:
    app, endpoint, sent = await three(outbox)
    claimed = {each.work.subject: each for each in await sender.claim()}
    for message, ran in zip(
        sent, (succeeded(), failed(500), failed(None)), strict=True
    ):
        await sender.settle(claimed[message], ran)

    async def messages(**wanted: Any) -> list[str]:
        found = await by_endpoint(outbox, app, endpoint, **wanted)
        return [each.message for each in found]

    assert await messages() == sent[::-1]
    assert await messages(status=AttemptStatus.SUCCESS) == [sent[0]]
    assert await messages(status=AttemptStatus.FAIL) == [sent[2], sent[1]]
    assert await messages(status=AttemptStatus.PENDING) == []
    assert await messages(status=AttemptStatus.SENDING) == []
    assert await messages(status_class=0) == [sent[2]]
    assert await messages(status_class=200) == [sent[0]]
    assert await messages(status_class=500) == [sent[1]]
    assert await messages(status_class=400) == []
    assert await messages(channel="news") == [sent[0]]
    assert await messages(tag="t") == [sent[1]]
    assert await messages(event_types=["invoice.paid"]) == [sent[2], sent[0]]
    with pytest.raises(ValidationFailed):
        await messages(event_types=["a b"])


async def test_attempts_are_paged_both_ways_and_bounded_by_time(
    outbox: Outbox, sender: Sender, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    for _ in range(5):
        await end(sender, failed(500, retry_at=1))
    everything = await by_endpoint(outbox, app, endpoint)
    assert [each.number for each in everything] == [5, 4, 3, 2, 1]
    ids = [each.id for each in everything]

    async def page(**changes: Any) -> tuple[list[str], bool]:
        found = await outbox.list_attempts_by_message(
            ONE, app.id, accepted.message.id, PageIn(**changes)
        )
        return [each.id for each in found.data], found.done

    assert await page(limit=2) == (ids[:2], False)
    assert await page(limit=3, iterator=ids[1]) == (ids[2:], True)
    assert await page(limit=2, iterator=f"-{ids[4]}") == (ids[2:4], False)
    with pytest.raises(ValidationFailed):
        await page(iterator=accepted.message.id)
    middle = id_instant(ids[2])
    after = await by_endpoint(outbox, app, endpoint, after=middle)
    before = await by_endpoint(outbox, app, endpoint, before=middle)
    assert ids[2] in {each.id for each in after}
    assert ids[2] not in {each.id for each in before}
    assert len(after) + len(before) == 5


async def test_a_messages_attempts_may_be_those_of_one_endpoint(
    outbox: Outbox, sender: Sender
) -> None:
    app = await make_app(outbox)
    one = await make_endpoint(outbox, app, uid="one")
    two = await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    await end(sender, succeeded(), succeeded())

    async def endpoints(ref: str) -> list[str]:
        page = await outbox.list_attempts_by_message(
            ONE, app.id, accepted.message.id, wanted=AttemptFilter(endpoint=ref)
        )
        return [each.endpoint for each in page.data]

    assert await endpoints("one") == await endpoints(one.id) == [one.id]
    await outbox.delete_endpoint(ONE, app.id, two.id)
    assert await endpoints(two.id) == [two.id], "history outlives the endpoint"
    with pytest.raises(NotFound):
        await endpoints("nowhere")


async def test_one_attempt_is_read_and_its_response_expunged(
    outbox: Outbox, sender: Sender
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    other = await accept(outbox, app)
    await end(sender, failed(500), failed(500))
    page = await outbox.list_attempts_by_message(ONE, app.id, accepted.message.id)
    (listed,) = page.data
    found = await outbox.get_attempt(ONE, app.id, accepted.message.id, listed.id)
    assert found == listed
    assert (found.response_body, found.duration_us) == (b"body", 1500)
    assert (found.trigger, found.address) == (Trigger.SCHEDULED, "192.0.2.1")
    bare = await by_endpoint(outbox, app, endpoint, with_content=False)
    assert {each.response_body for each in bare} == {None}
    for tenant, message in ((OTHER, accepted.message.id), (ONE, other.message.id)):
        with pytest.raises(NotFound):
            await outbox.get_attempt(tenant, app.id, message, listed.id)
        with pytest.raises(NotFound):
            await outbox.expunge_attempt(tenant, app.id, message, listed.id)
    await outbox.expunge_attempt(ONE, app.id, accepted.message.id, listed.id)
    gone = await outbox.get_attempt(ONE, app.id, accepted.message.id, listed.id)
    assert (gone.response_body, gone.response_headers, gone.expunged) == (
        None,
        (),
        True,
    )
    assert gone.status_code == 500


async def test_the_messages_of_an_endpoint_are_listed_by_how_they_stand(
    outbox: Outbox, sender: Sender, backend: Backend
) -> None:
    app, endpoint, sent = await three(outbox)
    waiting = (await accept(outbox, app)).message.id
    claimed = {each.work.subject: each for each in await sender.claim()}
    far = 4_000_000_000_000_000
    await sender.settle(claimed[sent[0]], succeeded())
    await sender.settle(claimed[sent[1]], failed(404))
    await sender.settle(claimed[sent[2]], failed(500, retry_at=far))

    async def messages(**wanted: Any) -> dict[str, tuple[AttemptStatus, int | None]]:
        page = await outbox.list_attempted_messages(
            ONE, app.id, endpoint.id, wanted=AttemptFilter(**wanted)
        )
        return {
            each.message.id: (each.status, each.next_attempt_at) for each in page.data
        }

    assert await messages() == {
        sent[0]: (AttemptStatus.SUCCESS, None),
        sent[1]: (AttemptStatus.FAIL, None),
        sent[2]: (AttemptStatus.SENDING, far),
        waiting: (AttemptStatus.SENDING, None),
    }
    untouched = (await accept(outbox, app, deliver_at=far)).message.id
    assert (await messages())[untouched] == (AttemptStatus.PENDING, far)
    assert set(await messages(status=AttemptStatus.SUCCESS)) == {sent[0]}
    assert set(await messages(status=AttemptStatus.FAIL)) == {sent[1]}
    assert set(await messages(status=AttemptStatus.SENDING)) == {sent[2], waiting}
    assert set(await messages(status=AttemptStatus.PENDING)) == {untouched}
    assert set(await messages(channel="news")) == {sent[0]}
    page = await outbox.list_attempted_messages(
        ONE, app.id, endpoint.id, PageIn(limit=2)
    )
    assert [each.message.id for each in page.data] == [untouched, waiting]
    assert page.data[0].message.body == b'{"total": 12}'


async def test_the_destinations_of_a_message_are_listed_by_endpoint(
    outbox: Outbox, sender: Sender
) -> None:
    app = await make_app(outbox)
    made = [(await make_endpoint(outbox, app)).id for _ in range(3)]
    accepted = await accept(outbox, app)
    await outbox.delete_endpoint(ONE, app.id, made[1])

    async def page(**changes: Any) -> tuple[list[str], list[AttemptStatus], bool]:
        found = await outbox.list_attempted_destinations(
            ONE, app.id, accepted.message.id, PageIn(**changes)
        )
        return (
            [each.endpoint.id for each in found.data],
            [each.status for each in found.data],
            found.done,
        )

    pending, fail = AttemptStatus.PENDING, AttemptStatus.FAIL
    assert await page() == (made, [pending, fail, pending], True)
    assert await page(limit=2) == (made[:2], [pending, fail], False)
    assert await page(limit=2, iterator=made[1]) == (made[2:], [pending], True)
    assert await page(limit=2, iterator=f"-{made[2]}") == (
        made[:2],
        [pending, fail],
        True,
    )
    with pytest.raises(NotFound):
        await outbox.list_attempted_destinations(OTHER, app.id, accepted.message.id)


async def test_a_late_success_is_shown_as_the_attempts_outcome(
    outbox: Outbox, sender: Sender
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    (claimed,) = await sender.claim()
    await sender.lose()
    await sender.settle(claimed, succeeded())
    page = await outbox.list_attempts_by_message(ONE, app.id, accepted.message.id)
    (attempt,) = page.data
    assert (attempt.status, attempt.outcome) == (AttemptStatus.SUCCESS, "succeeded")
    assert attempt.status_code == 204
    explained = await outbox.explain(ONE, accepted.message.id)
    (line,) = explained.deliveries[0].attempts
    assert (line.outcome, line.late_outcome) == ("lost", "succeeded")


async def test_a_real_exchange_reads_back_whole(
    outbox: Outbox, backend: Backend, ring: KeyRing
) -> None:
    from tenure.clock import SystemClock
    from tests.outbox.sending import LOCAL

    near = Outbox(backend, LOCAL, ring, SystemClock())
    async with serving(answering(OK)) as server, sending(backend, ring) as real:
        app = await make_app(outbox)
        await make_endpoint(near, app, server.url)
        accepted = await accept(outbox, app)
        await real.work_off()
    page = await outbox.list_attempts_by_message(ONE, app.id, accepted.message.id)
    (attempt,) = page.data
    assert attempt.status_code == 200
    assert 0 < attempt.duration_us < 60_000_000
    assert len(attempt.reason or "") <= REASON_MAX
    assert ("Content-Length", "2") in attempt.response_headers
