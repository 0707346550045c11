import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tenure.errors import InvariantViolated
from tenure.testing import Received, Receiver, Reply
from tenure.testing.lab.nodes import NodeProcess
from tenure.testing.lab.traffic import Traffic


def reply(status: int, **body: str) -> Reply:
    return Reply(status=status, body=json.dumps(body).encode())


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


@pytest_asyncio.fixture
async def traffic(server: Receiver, tmp_path: Path) -> AsyncIterator[Traffic]:
    node = NodeProcess(port=server.port, environ={}, log=tmp_path / "log", cwd=tmp_path)
    made = Traffic([node], "a key")
    yield made
    await made.aclose()


async def test_a_submit_is_repeated_with_its_key_until_it_is_accepted(
    server: Receiver, traffic: Traffic
):
    seen: Counter[str] = Counter()

    def answer(received: Received) -> Reply:
        key = received.header("idempotency-key") or ""
        seen[key] += 1
        match seen[key]:
            case 1:
                return Reply(close=True)
            case 2:
                return reply(503)
            case _:
                return reply(202, id=f"msg_{key}")

    server.answer(answer)
    await traffic.allow(5)
    await traffic.submit("app", 5)
    assert len(traffic.accepted) == 5
    assert set(seen.values()) == {3}
    assert traffic.asked_again == 10


async def test_nothing_is_submitted_beyond_what_is_allowed(
    server: Receiver, traffic: Traffic
):
    server.answer(lambda got: reply(202, id=got.header("idempotency-key") or ""))
    submitting = asyncio.ensure_future(traffic.submit("app", 40))
    await traffic.allow(3)
    await server.wait(3)
    assert not submitting.done()
    await traffic.allow(40)
    await submitting
    assert len(traffic.accepted) == 40


async def test_an_answer_that_no_fault_explains_ends_it(
    server: Receiver, traffic: Traffic
):
    server.answer(reply(422, code="validation_error"))
    await traffic.allow(1)
    with pytest.raises(ExceptionGroup) as raised:
        await traffic.submit("app", 1)
    assert raised.group_contains(InvariantViolated, match="answered 422")
