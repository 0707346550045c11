"""Endpoints: their lanes, secrets and headers, and what may not be stored."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from tenure.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    IdempotencyKeyReused,
    LimitReached,
    NotFound,
    ValidationFailed,
)
from tenure.outbox.keyring import KeyRing
from tenure.outbox.ledger import endpoints
from tenure.outbox.ledger.applications import create_application
from tenure.outbox.ledger.endpoints import create_endpoint
from tenure.outbox.model import (
    ApplicationIn,
    EndpointIn,
    EndpointPatch,
    EndpointSettings,
    EventTypePatch,
    Idempotency,
    Order,
    OutboxSettings,
    PageIn,
    SecretRotation,
)
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tenure.store.tx import Tx
from tests.outbox.sending import local
from tests.outbox.world import (
    ONE,
    OTHER,
    URL,
    accept,
    count,
    held_transaction,
    make_app,
    make_endpoint,
    make_event_types,
    rows,
    run,
    wait_until_blocked,
)

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def test_a_created_endpoint_has_an_open_lane_of_its_own(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app, "http://Example.com")
    assert endpoint.url == "http://example.com/"
    assert (endpoint.disabled, endpoint.svix_version) == (False, 1)
    assert (endpoint.event_types, endpoint.channels, endpoint.uid) == (None,) * 3
    (lane,) = await rows(backend, "SELECT * FROM lane")
    assert lane["id"] == endpoint.lane
    assert lane["id"] >> 24 == app.lane_group
    assert (lane["subject"], lane["needs"], lane["state"]) == (
        endpoint.id,
        "delivery",
        "open",
    )
    assert lane["deadline_us"] == 15_000_000


async def test_every_change_raises_the_lanes_version_and_the_applications(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    versions: list[tuple[int, int]] = []

    async def noted() -> None:
        (found,) = await rows(
            backend,
            "SELECT l.version, a.config_version FROM lane l, application a",
        )
        versions.append((found["version"], found["config_version"]))

    await noted()
    for call in (
        outbox.patch_endpoint(ONE, app.id, endpoint.id, EndpointPatch(url=URL + "2")),
        outbox.update_endpoint(ONE, app.id, endpoint.id, EndpointIn(url=URL)),
        outbox.put_endpoint_headers(ONE, app.id, endpoint.id, {"a": "b"}),
        outbox.patch_endpoint_headers(ONE, app.id, endpoint.id, {"a": None}),
        outbox.rotate_endpoint_secret(ONE, app.id, endpoint.id, SecretRotation()),
        outbox.delete_endpoint(ONE, app.id, endpoint.id),
    ):
        await call
        await noted()
    for before, after in itertools.pairwise(versions):
        assert after[0] > before[0]
        assert after[1] > before[1]


async def test_disable_pauses_the_lane_and_enable_opens_it(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    for disabled, state, reason in (
        (True, "paused", "disabled"),
        (False, "open", None),
    ):
        changed = await outbox.patch_endpoint(
            ONE, app.id, endpoint.id, EndpointPatch(disabled=disabled)
        )
        assert changed.disabled == disabled
        assert await rows(backend, "SELECT state, reason FROM lane") == [
            {"state": state, "reason": reason}
        ]


async def test_settings_reach_the_lane(outbox: Outbox, backend: Backend) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(
        outbox, app, settings=EndpointSettings(timeout_seconds=2.5)
    )
    assert endpoint.settings.timeout_seconds == 2.5
    await outbox.patch_endpoint(
        ONE,
        app.id,
        endpoint.id,
        EndpointPatch(settings=EndpointSettings(at_most_once=True)),
    )
    (lane,) = await rows(backend, "SELECT deadline_us, at_most_once FROM lane")
    assert (lane["deadline_us"], bool(lane["at_most_once"])) == (15_000_000, True)
    kept = await outbox.update_endpoint(ONE, app.id, endpoint.id, EndpointIn(url=URL))
    assert kept.value.settings.at_most_once, "a PUT without settings keeps them"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"url": "ftp://example.com/"}, "url"),
        ({"url": "nonsense"}, "url"),
        ({"url": "http://exa mple.com/"}, "url"),
        ({"url": "http://example.com/\r\nX: y"}, "url"),
        ({"url": "http://127.0.0.1/"}, "url"),
        ({"url": "http://[::1]/"}, "url"),
        ({"url": "http://0x7f.1/"}, "url"),
        ({"url": "http://169.254.169.254/"}, "url"),
        ({"url": "http://[::ffff:10.0.0.1]/"}, "url"),
        ({"url": "http://2130706433/"}, "url"),
        ({"uid": "ep_x"}, "uid"),
        ({"uid": "a/b"}, "uid"),
        ({"description": "a\x00"}, "description"),
        ({"event_types": []}, "eventTypes"),
        ({"event_types": ["unknown.type"]}, "eventTypes"),
        ({"channels": []}, "channels"),
        ({"channels": [f"c{n}" for n in range(11)]}, "channels"),
        ({"throttle_rate": 0}, "throttleRate"),
        ({"svix_version": 0}, "version"),
        ({"settings": EndpointSettings(method="GET")}, "tenure"),
        ({"settings": EndpointSettings(method="HEAD")}, "tenure"),
        ({"settings": EndpointSettings(timeout_seconds=0.5)}, "tenure"),
        ({"settings": EndpointSettings(timeout_seconds=61)}, "tenure"),
        ({"settings": EndpointSettings(timeout_seconds=float("nan"))}, "tenure"),
        ({"settings": EndpointSettings(retry_seconds=())}, "tenure"),
        ({"settings": EndpointSettings(retry_seconds=(-1.0,))}, "tenure"),
        ({"settings": EndpointSettings(retry_seconds=(float("inf"),))}, "tenure"),
        ({"settings": EndpointSettings(retry_statuses=(500,))}, "tenure"),
        ({"settings": EndpointSettings(allow_networks=("10.0.0.1/8",))}, "tenure"),
    ],
)
async def test_a_bad_endpoint_is_refused_at_create_put_and_patch(
    outbox: Outbox, backend: Backend, changes: dict[str, Any], where: str
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    fields: dict[str, Any] = {"url": URL}
    for call in (
        make_endpoint(outbox, app, **(fields | changes)),
        outbox.update_endpoint(
            ONE, app.id, endpoint.id, EndpointIn(**(fields | changes))
        ),
        outbox.patch_endpoint(ONE, app.id, endpoint.id, EndpointPatch(**changes)),
    ):
        with pytest.raises(ValidationFailed) as refused:
            await call
        assert refused.value.items[0].loc[:2] == ("body", where)
    assert await outbox.get_endpoint(ONE, app.id, endpoint.id) == endpoint
    assert await count(backend, "endpoint") == await count(backend, "lane") == 1


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "nonsense",
        "whsec_",
        "whsec_short",
        "whsec_" + "A" * 200,
        "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=",
        SECRET.removeprefix("whsec_"),
        SECRET + "\n",
    ],
)
async def test_case_34_a_wrong_secret_is_refused_at_save(
    outbox: Outbox, secret: str
) -> None:
    app = await make_app(outbox)
    with pytest.raises(ValidationFailed) as refused:
        await make_endpoint(outbox, app, secret=secret)
    assert len(secret) <= len("whsec_") or secret not in str(refused.value)
    endpoint = await make_endpoint(outbox, app, secret=SECRET)
    with pytest.raises(ValidationFailed):
        await outbox.rotate_endpoint_secret(
            ONE, app.id, endpoint.id, SecretRotation(key=secret)
        )
    assert await outbox.endpoint_secret(ONE, app.id, endpoint.id) == SECRET


@pytest.mark.parametrize(
    "headers",
    [
        {"Webhook-Signature": "x"},
        {"content-LENGTH": "1"},
        {"some:thing": "x"},
        {"x-a": "a\r\nb"},
        {"x-a": "\u2028"},
        {"x-a": "a", "X-A": "b"},
        {"": "x"},
        {"svix-foo": "x"},
        {f"x-{n}": "x" for n in range(51)},
    ],
)
async def test_case_32_and_33_a_wrong_header_is_refused_at_save(
    outbox: Outbox, headers: dict[str, str]
) -> None:
    app = await make_app(outbox)
    with pytest.raises(ValidationFailed):
        await make_endpoint(outbox, app, headers=headers)
    endpoint = await make_endpoint(outbox, app, headers={"X-Kept": "1"})
    for call in (
        outbox.put_endpoint_headers(ONE, app.id, endpoint.id, headers),
        outbox.patch_endpoint_headers(ONE, app.id, endpoint.id, headers),
    ):
        with pytest.raises(ValidationFailed):
            await call
    found = await outbox.endpoint_headers(ONE, app.id, endpoint.id)
    assert found.headers == {"X-Kept": "1"}


async def test_headers_are_merged_and_sensitive_ones_are_named_only(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    none = await outbox.endpoint_headers(ONE, app.id, endpoint.id)
    assert (none.headers, none.sensitive) == ({}, ())
    await outbox.patch_endpoint_headers(
        ONE, app.id, endpoint.id, {"X-One": "1", "X-Two": "2", "X-Three": "3"}
    )
    await outbox.patch_endpoint_headers(
        ONE,
        app.id,
        endpoint.id,
        {"X-One": None, "X-Four": "4", "Authorization": "Bearer s3cret"},
        delete=["X-Two", "X-Nowhere"],
    )
    found = await outbox.endpoint_headers(ONE, app.id, endpoint.id)
    assert found.headers == {"X-Three": "3", "X-Four": "4"}
    assert found.sensitive == ("Authorization",)
    assert (
        b"s3cret" not in (await rows(backend, "SELECT * FROM endpoint"))[0]["headers"]
    )


async def test_secrets_rotate_with_a_grace_and_a_bound(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app, secret=SECRET)
    assert await outbox.endpoint_secret(ONE, app.id, endpoint.id) == SECRET
    (stored,) = await rows(backend, "SELECT * FROM endpoint")
    assert SECRET not in repr(stored)
    assert SECRET[6:] not in repr(stored)
    for _ in range(10):
        await outbox.rotate_endpoint_secret(ONE, app.id, endpoint.id, SecretRotation())
    with pytest.raises(LimitReached):
        await outbox.rotate_endpoint_secret(ONE, app.id, endpoint.id, SecretRotation())
    backend.clock_offset_us = 86_401_000_000
    await outbox.rotate_endpoint_secret(
        ONE, app.id, endpoint.id, SecretRotation(key=SECRET)
    )
    assert await outbox.endpoint_secret(ONE, app.id, endpoint.id) == SECRET
    for grace in (-1, 604_801):
        with pytest.raises(ValidationFailed):
            await outbox.rotate_endpoint_secret(
                ONE, app.id, endpoint.id, SecretRotation(grace_seconds=grace)
            )


async def test_a_rotation_repeated_with_its_key_happens_once(outbox: Outbox) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    once = Idempotency(key="k1", body_hash="b")
    args = (ONE, app.id, endpoint.id, SecretRotation())
    await outbox.rotate_endpoint_secret(*args, idempotency=once)
    rotated = await outbox.endpoint_secret(ONE, app.id, endpoint.id)
    await outbox.rotate_endpoint_secret(*args, idempotency=once)
    assert await outbox.endpoint_secret(ONE, app.id, endpoint.id) == rotated
    other = await make_endpoint(outbox, app)
    with pytest.raises(IdempotencyKeyReused):
        await outbox.rotate_endpoint_secret(
            ONE, app.id, other.id, SecretRotation(), idempotency=once
        )


async def test_a_put_keeps_secret_and_headers_and_drops_the_rest(
    outbox: Outbox,
) -> None:
    app = await make_app(outbox)
    await make_event_types(outbox, "a.b")
    endpoint = await make_endpoint(
        outbox,
        app,
        uid="one",
        secret=SECRET,
        headers={"X-A": "1"},
        event_types=["a.b"],
        channels=["news"],
        throttle_rate=3,
        metadata={"a": "b"},
        description="d",
        disabled=True,
    )
    put = await outbox.update_endpoint(ONE, app.id, "one", EndpointIn(url=URL))
    assert not put.created
    found = put.value
    assert found.id == endpoint.id
    assert (found.uid, found.event_types, found.channels, found.throttle_rate) == (
        None,
    ) * 4
    assert (found.metadata, found.description, found.disabled) == ({}, "", False)
    assert await outbox.endpoint_secret(ONE, app.id, found.id) == SECRET
    headers = await outbox.endpoint_headers(ONE, app.id, found.id)
    assert headers.headers == {"X-A": "1"}
    made = await outbox.update_endpoint(ONE, app.id, "fake-id", EndpointIn(url=URL))
    assert made.created


async def test_a_patch_changes_one_field_at_a_time(outbox: Outbox) -> None:
    app = await make_app(outbox)
    await make_event_types(outbox, "a.b")
    endpoint = await make_endpoint(
        outbox, app, uid="one", event_types=["a.b"], channels=["x"], throttle_rate=3
    )
    changes: list[dict[str, Any]] = [
        {"description": "new"},
        {"throttle_rate": None},
        {"uid": None},
        {"event_types": None},
        {"channels": ["z", "y", "y"]},
        {"metadata": {"k": "v"}},
        {"svix_version": 7},
    ]
    before = endpoint
    for change in changes:
        after = await outbox.patch_endpoint(
            ONE, app.id, endpoint.id, EndpointPatch(**change)
        )
        for name in ("description", "throttle_rate", "uid", "event_types", "channels"):
            if name not in change:
                assert getattr(after, name) == getattr(before, name), name
        before = after
    assert before.channels == ("y", "z")
    assert (before.throttle_rate, before.uid, before.event_types) == (None,) * 3


async def test_an_archived_type_stays_in_a_filter_but_enters_no_new_one(
    outbox: Outbox,
) -> None:
    app = await make_app(outbox)
    await make_event_types(outbox, "a.b")
    endpoint = await make_endpoint(outbox, app, event_types=["a.b"])
    await outbox.patch_event_type(ONE, "a.b", EventTypePatch(archived=True))
    kept = await outbox.patch_endpoint(
        ONE, app.id, endpoint.id, EndpointPatch(description="new")
    )
    assert kept.event_types == ("a.b",)
    with pytest.raises(ValidationFailed) as refused:
        await make_endpoint(outbox, app, event_types=["a.b"])
    assert "a.b" in refused.value.message


async def test_only_an_operator_opens_networks(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    wide = EndpointSettings(allow_networks=("10.0.0.0/8",))
    private = EndpointIn(url="http://10.1.2.3/", settings=wide)
    with pytest.raises(Forbidden):
        await outbox.create_endpoint(ONE, app.id, private, operator=False)
    made = await outbox.create_endpoint(ONE, app.id, private)
    with pytest.raises(Forbidden):
        await outbox.patch_endpoint(
            ONE,
            app.id,
            made.value.id,
            EndpointPatch(url=URL, settings=EndpointSettings()),
            operator=False,
        )
    same = await outbox.patch_endpoint(
        ONE, app.id, made.value.id, EndpointPatch(description="x"), operator=False
    )
    assert same.settings == wide
    assert await count(backend, "lane") == 1


async def test_the_deployment_may_ask_for_https(
    backend: Backend, ring: KeyRing
) -> None:
    from tenure.clock import SystemClock

    strict = Outbox(backend, OutboxSettings(https_only=True), ring, SystemClock())
    app = await make_app(strict)
    with pytest.raises(ValidationFailed):
        await make_endpoint(strict, app, "http://example.com/")
    await make_endpoint(strict, app, "https://example.com/")


async def test_an_endpoint_uid_is_taken_once_per_application(outbox: Outbox) -> None:
    app, other = await make_app(outbox), await make_app(outbox)
    first = await make_endpoint(outbox, app, uid="one")
    second = await make_endpoint(outbox, app, uid="two")
    with pytest.raises(Conflict):
        await make_endpoint(outbox, app, uid="one")
    with pytest.raises(Conflict):
        await outbox.patch_endpoint(ONE, app.id, second.id, EndpointPatch(uid="one"))
    with pytest.raises(Conflict):
        await outbox.update_endpoint(
            ONE, app.id, second.id, EndpointIn(url=URL, uid="one")
        )
    await make_endpoint(outbox, other, uid="one")
    await outbox.delete_endpoint(ONE, app.id, "one")
    again = await make_endpoint(outbox, app, uid="one")
    assert again.id != first.id


async def test_endpoints_are_bounded_also_when_two_come_at_once(
    postgres_url: str, postgres_backend: Backend, ring: KeyRing
) -> None:
    made = await postgres_backend.write(
        lambda tx: create_application(tx, ONE, ApplicationIn(name="Shop"))
    )
    few = local(endpoints_max=2)

    def create(tx: Tx) -> str:
        given = EndpointIn(url=URL)
        return create_endpoint(
            tx, ONE, made.value.id, given, ring=ring, settings=few
        ).value.id

    await postgres_backend.write(create)
    async with held_transaction(postgres_url) as held:
        await held.run(create)
        second = asyncio.create_task(postgres_backend.write(create))
        await wait_until_blocked(postgres_backend)
        await held.commit()
        with pytest.raises(ValidationFailed):
            await second
    assert await count(postgres_backend, "endpoint") == 2


async def test_two_patches_of_one_endpoint_at_once_lose_neither(
    postgres_url: str, postgres_backend: Backend, ring: KeyRing
) -> None:
    made = await postgres_backend.write(
        lambda tx: create_application(tx, ONE, ApplicationIn(name="Shop"))
    )
    app = made.value.id
    settings = OutboxSettings()
    endpoint = await postgres_backend.write(
        lambda tx: (
            create_endpoint(
                tx, ONE, app, EndpointIn(url=URL), ring=ring, settings=settings
            ).value.id
        )
    )

    def patch(tx: Tx, change: EndpointPatch) -> object:
        return endpoints.patch_endpoint(
            tx, ONE, app, endpoint, change, ring=ring, settings=settings
        )

    async with held_transaction(postgres_url) as held:
        await held.run(lambda tx: patch(tx, EndpointPatch(description="first")))
        second = asyncio.create_task(
            postgres_backend.write(lambda tx: patch(tx, EndpointPatch(uid="second")))
        )
        await wait_until_blocked(postgres_backend)
        await held.commit()
        await second
    (found,) = await rows(postgres_backend, "SELECT uid, description FROM endpoint")
    assert found == {"uid": "second", "description": "first"}


async def test_another_tenant_or_application_reaches_no_endpoint(
    outbox: Outbox,
) -> None:
    app, other = await make_app(outbox), await make_app(outbox)
    endpoint = await make_endpoint(outbox, app, uid="one")
    theirs = await make_app(outbox, tenant=OTHER)
    for tenant, app_ref in ((OTHER, app.id), (OTHER, theirs.id), (ONE, other.id)):
        for ref in (endpoint.id, "one"):
            for call in (
                outbox.get_endpoint(tenant, app_ref, ref),
                outbox.patch_endpoint(tenant, app_ref, ref, EndpointPatch()),
                outbox.delete_endpoint(tenant, app_ref, ref),
                outbox.endpoint_secret(tenant, app_ref, ref),
                outbox.rotate_endpoint_secret(tenant, app_ref, ref, SecretRotation()),
                outbox.endpoint_headers(tenant, app_ref, ref),
                outbox.put_endpoint_headers(tenant, app_ref, ref, {}),
                outbox.patch_endpoint_headers(tenant, app_ref, ref, {}),
                outbox.endpoint_stats(tenant, app_ref, ref),
                outbox.list_attempts_by_endpoint(tenant, app_ref, ref),
                outbox.list_attempted_messages(tenant, app_ref, ref),
            ):
                with pytest.raises(NotFound):
                    await call
    with pytest.raises(NotFound):
        await outbox.list_endpoints(OTHER, app.id)


@pytest.mark.parametrize("ref", ["", "ep_", "\x00", "\ud800", "%", "x" * 9_999])
async def test_a_hostile_endpoint_reference_is_not_found(
    outbox: Outbox, ref: str
) -> None:
    app = await make_app(outbox)
    for call in (
        outbox.get_endpoint(ONE, app.id, ref),
        outbox.get_endpoint(ONE, ref, ref),
        outbox.delete_endpoint(ONE, app.id, ref),
        outbox.get_message(ONE, app.id, ref),
        outbox.get_attempt(ONE, app.id, ref, ref),
        outbox.explain(ONE, ref),
        outbox.get_event_type(ONE, ref),
        outbox.delete_event_type(ONE, ref),
        outbox.revoke_api_key(ONE, ref),
        outbox.resend(ONE, app.id, ref, ref),
    ):
        with pytest.raises(NotFound):
            await call


async def test_endpoints_are_listed_newest_first_unless_asked(outbox: Outbox) -> None:
    app = await make_app(outbox)
    made = [(await make_endpoint(outbox, app)).id for _ in range(5)]
    page = await outbox.list_endpoints(ONE, app.id, PageIn(limit=3))
    assert [each.id for each in page.data] == made[:1:-1]
    assert not page.done
    up = PageIn(limit=3, order=Order.ASCENDING)
    page = await outbox.list_endpoints(ONE, app.id, up)
    assert [each.id for each in page.data] == made[:3]


async def test_stats_count_attempts_and_what_still_waits(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    none = await outbox.endpoint_stats(ONE, app.id, endpoint.id)
    assert (none.success, none.pending, none.sending, none.fail) == (0, 0, 0, 0)
    await accept(outbox, app)
    await accept(outbox, app)
    await run(
        backend,
        "UPDATE work SET state = 'claimed', phase = NULL, claim = 1, claimed_by = 1,"
        " claimed_at = 1, deadline_at = 1 WHERE id = (SELECT min(id) FROM work)",
    )
    until = 4_000_000_000_000_000
    found = await outbox.endpoint_stats(ONE, app.id, endpoint.id, until=until, since=0)
    assert (found.success, found.pending, found.sending, found.fail) == (0, 1, 1, 0)
    with pytest.raises(BadRequest):
        await outbox.endpoint_stats(ONE, app.id, endpoint.id, since=2, until=1)
