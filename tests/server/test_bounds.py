"""Bodies that are too slow, too large or never end."""

import asyncio
from collections.abc import Iterator

import pytest
from starlette.types import Message, Receive, Scope

from tenure.errors import PayloadTooLarge, RequestTooSlow
from tenure.server import bounds
from tenure.server.bounds import BodyReader, ClientGone, read_body


def scope(*headers: tuple[bytes, bytes]) -> Scope:
    return {"type": "http", "headers": list(headers)}


def part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def sending(*messages: Message) -> Receive:
    """Return a client that sends these and then nothing more, without leaving."""
    left: Iterator[Message] = iter(messages)

    async def receive() -> Message:
        for message in left:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    return receive


async def test_a_body_comes_together_from_its_parts():
    client = sending(part(b"ab"), part(b""), part(b"c", more=False))
    assert await read_body(scope(), client, 3) == b"abc"


async def test_at_the_declared_length_no_further_part_is_asked_for():
    length = (b"content-length", b"3")
    client = sending(part(b"ab"), part(b"c"))  # would wait for ever at a third
    assert await read_body(scope(length), client, 3) == b"abc"


async def test_a_body_that_stops_coming_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounds, "REQUEST_BODY_SECONDS", 0.05)
    with pytest.raises(RequestTooSlow):
        await read_body(scope(), sending(part(b"a")), 100)


async def test_each_body_of_a_reader_has_the_whole_time(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(bounds, "REQUEST_BODY_SECONDS", 0.2)
    reader = BodyReader()
    loop = asyncio.get_running_loop()
    took: list[float] = []

    async def read() -> None:
        started = loop.time()
        with pytest.raises(RequestTooSlow):
            await reader.read(scope(), sending(part(b"a")), 100)
        took.append(loop.time() - started)

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        assert await reader.read(scope(), sending(part(b"ab", more=False)), 9) == b"ab"
        group.create_task(read())
    assert len(took) == 2
    assert min(took) >= 0.2
    # Later ones have time of their own: the timer stands for each in turn.
    with pytest.raises(RequestTooSlow):
        await reader.read(scope(), sending(part(b"a")), 100)


async def test_a_reader_lets_others_cancel():
    reader = BodyReader()
    begun = asyncio.Event()

    async def receive() -> Message:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.read(scope(), receive, 100))
        await begun.wait()
        task.cancel()
    assert task.cancelled()


async def test_a_refused_body_is_read_on_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(bounds, "DISCARD_SECONDS", 0.05)
    with pytest.raises(PayloadTooLarge):
        await read_body(scope(), sending(part(b"x" * 101)), 100)


async def test_an_endless_body_is_read_on_for_some_bytes_only(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(bounds, "DISCARD_BYTES", 1_000)
    taken = 0

    async def endless() -> Message:
        nonlocal taken
        taken += 100
        await asyncio.sleep(0)
        return part(b"x" * 100)

    with pytest.raises(PayloadTooLarge):
        await read_body(scope(), endless, 100)
    assert taken == 1_000


async def test_a_declared_length_far_over_the_bound_is_refused_unread():
    length = (b"content-length", b"99999999")
    with pytest.raises(PayloadTooLarge):
        await read_body(scope(length), sending(), 100)


@pytest.mark.parametrize(
    "last", [{"type": "http.disconnect"}, part(b"b", more=False)], ids=["left", "short"]
)
async def test_a_body_that_ends_early_is_no_body(last: Message):
    with pytest.raises(ClientGone):
        await read_body(
            scope((b"content-length", b"10")), sending(part(b"a"), last), 100
        )


async def test_a_length_that_is_no_number_is_not_believed():
    client = sending(part(b"abc", more=False))
    assert await read_body(scope((b"content-length", b"+3")), client, 3) == b"abc"
