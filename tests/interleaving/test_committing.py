"""What happens between the verification, the commit and its answer, forced to happen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tenure.errors import NotFound
from tenure.inbox import refusing
from tenure.inbox.inbox import Inbox
from tenure.inbox.ledger import receiving, sources
from tenure.inbox.model import (
    Pull,
    PullKind,
    Source,
    SourceIn,
    SourcePatch,
    Verification,
)
from tenure.limits import REFUSED_FLUSH_SECONDS
from tenure.store.backend import Backend
from tests.inbox.conftest import Rig, opened
from tests.inbox.world import ONE, SECRET, hook, make_source, send
from tests.outbox.test_acceptor import Interrupted
from tests.outbox.world import count, rows
from tests.work.rig import until_read


@pytest_asyncio.fixture
async def rig(backend: Backend) -> AsyncIterator[Rig]:
    """An inbox on each database, with no node: nothing is sent."""
    async with opened(backend) as rig:
        yield rig


@contextlib.contextmanager
def before_the_commit(
    inbox: Inbox, happens: Callable[[], Awaitable[Any]]
) -> Generator[None]:
    """Let something happen once, when a request is verified and not yet committed."""
    receiver: Any = inbox.receiver
    store, left = receiver._store, [happens]

    async def late(item: receiving.Item) -> receiving.Answer:
        while left:
            await left.pop()()
        return await store(item)

    receiver._store = late
    yield
    receiver._store = store
    assert left == [], "nothing was verified"


async def nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("change", "status", "stored"),
    [
        ("nothing", 200, 1),
        ("disabled", 410, 0),
        ("rotated away", 401, 0),
        ("rotated with grace", 200, 1),
        ("deleted", 404, 0),
    ],
)
async def test_a_source_that_changes_between_verification_and_commit_is_judged_again(
    rig: Rig, change: str, status: int, stored: int
):
    source = await make_source(rig.inbox)
    other = rig.another()
    other.start()

    def rotate(grace: float) -> Awaitable[Source]:
        return other.rotate_source_secret(
            ONE, source.id, "another-secret", grace_seconds=grace
        )

    happens: dict[str, Callable[[], Awaitable[Any]]] = {
        "nothing": nothing,
        "disabled": lambda: other.patch_source(
            ONE, source.id, SourcePatch(disabled=True)
        ),
        "rotated away": lambda: rotate(0),
        "rotated with grace": lambda: rotate(60),
        "deleted": lambda: other.delete_source(ONE, source.id),
    }
    try:
        with before_the_commit(rig.inbox, happens[change]):
            try:
                got = (await send(rig.inbox, source.path, hook("d-1"))).status
            except NotFound:
                got = 404
    finally:
        await other.aclose()
    assert got == status
    for table in ("receipt", "message", "receipt_key"):
        assert await count(rig.backend, table) == stored


@dataclass
class Lossy(Interrupted):
    """Loses answers, and lets something happen between that and the next try."""

    then: Callable[[], Awaitable[None]] = nothing

    async def write(self, fn: Callable[..., Any], *, retry: bool = True) -> Any:
        losing = bool(self.lose)
        try:
            return await super().write(fn, retry=retry)
        finally:
            if losing:
                await self.then()


def interrupted(
    rig: Rig, *lose: str, then: Callable[[], Awaitable[None]] = nothing
) -> None:
    """Lose answers of the commits that store receipts."""
    acceptor: Any = rig.outbox.acceptor
    acceptor._backend = Lossy(rig.backend, lose=list(lose), then=then)


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "keyless"])
@pytest.mark.parametrize("lose", [[], ["before"], ["after"], ["after", "after"]])
async def test_a_commit_whose_answer_was_lost_is_answered_as_stored_once(
    rig: Rig, lose: list[str], keyed: bool
):
    # A rate of one: the first try uses it up, the second must not meet it.
    source = await make_source(
        rig.inbox, preset="github" if keyed else "none", **kept(keyed), rate_count=1
    )
    interrupted(rig, *lose)
    reply = await send(rig.inbox, source.path, hook("d-1"))
    assert reply.status == 200, reply.body
    stored = await rows(rig.backend, "SELECT id, message FROM receipt")
    assert [row["id"] for row in stored] == [reply.receipt]
    assert await count(rig.backend, "message") == 1
    assert (await send(rig.inbox, source.path, hook("d-2"))).status == 429
    assert rig.inbox.receiver._storing == {}


def kept(keyed: bool) -> dict[str, Any]:
    return {"secrets": (SECRET,) if keyed else ()}


@pytest.mark.parametrize(("lose", "status"), [("after", 200), ("before", 410)])
async def test_what_is_committed_is_not_taken_back_by_a_change_before_its_answer(
    rig: Rig, lose: str, status: int
):
    source = await make_source(rig.inbox, preset="none", secrets=())

    async def disable() -> None:
        await rig.inbox.patch_source(ONE, source.id, SourcePatch(disabled=True))

    interrupted(rig, lose, then=disable)
    reply = await send(rig.inbox, source.path, hook("d-1"))
    assert reply.status == status
    assert await count(rig.backend, "receipt") == int(status == 200)
    assert await count(rig.backend, "message") == int(status == 200)


async def test_many_whose_commit_was_lost_are_each_answered_as_stored_once(rig: Rig):
    source = await make_source(rig.inbox, preset="none", secrets=(), rate_count=12)
    interrupted(rig, "after", "before", "after")
    replies = await asyncio.gather(
        *(send(rig.inbox, source.path, hook(f"d-{n}")) for n in range(12))
    )
    stored = await rows(rig.backend, "SELECT id FROM receipt")
    assert {row["id"] for row in stored} == {reply.receipt for reply in replies}
    assert (len(stored), await count(rig.backend, "message")) == (12, 12)


async def test_a_deleted_source_keeps_no_secret_and_is_nobody_s(rig: Rig):
    given = SourceIn(
        name="Hooks",
        uid="gh",
        verification=Verification(preset="github"),
        secrets=(SECRET,),
        pull=Pull(kind=PullKind.NATS, url="nats://u:hidden@h:4222", name="s"),
    )
    source = (await rig.inbox.create_source(ONE, given)).value
    await rig.inbox.delete_source(ONE, "gh")
    (row,) = await rows(rig.backend, "SELECT secrets, pull FROM source")
    assert rig.ring.open(bytes(row["secrets"])) == b"[]"
    assert row["pull"] is None
    read = rig.backend.read
    assert (
        await read(lambda tx: sources.opened_source(tx, source.id, ring=rig.ring))
        is None
    )


async def test_a_sample_for_a_source_that_is_deleted_meanwhile_finds_none(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    source = await make_source(rig.inbox)
    find = rig.inbox.get_source

    async def then_deleted(*args: Any) -> Source:
        found = await find(*args)
        await rig.inbox.delete_source(ONE, source.id)
        return found

    assert (await rig.inbox.trigger(ONE, source.id, "push")).status == 200
    monkeypatch.setattr(rig.inbox, "get_source", then_deleted)
    with pytest.raises(NotFound):
        await rig.inbox.trigger(ONE, source.id, "push")


async def test_refusals_are_written_again_after_some_that_could_not_be(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    source, tried = await make_source(rig.inbox), asyncio.Event()
    write = refusing.write_refused

    def broken(*_: Any) -> None:
        tried.set()
        raise UnicodeError("not to be stored")

    monkeypatch.setattr(refusing, "write_refused", broken)
    assert (await send(rig.inbox, source.path, hook("a", secret="x"))).status == 401
    await asyncio.wait_for(tried.wait(), 10 * REFUSED_FLUSH_SECONDS)
    monkeypatch.setattr(refusing, "write_refused", write)
    assert (await send(rig.inbox, source.path, hook("b", secret="x"))).status == 401
    await until_read(
        rig.backend,
        lambda tx: tx.scalar("SELECT sum(count) FROM refusal_count"),
        lambda found: found == 2,
    )
    found = await rig.inbox.refusals(ONE, source.id)
    assert found.counts == {"bad_signature": 2}
