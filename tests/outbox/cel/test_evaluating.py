"""What may take long runs in a process that can be killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tenure.errors import QueueFull
from tenure.outbox.cel import Evaluator, Outcome, evaluating
from tenure.outbox.cel.evaluating import evaluate_blocking

ONE = "one's"
LONG = "body.all(i, body.all(j, body.all(k, i + j + k >= 0)))"
MANY = {"body": list(range(500))}


@pytest_asyncio.fixture
async def evaluator() -> AsyncIterator[Evaluator]:
    made = Evaluator(seconds=0.2)
    yield made
    await made.aclose()


async def test_a_long_expression_ends_at_its_bound_and_stalls_nobody(
    evaluator: Evaluator,
):
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    outcome = await evaluator.evaluate(LONG, MANY, 10, whose=ONE)
    ticking.cancel()
    assert outcome.exceeded
    assert ticks > 5
    # The next one is answered by a new process.
    again = await evaluator.evaluate("body.exists(i, i == 7)", MANY, 10, whose=ONE)
    assert again == Outcome(value=True)


async def test_the_process_answers_as_the_expression_would_in_place(
    evaluator: Evaluator,
):
    facts = {"body": {"l": [1, 2], "s": "grüß"}}
    made = await evaluator.evaluate("{'n': body.l.map(i, i * 2)}", facts, 10, whose=ONE)
    assert made == Outcome(value={"n": [2, 4]})
    assert (
        await evaluator.evaluate("body.x.map(i, i)", facts, 10, whose=ONE)
    ).fault == ("no such key 'x'")
    stalled = await asyncio.to_thread(evaluate_blocking, LONG, MANY, 10)
    assert stalled.exceeded
    blocking = await asyncio.to_thread(
        evaluate_blocking, "body.l.exists(i, i == 2)", facts, 10
    )
    assert blocking == Outcome(value=True)


async def test_an_expression_that_wants_too_much_memory_is_past_its_bound():
    evaluator = Evaluator(seconds=1)
    text = " + ".join(["body.s"] * 400) + " == ''"
    try:
        outcome = await evaluator.evaluate(
            text, {"body": {"s": "x" * 8_000_000}}, 10, whose=ONE
        )
    finally:
        await evaluator.aclose()
    assert outcome.exceeded or outcome.fault is not None


async def test_who_is_cancelled_leaves_no_answer_for_the_next(evaluator: Evaluator):
    await evaluator.evaluate("body.exists(i, true)", MANY, 10, whose=ONE)
    first = asyncio.ensure_future(evaluator.evaluate(LONG, MANY, 10, whose=ONE))
    await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = await evaluator.evaluate("body.map(i, i) == []", MANY, 10, whose=ONE)
    assert second == Outcome(value=False)


async def test_a_process_that_cannot_start_is_no_fault_of_the_expression(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    broken = tmp_path / "worker.py"
    broken.write_text("raise SystemExit")
    with monkeypatch.context() as changed:
        changed.setattr(evaluating, "_WORKER", str(broken))
        evaluator = Evaluator()
        with pytest.raises(QueueFull):
            await evaluator.evaluate("body.exists(i, true)", MANY, 10, whose=ONE)
    assert await evaluator.evaluate(
        "body.exists(i, true)", MANY, 10, whose=ONE
    ) == Outcome(value=True)
    await evaluator.aclose()


async def test_what_ran_past_its_bound_takes_nobody_s_turn_for_a_while():
    evaluator = Evaluator(seconds=0.1)
    try:
        assert (await evaluator.evaluate(LONG, MANY, 10, whose=ONE)).exceeded
        assert evaluator._process is None
        assert (await evaluator.evaluate(LONG, MANY, 10, whose=ONE)).exceeded
        assert evaluator._process is None, "it was asked again"
        # Another's messages were not looked at yet: the same text may be quick there.
        few = {"body": [1, 2]}
        mine = await evaluator.evaluate(LONG, few, 10, whose="another's")
        assert mine == Outcome(value=True)
        other = await evaluator.evaluate("body.exists(i, i == 7)", MANY, 10, whose=ONE)
        assert other == Outcome(value=True)
    finally:
        await evaluator.aclose()
