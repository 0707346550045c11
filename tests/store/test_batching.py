from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import DatabaseUnavailable, Draining, InvariantViolated, QueueFull
from tenure.limits import COMMIT_RETRIES_MAX
from tenure.store.backend import open_backend
from tenure.store.batching import Batcher
from tenure.store.contract import CommitUnknown, RowsLocked
from tenure.store.schema import setting
from tests.proxy import proxied

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.store.contract import Backend
    from tenure.store.tx import Tx
    from tests.databases import PostgresServer

DEADLINE_SECONDS = 20.0


class Poison(Exception):
    pass


class Database:
    """Takes batches; a gate holds them, and named items are poison."""

    def __init__(self, poison: set[str] | None = None) -> None:
        self.batches: list[list[str]] = []
        self.committed: list[str] = []
        self.poison = poison or set[str]()
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Semaphore(0)
        self.in_flight = 0
        self.most_in_flight = 0
        self.raises: Callable[[list[str]], Exception | None] = lambda _: None

    async def run(self, items: list[str]) -> list[str]:
        self.batches.append(list(items))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.entered.release()
        try:
            await self.gate.wait()
            if bad := self.poison.intersection(items):
                raise Poison(*sorted(bad))
            if (error := self.raises(items)) is not None:
                raise error
            self.committed += items
            return [f"done {item}" for item in items]
        finally:
            self.in_flight -= 1


def batcher(database: Database, **options: Any) -> Batcher[str, str]:
    options = {"key": str, "wait_seconds": 0.0, "unknown_pause_seconds": 0.0} | options
    made = Batcher[str, str](database.run, **options)
    made.start()
    return made


async def together(made: Batcher[str, str], *items: str) -> list[Any]:
    """Put all at once; return each caller's result or error."""
    answers = [made.put_nowait(item) for item in items]
    async with asyncio.timeout(DEADLINE_SECONDS):
        return await asyncio.gather(*answers, return_exceptions=True)


async def test_each_caller_gets_its_own_result() -> None:
    database = Database()
    made = batcher(database)
    assert await together(made, "c", "a", "b") == ["done c", "done a", "done b"]
    await made.aclose()


async def test_callers_that_come_together_share_one_batch_in_key_order() -> None:
    database = Database()
    made = batcher(database)
    await together(made, "c", "a", "b")
    await made.aclose()
    assert database.batches == [["a", "b", "c"]]


async def test_while_one_batch_is_in_flight_the_next_one_gathers() -> None:
    database = Database()
    database.gate.clear()
    made = batcher(database)
    first = made.put_nowait("a")
    await database.entered.acquire()
    rest = [made.put_nowait(item) for item in "bcd"]
    assert len(made) == 3
    database.gate.set()
    await asyncio.gather(first, *rest)
    await made.aclose()
    assert database.batches == [["a"], ["b", "c", "d"]]
    assert database.most_in_flight == 1


async def test_as_many_batches_fly_as_are_allowed() -> None:
    database = Database()
    database.gate.clear()
    made = batcher(database, concurrency=2, rows_max=1)
    answers = [made.put_nowait(item) for item in "abc"]
    await database.entered.acquire()
    await database.entered.acquire()
    assert len(made) == 1
    database.gate.set()
    await asyncio.gather(*answers)
    await made.aclose()
    assert database.most_in_flight == 2


async def test_a_batch_holds_so_many_rows_at_most() -> None:
    database = Database()
    made = batcher(database, rows_max=3)
    await together(made, *"abcdefgh")
    await made.aclose()
    assert [len(batch) for batch in database.batches] == [3, 3, 2]


async def test_a_batch_holds_so_many_bytes_but_one_item_always_fits() -> None:
    database = Database()
    made = batcher(database, size=len, bytes_max=4)
    await together(made, "aa", "bb", "c", "ddddddd", "e")
    await made.aclose()
    assert database.batches == [["aa", "bb"], ["c"], ["ddddddd"], ["e"]]


async def test_a_lone_caller_waits_for_company_and_then_no_longer() -> None:
    database = Database()
    made = batcher(database, wait_seconds=0.05)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await made.put("a")
    assert loop.time() - begun >= 0.04
    assert database.batches == [["a"]]
    await made.aclose()


@pytest.mark.parametrize("limit", [{"rows_max": 2}, {"bytes_max": 2, "size": len}])
async def test_a_full_batch_waits_for_nobody(limit: dict[str, Any]) -> None:
    database = Database()
    made = batcher(database, wait_seconds=3600.0, **limit)
    assert await together(made, "a", "b") == ["done a", "done b"]
    await made.aclose()


async def test_only_the_bad_items_caller_sees_its_error() -> None:
    database = Database(poison={"c"})
    made = batcher(database)
    answers = await together(made, *"abcdefgh")
    await made.aclose()
    assert [type(answer) for answer in answers].count(Poison) == 1
    assert isinstance(answers[2], Poison)
    assert sorted(database.committed) == list("abdefgh")
    # Halving: 8, 4, 2, 1 and their other halves, not one by one.
    assert len(database.batches) == 7


@given(
    items=st.sets(st.text(min_size=1, max_size=4), max_size=40),
    data=st.data(),
    rows_max=st.integers(1, 10),
    concurrency=st.integers(1, 3),
)
def test_exactly_the_poisoned_callers_fail(
    items: set[str], data: st.DataObject, rows_max: int, concurrency: int
) -> None:
    poison = data.draw(st.sets(st.sampled_from(sorted(items)))) if items else set[str]()

    async def script() -> None:
        database = Database(poison)
        made = batcher(database, rows_max=rows_max, concurrency=concurrency)
        given_items = sorted(items, key=hash)
        answers = await together(made, *given_items)
        await made.aclose()
        for item, answer in zip(given_items, answers, strict=True):
            if item in poison:
                assert isinstance(answer, Poison)
                assert answer.args == (item,)
            else:
                assert answer == f"done {item}"
        assert sorted(database.committed) == sorted(items - poison)

    asyncio.run(script())


async def test_an_unreachable_database_fails_all_without_halving() -> None:
    database = Database()
    database.raises = lambda _: DatabaseUnavailable("gone")
    made = batcher(database)
    answers = await together(made, *"abcd")
    assert all(isinstance(answer, DatabaseUnavailable) for answer in answers)
    assert database.batches == [list("abcd")]
    database.raises = lambda _: None
    assert await made.put("e") == "done e"
    await made.aclose()


async def test_a_locked_row_is_halved_out_like_a_bad_one() -> None:
    database = Database()
    database.raises = lambda items: RowsLocked("b") if "b" in items else None
    made = batcher(database)
    answers = await together(made, *"abcd")
    await made.aclose()
    assert [isinstance(each, RowsLocked) for each in answers] == [0, 1, 0, 0]
    assert sorted(database.committed) == list("acd")


async def test_an_unknown_commit_runs_the_identical_batch_again() -> None:
    database = Database()
    errors = iter([CommitUnknown("cut"), CommitUnknown("cut")])
    database.raises = lambda _: next(errors, None)
    made = batcher(database)
    first = [made.put_nowait(item) for item in "ba"]
    await database.entered.acquire()
    later = made.put_nowait("c")
    await asyncio.gather(*first, later)
    await made.aclose()
    assert database.batches == [["a", "b"]] * 3 + [["c"]]


async def test_a_commit_that_stays_unknown_is_given_up() -> None:
    database = Database()
    database.raises = lambda _: CommitUnknown("cut")
    made = batcher(database)
    answers = await together(made, *"ab")
    await made.aclose()
    assert all(isinstance(answer, CommitUnknown) for answer in answers)
    assert database.batches == [["a", "b"]] * COMMIT_RETRIES_MAX


async def test_a_cancelled_caller_does_not_cancel_the_batch() -> None:
    database = Database()
    database.gate.clear()
    made = batcher(database)
    tasks = [asyncio.create_task(made.put(item)) for item in "ab"]
    await database.entered.acquire()
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    database.gate.set()
    assert await tasks[1] == "done b"
    assert database.committed == ["a", "b"]
    await made.aclose()


async def test_more_callers_than_the_bound_are_refused_at_once() -> None:
    database = Database()
    database.gate.clear()
    made = batcher(database, queue_max=2)
    first = made.put_nowait("a")
    await database.entered.acquire()
    waiting = [made.put_nowait(item) for item in "bc"]
    with pytest.raises(QueueFull):
        await made.put("d")
    database.gate.set()
    await asyncio.gather(first, *waiting)
    assert await made.put("d") == "done d"
    await made.aclose()


async def test_closing_runs_what_waits_and_takes_nothing_more() -> None:
    database = Database()
    database.gate.clear()
    made = batcher(database, rows_max=2, wait_seconds=3600.0)
    answers = [made.put_nowait(item) for item in "abcde"]
    await database.entered.acquire()
    closing = asyncio.create_task(made.aclose())
    await asyncio.sleep(0)
    with pytest.raises(Draining):
        await made.put("f")
    database.gate.set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await closing
    assert [answer.result() for answer in answers] == [f"done {i}" for i in "abcde"]


async def test_closing_what_never_started_answers_who_waits() -> None:
    made = Batcher[str, str](Database().run, key=str)
    answer = made.put_nowait("a")
    await made.aclose()
    with pytest.raises(Draining):
        await answer


async def test_starting_twice_is_refused() -> None:
    made = batcher(Database())
    with pytest.raises(InvariantViolated, match="twice"):
        made.start()
    await made.aclose()


async def test_answers_that_cannot_be_told_apart_fail_all_and_run_once() -> None:
    runs: list[list[str]] = []

    async def short(items: list[str]) -> list[str]:
        runs.append(items)
        return items[1:]

    made = Batcher[str, str](short, key=str, wait_seconds=0.0)
    made.start()
    answers = await together(made, "a", "b")
    await made.aclose()
    assert all(isinstance(answer, InvariantViolated) for answer in answers)
    assert runs == [["a", "b"]]


async def test_a_run_that_changes_its_list_does_not_disturb_a_second_run() -> None:
    seen: list[list[str]] = []

    async def eats(items: list[str]) -> list[str]:
        seen.append(list(items))
        answers = list(items)
        items.clear()
        if len(seen) == 1:
            raise CommitUnknown("cut")
        return answers

    made = Batcher[str, str](eats, key=str, wait_seconds=0.0, unknown_pause_seconds=0)
    made.start()
    assert await together(made, "a", "b") == ["a", "b"]
    await made.aclose()
    assert seen == [["a", "b"], ["a", "b"]]


async def test_a_cancelled_loop_leaves_nobody_waiting() -> None:
    database = Database()
    database.gate.clear()
    made = batcher(database)
    in_flight = made.put_nowait("a")
    await database.entered.acquire()
    queued = made.put_nowait("b")
    assert made._tasks is not None
    await made._tasks.cancel()
    async with asyncio.timeout(DEADLINE_SECONDS):
        with pytest.raises(asyncio.CancelledError):
            await in_flight
        await made.aclose()
    with pytest.raises(Draining):
        await queued


async def test_a_batch_on_a_real_database_loses_only_its_bad_item(
    backend: Backend,
) -> None:
    def insert(items: list[str], tx: Tx) -> list[str]:
        for item in items:
            tx.run(
                "INSERT INTO setting (name, value, updated_at) VALUES (:n, :v, 0)",
                {"n": item.strip("!"), "v": b""},
            )
        return items

    async def run(items: list[str]) -> list[str]:
        return await backend.write(lambda tx: insert(items, tx), retry=len(items) == 1)

    made = Batcher[str, str](run, key=str)
    made.start()
    answers = await together(made, "a", "a!", "b", "c", "d")
    await made.aclose()
    query = "SELECT name FROM setting WHERE length(name) = 1 ORDER BY name"
    kept = await backend.read(lambda tx: [row.name for row in tx.all(query)])
    assert kept == ["a", "b", "c", "d"]
    assert sum(isinstance(answer, Exception) for answer in answers) == 1


@pytest.mark.parametrize("mode", ["pass", "cut at commit", "cut before commit"])
async def test_a_lost_commit_answer_costs_no_caller_its_answer(
    mode: str, postgres_server: PostgresServer, postgres_database: str
) -> None:
    async with proxied(postgres_server) as proxy, asyncio.timeout(DEADLINE_SECONDS):
        url = postgres_server.database_by_port(postgres_database, proxy.port)
        backend = await open_backend(url)
        proxy.mode, proxy.commits = mode, 0

        async def run(items: list[str]) -> list[str]:
            if proxy.commits:
                proxy.mode = "pass"
            rows = [{"name": i, "value": b"", "updated_at": 0} for i in items]
            await backend.write(
                lambda tx: tx.insert(setting, rows, on_conflict="nothing")
            )
            return items

        made = Batcher[str, str](run, key=str, unknown_pause_seconds=0.0)
        made.start()
        answers = await together(made, *"abc")
        await made.aclose()
        query = "SELECT name FROM setting WHERE length(name) = 1"
        kept = await backend.read(lambda tx: [row.name for row in tx.all(query)])
        await backend.aclose()
    assert answers == list("abc")
    assert sorted(kept) == list("abc")
    assert proxy.commits == (1 if mode == "pass" else 2)


async def test_a_close_waits_for_a_database_that_hangs_no_longer_than_told() -> None:
    database = Database()
    database.gate.clear()
    made = batcher(database, rows_max=1)
    answers = [made.put_nowait(item) for item in "ab"]
    await database.entered.acquire()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await made.aclose(0.01)
        results = await asyncio.gather(*answers, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert isinstance(results[1], Draining)
