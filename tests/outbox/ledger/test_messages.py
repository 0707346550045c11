"""Messages: read, listed by what they say and by time, emptied."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tenure.clock import US
from tenure.errors import MissingPayload, NotFound, ValidationFailed
from tenure.ids import id_instant
from tenure.outbox.ledger import paging
from tenure.outbox.ledger.messages import expire_payloads
from tenure.outbox.model import AttemptFilter, MessageFilter, PageIn
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tests.outbox.world import (
    ONE,
    OTHER,
    accept,
    count,
    make_app,
    make_endpoint,
    rows,
    run,
)


async def test_a_message_is_found_by_its_id_and_its_event_id(outbox: Outbox) -> None:
    app, other = await make_app(outbox), await make_app(outbox)
    accepted = await accept(
        outbox,
        app,
        event_id="e1",
        channels=["b", "a", "a"],
        tags=["t"],
        headers={"x-a": "1"},
    )
    for ref in (accepted.message.id, "e1"):
        assert await outbox.get_message(ONE, app.id, ref) == accepted.message
        bare = await outbox.get_message(ONE, app.id, ref, with_content=False)
        assert (bare.body, bare.expunged) == (None, False)
        for tenant, app_ref in ((OTHER, app.id), (ONE, other.id)):
            with pytest.raises(NotFound):
                await outbox.get_message(tenant, app_ref, ref)
            with pytest.raises(NotFound):
                await outbox.expunge_message(tenant, app_ref, ref)
            with pytest.raises(NotFound):
                await outbox.list_attempts_by_message(tenant, app_ref, ref)
    assert accepted.message.channels == ("a", "b")
    with pytest.raises(NotFound):
        await outbox.explain(OTHER, accepted.message.id)
    with pytest.raises(NotFound):
        await outbox.explain(ONE, accepted.message.id, app_ref=other.id)


async def test_messages_are_filtered_by_channel_tag_and_type_exactly(
    outbox: Outbox,
) -> None:
    app = await make_app(outbox)
    plain = (await accept(outbox, app)).message.id
    news = (await accept(outbox, app, channels=["news"], tags=["x"])).message.id
    loud = (await accept(outbox, app, channels=["NEWS", "old-news"])).message.id
    sent = (await accept(outbox, app, event_type="invoice.sent")).message.id

    async def ids(**wanted: Any) -> list[str]:
        page = await outbox.list_messages(ONE, app.id, wanted=MessageFilter(**wanted))
        return [each.id for each in page.data]

    assert await ids() == [sent, loud, news, plain]
    assert await ids(channel="news") == [news]
    assert await ids(channel="NEWS") == [loud]
    assert await ids(channel="new_") == []
    assert await ids(tag="x") == [news]
    assert await ids(event_types=["invoice.sent"]) == [sent]
    assert await ids(event_types=["invoice.sent", "invoice.paid"], channel="news") == [
        news
    ]
    assert await ids(event_types=[]) == []
    for bad in ({"channel": '"'}, {"tag": "\ud800"}, {"event_types": [""]}):
        with pytest.raises(ValidationFailed):
            await ids(**bad)


async def test_time_bounds_are_exclusive_before_and_inclusive_after(
    outbox: Outbox,
) -> None:
    app = await make_app(outbox)
    made: list[str] = []
    for _ in range(5):
        made.append((await accept(outbox, app)).message.id)
        while id_instant(made[-1]) == id_instant(
            (await accept(outbox, app)).message.id
        ):
            pass  # the next one is in a later millisecond
    middle = id_instant(made[2])

    async def ids(limit: int = 250, **wanted: Any) -> tuple[list[str], bool]:
        page = await outbox.list_messages(
            ONE, app.id, PageIn(limit=limit), MessageFilter(**wanted)
        )
        return [each.id for each in page.data if each.id in made], page.done

    assert (await ids(before=middle))[0] == [made[1], made[0]]
    assert (await ids(after=middle))[0] == [made[4], made[3], made[2]]
    assert (await ids(after=middle, before=id_instant(made[3])))[0] == [made[2]]
    oldest, done = await ids(limit=1, after=middle)
    assert (oldest, done) == ([made[2]], False), "the oldest after the instant"
    assert (await ids(after=4_000_000_000 * US))[0] == []
    assert (await ids(before=-1))[0] == []
    assert len((await ids(before=10**30))[0]) == 5


async def test_an_expunged_payload_is_gone_and_never_sent(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    accepted = await accept(outbox, app, body=b'{"s3cret": 1}')
    await outbox.expunge_message(ONE, app.id, accepted.message.id)
    found = await outbox.get_message(ONE, app.id, accepted.message.id)
    assert (found.body, found.expunged) == (None, True)
    assert b"s3cret" not in repr(await rows(backend, "SELECT * FROM payload")).encode()
    assert await rows(backend, "SELECT state, reason FROM work") == [
        {"state": "cancelled", "reason": "payload expunged"}
    ]
    with pytest.raises(MissingPayload):
        await outbox.resend(ONE, app.id, accepted.message.id, endpoint.id)
    await outbox.expunge_message(ONE, app.id, accepted.message.id)


async def test_a_payload_past_its_retention_reads_as_gone_and_goes_once_nothing_waits(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    accepted = await accept(outbox, app, retention_seconds=5 * 86_400.0)
    await make_endpoint(outbox, app)
    waiting = await accept(outbox, app)
    backend.clock_offset_us = 5 * 86_400 * US + US
    found = await outbox.get_message(ONE, app.id, accepted.message.id)
    assert (found.body, found.expunged) == (None, True)
    expire = partial(expire_payloads, place="", limit=10)
    assert await backend.write(expire) == (1, None)
    assert await count(backend, "payload", "body IS NULL") == 1
    backend.clock_offset_us = 91 * 86_400 * US
    assert await backend.write(expire) == (0, None)
    await run(backend, "UPDATE work SET state = 'dead', phase = NULL, due_at = NULL")
    assert await backend.write(expire) == (1, None)
    gone = await outbox.get_message(ONE, app.id, waiting.message.id)
    assert gone.expunged


async def test_a_backlog_whose_payloads_are_past_their_time_is_looked_at_once_a_pass(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    for _ in range(5):
        await accept(outbox, app)
    backend.clock_offset_us = 91 * 86_400 * US
    # All of one instant, as messages that were asked for at one time are.
    await run(
        backend, "UPDATE payload SET expires_at = (SELECT max(expires_at) FROM payload)"
    )
    last = "SELECT max(id) FROM work"
    await run(
        backend,
        f"UPDATE work SET state = 'dead', phase = NULL, due_at = NULL WHERE id = ({last})",
    )
    place: str | None = ""
    steps: list[int] = []
    while place is not None:
        emptied, place = await backend.write(
            partial(expire_payloads, place=place, limit=2)
        )
        steps.append(emptied)
    assert sum(steps) == 1
    assert len(steps) == 3
    assert await count(backend, "payload", "body IS NOT NULL") == 4


async def test_the_periodic_pass_removes_expired_keys_in_batches(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    for n in range(3):
        await accept(outbox, app, f"k{n}")
    assert await outbox.sweep() == 0
    backend.clock_offset_us = 25 * 3600 * US
    assert await outbox.sweep() == 3
    assert await count(backend, "idempotency") == 0


async def test_a_page_ends_early_where_its_payloads_grow_too_large(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    sizes = (10, 400, 400, 10, 2_000)
    made = [
        (await accept(outbox, app, body=b'{"a":"%s"}' % (b"x" * size))).message.id
        for size in sizes
    ]
    made.reverse()
    monkeypatch.setattr(paging, "LIST_BYTES", 1_000)
    seen: list[list[str]] = []
    cursor: str | None = None
    done = False
    while not done:
        page = await outbox.list_messages(
            ONE, app.id, PageIn(limit=4, iterator=cursor), MessageFilter()
        )
        seen.append([each.id for each in page.data])
        cursor, done = page.iterator, page.done
    assert seen == [made[:1], made[1:]]
    bare = MessageFilter(with_content=False)
    page = await outbox.list_messages(ONE, app.id, PageIn(limit=5), bare)
    assert [each.id for each in page.data] == made
    attempted = await outbox.list_attempted_messages(
        ONE, app.id, endpoint.id, PageIn(limit=5), AttemptFilter(with_content=True)
    )
    assert [each.message.id for each in attempted.data] == made[:1]
    assert not attempted.done
