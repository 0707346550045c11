"""Delivery: what goes over the wire, what comes of it, and what is never sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tenure.clock import US, SystemClock
from tenure.ids import Random
from tenure.kernel.commands import Answer, Cut, Failed, Parked, Succeeded
from tenure.outbox import delivery
from tenure.outbox.http import Failure, Response
from tenure.outbox.keyring import KeyRing, new_key
from tenure.outbox.model import (
    AttemptStatus,
    EndpointPatch,
    EndpointSettings,
    OutboxSettings,
)
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tests.outbox.http.servers import OK, answering, answering_then_close, serving
from tests.outbox.scripted import (
    Scripted,
    failure,
    only_attempt,
    parse,
    response,
)
from tests.outbox.sending import (
    LOCAL,
    Permit,
    Sender,
    local,
    open_sender,
    sending,
)
from tests.outbox.world import (
    ONE,
    accept,
    count,
    make_app,
    make_endpoint,
    rows,
    run,
)


@pytest.fixture
def settings() -> OutboxSettings:
    return LOCAL


@pytest_asyncio.fixture
async def sender(backend: Backend, ring: KeyRing) -> AsyncIterator[Sender]:
    async with sending(backend, ring) as made:
        yield made


async def test_user_info_is_sent_as_basic_auth_and_never_shown(
    outbox: Outbox, sender: Sender, backend: Backend
) -> None:
    async with serving(answering(OK)) as server:
        app = await make_app(outbox)
        url = server.url.replace("http://", "http://me:s3cret@")
        endpoint = await make_endpoint(outbox, app, url)
        assert "s3cret" not in endpoint.url
        accepted = await accept(outbox, app)
        await sender.work_off()
        headers, _ = parse(server.requests[0])
        assert headers["authorization"] == "Basic bWU6czNjcmV0"
        attempt = await only_attempt(outbox, app, accepted.message.id)
        assert "s3cret" not in repr(attempt)
        for table in ("endpoint", "exchange", "work", "attempt"):
            assert "s3cret" not in repr(await rows(backend, f"SELECT * FROM {table}"))
        # Writing back what was read keeps what is stored.
        await outbox.patch_endpoint(
            ONE, app.id, endpoint.id, EndpointPatch(url=endpoint.url)
        )
        await accept(outbox, app)
        await sender.work_off()
        assert parse(server.requests[1])[0]["authorization"] == "Basic bWU6czNjcmV0"


async def test_a_secret_that_does_not_open_parks_the_row_and_sends_nothing(
    outbox: Outbox, backend: Backend
) -> None:
    async with serving(answering(OK)) as server:
        app = await make_app(outbox)
        await make_endpoint(outbox, app, server.url)
        await accept(outbox, app)
        async with sending(backend, KeyRing([new_key()])) as stranger:
            (ran,) = await stranger.work_off()
        assert ran.result == Parked(reason="secret does not open with this key ring")
        assert server.requests == []
        assert await rows(backend, "SELECT state FROM work") == [{"state": "parked"}]


async def test_a_fenced_send_is_released_and_nothing_is_written(
    outbox: Outbox, sender: Sender
) -> None:
    async with serving(answering(OK)) as server:
        app = await make_app(outbox)
        await make_endpoint(outbox, app, server.url)
        await accept(outbox, app)
        (claimed,) = await sender.claim()
        permit = sender.permit(claimed, yes=False)
        ran = await sender.send(claimed, permit)
        assert (ran.released, permit.asked) == (True, 1)
        late = await sender.send(claimed, Permit(deadline=sender.clock.monotonic()))
        assert late.released
        assert server.requests == []
        control = await sender.send(claimed)
        assert not control.released
        assert len(server.requests) == 1


async def test_a_410_disables_the_endpoint_and_keeps_its_backlog(
    outbox: Outbox, sender: Sender, backend: Backend
) -> None:
    gone = b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(gone)) as server:
        app = await make_app(outbox)
        endpoint = await make_endpoint(outbox, app, server.url)
        first = await accept(outbox, app)
        (ran,) = await sender.work_off()
        assert isinstance(ran.result, Failed)
        assert ran.result.retry_at is None
        found = await outbox.get_endpoint(ONE, app.id, endpoint.id)
        assert (found.disabled, found.disabled_why) == (True, "gone")
        second = await accept(outbox, app)
        assert await sender.claim() == []
        explained = await outbox.explain(ONE, second.message.id)
        assert explained.deliveries[0].why == "the endpoint is disabled (gone)"
        explained = await outbox.explain(ONE, first.message.id)
        assert explained.deliveries[0].code == "dead"
        await outbox.patch_endpoint(
            ONE, app.id, endpoint.id, EndpointPatch(disabled=False)
        )
        found = await outbox.get_endpoint(ONE, app.id, endpoint.id)
        assert (found.disabled, found.disabled_why) == (False, None)
        assert len(await sender.claim()) == 1


async def test_a_410_of_a_url_that_was_changed_meanwhile_disables_nothing(
    outbox: Outbox, ring: KeyRing, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app, "http://127.0.0.1:9/old")
    await accept(outbox, app)
    a = await open_sender(backend, ring, Scripted(response(410)))
    (held,) = await a.claim()
    ran = await a.send(held)
    await outbox.patch_endpoint(
        ONE, app.id, endpoint.id, EndpointPatch(url="http://127.0.0.1:9/new")
    )
    assert await a.settle(held, ran) is Answer.APPLIED
    found = await outbox.get_endpoint(ONE, app.id, endpoint.id)
    assert not found.disabled
    assert await rows(backend, "SELECT state FROM lane") == [{"state": "open"}]


async def test_a_410_never_reopens_or_pauses_the_lane_of_a_deleted_endpoint(
    outbox: Outbox, ring: KeyRing, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app, "http://127.0.0.1:9/old")
    await accept(outbox, app)
    a = await open_sender(backend, ring, Scripted(response(410)))
    (held,) = await a.claim()
    ran = await a.send(held)
    await outbox.delete_endpoint(ONE, app.id, endpoint.id)
    await a.settle(held, ran)
    assert await rows(backend, "SELECT state FROM lane") == [{"state": "deleted"}]
    assert await rows(backend, "SELECT state FROM work") == [{"state": "cancelled"}]


async def test_a_lost_attempt_is_listed_as_failed_with_that_reason(
    outbox: Outbox, ring: KeyRing, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    accepted = await accept(outbox, app)
    a = await open_sender(backend, ring, Scripted())
    await a.claim()
    await a.lose()
    attempt = await only_attempt(outbox, app, accepted.message.id)
    assert (attempt.status, attempt.outcome) == (AttemptStatus.FAIL, "lost")
    assert (attempt.status_code, attempt.response_body) == (0, None)
    assert attempt.url == endpoint.url
    assert attempt.reason


async def test_at_most_once_a_lost_attempt_is_dead_with_its_outcome_unknown(
    outbox: Outbox, ring: KeyRing, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(
        outbox,
        app,
        "http://127.0.0.1:9/hook",
        settings=EndpointSettings(at_most_once=True),
    )
    accepted = await accept(outbox, app)
    a = await open_sender(backend, ring, Scripted())
    await a.claim()
    await a.lose()
    explained = await outbox.explain(ONE, accepted.message.id)
    assert (explained.deliveries[0].code, explained.deliveries[0].why) == (
        "dead",
        "outcome unknown",
    )


@pytest.mark.parametrize(
    ("answer", "charged", "counts", "again"),
    [
        (response(500), True, True, True),
        (response(408), True, True, True),
        (response(429), False, True, True),
        (response(503, (b"retry-after", b"5")), False, True, True),
        (response(404), True, True, False),
        (response(302, (b"location", b"http://10.0.0.1/")), True, True, False),
        (failure("refused"), True, True, True),
        (failure("timeout"), True, True, True),
        (failure("reset", reused=True), False, False, True),
        (failure("reset", reused=False), True, True, True),
    ],
)
async def test_an_answer_becomes_the_verdict_of_the_table(
    outbox: Outbox,
    ring: KeyRing,
    backend: Backend,
    answer: Response | Failure,
    charged: bool,
    counts: bool,
    again: bool,
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    accepted = await accept(outbox, app)
    a = await open_sender(backend, ring, Scripted(answer))
    (ran,) = await a.work_off()
    result = ran.result
    assert isinstance(result, Failed)
    assert (result.charged, result.counts_try) == (charged, counts)
    assert (result.retry_at is not None) == again
    attempt = await only_attempt(outbox, app, accepted.message.id)
    if isinstance(answer, Response):
        assert (attempt.status_code, attempt.cause) == (answer.status, None)
        assert attempt.response_headers == tuple(
            (name.decode(), value.decode()) for name, value in answer.headers
        )
    else:
        assert (attempt.status_code, attempt.cause) == (0, answer.cause)


async def test_the_retry_instant_follows_the_databases_clock_not_the_nodes(
    outbox: Outbox, ring: KeyRing, backend: Backend
) -> None:
    """A node an hour ahead must not send its retries an hour late."""

    class Wrong(SystemClock):
        def wall_us(self) -> int:
            return super().wall_us() + 3600 * US

    app = await make_app(outbox)
    await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    await accept(outbox, app)
    a = await open_sender(backend, ring, Scripted(response(500)))
    from tenure.outbox.delivery import Delivery

    a.kind = Delivery(
        transport=Scripted(response(500)),
        ring=ring,
        settings=LOCAL,
        clock=Wrong(),
        user_agent="t",
    )
    (claimed,) = await a.claim()
    ran = await a.send(claimed)
    assert isinstance(ran.result, Failed)
    assert ran.result.retry_at is not None
    assert claimed.work.claimed_at is not None
    wait = (ran.result.retry_at - claimed.work.claimed_at) / US
    assert 3.9 <= wait <= 7, "5 s ± 20 % after the claim"


async def test_the_schedule_ends_with_the_row_dead_and_the_last_reason(
    outbox: Outbox, ring: KeyRing, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(
        outbox,
        app,
        "http://127.0.0.1:9/hook",
        settings=EndpointSettings(retry_seconds=(0.0, 0.0, 0.0)),
    )
    accepted = await accept(outbox, app)
    a = await open_sender(backend, ring, Scripted(*[response(500)] * 3))
    for _ in range(3):
        assert len(await a.work_off()) == 1
    assert await a.claim() == []
    explained = await outbox.explain(ONE, accepted.message.id)
    assert explained.deliveries[0].why == "exhausted: status_500"
    assert [each.number for each in explained.deliveries[0].attempts] == [1, 2, 3]


async def test_an_expired_message_is_dead_and_not_sent_unless_somebody_asks(
    outbox: Outbox, ring: KeyRing, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    accepted = await accept(outbox, app, expires_at=1)
    transport = Scripted(response(200))
    a = await open_sender(backend, ring, transport)
    (ran,) = await a.work_off()
    assert isinstance(ran.result, Failed)
    assert (ran.result.retry_at, ran.result.reason) == (None, "expired")
    assert transport.requests == []
    await outbox.resend(ONE, app.id, accepted.message.id, endpoint.id)
    (ran,) = await a.work_off()
    assert ran.result == Succeeded()


async def test_the_endpoints_own_settings_shape_the_request_and_its_bounds(
    outbox: Outbox, ring: KeyRing, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(
        outbox,
        app,
        "https://127.0.0.1:9/hook",
        settings=EndpointSettings(
            timeout_seconds=3.0,
            method="PUT",
            insecure=True,
            allow_networks=("10.0.0.0/8",),
            svix_headers=True,
            retry_statuses=(404,),
        ),
    )
    await accept(outbox, app, content_type="text/plain", body=b"hello")
    transport = Scripted(response(404))
    a = await open_sender(backend, ring, transport, local(request_seconds=15.0))
    (claimed,) = await a.claim()
    assert claimed.deadline_us == 3 * US
    ran = await a.send(claimed)
    assert isinstance(ran.result, Failed)
    assert ran.result.retry_at is not None
    (request,), (policy,) = transport.requests, transport.policies
    headers = {name.decode(): value.decode() for name, value in request.headers}
    assert request.method == "PUT"
    assert headers["content-type"] == "text/plain"
    assert headers["svix-id"] == headers["webhook-id"]
    assert policy.deadline_seconds == 3.0
    assert not policy.verify_tls
    assert "10.0.0.0/8" in {str(each) for each in policy.allow_networks}
    (late,) = await a.load([claimed])
    transport.answers.append(response(200))
    soon = Permit(deadline=a.clock.monotonic() + 1.0)
    assert not isinstance(late, Parked)
    await a.kind.run(late, soon)
    assert transport.policies[1].deadline_seconds <= 1.0


async def test_random_bytes_in_answers_are_kept_and_break_nothing(
    outbox: Outbox, sender: Sender
) -> None:
    rng = Random(7)
    noise = bytes(rng.randrange(256) for _ in range(500))
    head = b"HTTP/1.1 200 OK\r\nX-Odd: \xff\xfe\xe9\r\nContent-Length: 500\r\n\r\n"
    async with serving(answering_then_close(head + noise)) as server:
        app = await make_app(outbox)
        await make_endpoint(outbox, app, server.url)
        accepted = await accept(outbox, app)
        await sender.work_off()
        attempt = await only_attempt(outbox, app, accepted.message.id)
        assert attempt.response_body == noise
        odd = dict(attempt.response_headers)["X-Odd"]
        assert odd.encode("latin-1") == b"\xff\xfe\xe9"


async def test_a_second_settle_of_one_claim_adds_no_second_exchange(
    outbox: Outbox, ring: KeyRing, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    await accept(outbox, app)
    a = await open_sender(backend, ring, Scripted(response(200)))
    (claimed,) = await a.claim()
    ran = await a.send(claimed)
    assert await a.settle(claimed, ran) is Answer.APPLIED
    assert await a.settle(claimed, ran) is not Answer.APPLIED
    assert await count(backend, "exchange") == await count(backend, "attempt") == 1


async def test_many_sends_at_once_do_not_mix_up_their_messages(
    outbox: Outbox, sender: Sender
) -> None:
    async with serving(answering(OK)) as server:
        app = await make_app(outbox)
        await make_endpoint(outbox, app, server.url)
        sent = {
            (await accept(outbox, app, body=b"%d" % n)).message.id: b"%d" % n
            for n in range(20)
        }
        claimed = await sender.claim()
        await asyncio.gather(*(sender.send(each) for each in claimed))
        got = [parse(request) for request in server.requests]
        assert {head["webhook-id"]: body for head, body in got} == sent


@pytest.mark.parametrize(
    ("answer", "released"),
    [
        (failure("cut", began=False), True),
        (failure("cut", began=True), False),
        (failure("fenced", began=False), True),
    ],
)
async def test_a_send_that_is_cut_is_released_only_if_nothing_was_begun(
    outbox: Outbox,
    ring: KeyRing,
    backend: Backend,
    answer: Failure,
    released: bool,
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    accepted = await accept(outbox, app)
    a = await open_sender(backend, ring, Scripted(answer))
    (claimed,) = await a.claim()
    ran = await a.send(claimed)
    assert ran.released == released
    if not released:
        assert isinstance(ran.result, Cut)
        await a.settle(claimed, ran)
        attempt = await only_attempt(outbox, app, accepted.message.id)
        assert (attempt.outcome, attempt.cause) == ("cut", "cut")
        assert await rows(backend, "SELECT state, failures FROM work") == [
            {"state": "ready", "failures": 0}
        ]


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("secrets", b"{}", "secret cannot be read"),
        ("secrets", b'{"current": "whsec_"}', "secret cannot be read"),
        ("headers", b"[]", "secret cannot be read"),
        ("userinfo", b"\xff", "secret cannot be read"),
        ("url", "nonsense", "endpoint cannot be read: "),
        ("settings", "{broken", "endpoint cannot be read: "),
        ("settings", '{"allow_networks": ["x"]}', "endpoint cannot be read: "),
    ],
)
async def test_an_endpoint_that_cannot_be_read_parks_its_rows_and_no_others(
    outbox: Outbox,
    ring: KeyRing,
    backend: Backend,
    column: str,
    value: bytes | str,
    reason: str,
) -> None:
    app = await make_app(outbox)
    broken = await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    stored = ring.seal(value) if isinstance(value, bytes) else value
    await run(
        backend,
        f"UPDATE endpoint SET {column} = :value WHERE id = :id",
        value=stored,
        id=broken.id,
    )
    await accept(outbox, app)
    transport = Scripted(response(200))
    a = await open_sender(backend, ring, transport)
    results = {
        claimed.lane_subject: (await a.send(claimed)).result
        for claimed in await a.claim()
    }
    parked = results.pop(broken.id)
    assert isinstance(parked, Parked)
    assert parked.reason.startswith(reason)
    assert list(results.values()) == [Succeeded()]
    assert len(transport.requests) == 1


async def test_a_row_whose_message_or_endpoint_is_missing_is_parked(
    outbox: Outbox, ring: KeyRing, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    other = await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    await accept(outbox, app)
    await run(backend, "DELETE FROM message")
    await run(backend, "DELETE FROM endpoint WHERE id = :id", id=other.id)
    a = await open_sender(backend, ring, Scripted())
    loaded = await a.load(await a.claim())
    assert {each.reason for each in loaded if isinstance(each, Parked)} == {
        "message was removed",
        "the endpoint has no configuration",
    }


async def test_what_a_node_remembers_of_endpoints_is_bounded(
    outbox: Outbox,
    ring: KeyRing,
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "ENDPOINT_CONFIGS_MAX", 2)
    app = await make_app(outbox)
    for _ in range(4):
        await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    a = await open_sender(backend, ring, Scripted(*[response(200)] * 8))
    for _ in range(2):
        await accept(outbox, app)
        assert [ran.result for ran in await a.work_off()] == [Succeeded()] * 4
    assert len(a.kind._known) == 2  # pyright: ignore[reportPrivateUsage]
