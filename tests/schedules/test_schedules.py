"""Jobs as their users meet them: registered, submitted, fired, watched, stopped."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tenure.errors import Conflict, NotFound, ValidationFailed, WindowSucceeded
from tenure.schedules.declaring import Packages
from tenure.schedules.model import Degraded, Skipped, Snooze
from tenure.schedules.running import current_run
from tenure.store.backend import open_backend
from tenure.telemetry.events import Event
from tests.schedules.world import (
    TENANT,
    ended,
    engine_of,
    job_of,
    pass_to_window,
    until_runs,
)


async def test_a_submitted_job_runs_with_its_arguments_and_keeps_what_it_logged(
    database_url: str,
):
    packages, seen = Packages(), list[tuple[str, int]]()

    @packages.package("billing").job()
    async def report(account: str, pages: int = 3) -> None:
        logging.getLogger("billing").warning("reporting %s", account)
        seen.append((account, pages))

    async with engine_of(database_url, packages) as engine:
        run = await ended(engine, await report.submit("acme", pages=7))
        assert (run.state, run.origin, run.coordinate) == (
            "succeeded",
            "submit",
            "billing:report",
        )
        (attempt,) = await engine.schedules.attempts(TENANT, run.id)
        assert (attempt.number, attempt.outcome) == (1, "succeeded")
        assert len(attempt.logs) == 1
        assert attempt.logs[0].endswith("WARNING billing: reporting acme")
    assert seen == [("acme", 7)]


async def test_an_interval_fires_once_for_each_window(database_url: str):
    packages, windows = Packages(), list[object]()

    @packages.package("app").job(every="300ms")
    async def tick() -> None:
        run = current_run()
        assert run is not None
        windows.append(run.window)

    async with engine_of(database_url, packages) as engine:
        await until_runs(
            engine, "tick", lambda runs: sum(r.state == "succeeded" for r in runs) >= 4
        )
    assert len(windows) == len(set(windows)) >= 4


async def test_arguments_that_do_not_fit_are_refused_where_they_are_given(
    database_url: str,
):
    packages = Packages()

    @packages.package("app").job()
    async def pay(amount: int) -> None:
        del amount

    async with engine_of(database_url, packages) as engine:
        with pytest.raises(ValidationFailed, match=r"body\.args\.amount: .*`int`"):
            await pay.submit("much")
        with pytest.raises(ValidationFailed, match="missing a required argument"):
            await pay.submit()
        with pytest.raises(ValidationFailed, match=r"amount"):
            await engine.schedules.submit(TENANT, "pay", {"amount": "much"}, {})
        assert await engine.schedules.list_runs(TENANT, job="pay") == []


@pytest.mark.parametrize(
    ("answer", "state", "reason"),
    [
        (None, "succeeded", None),
        (Degraded("half of it"), "degraded", "half of it"),
        (Skipped("nothing new"), "skipped", "nothing new"),
        (ValueError("no"), "failed", "ValueError: no"),
    ],
)
async def test_outcomes_are_values(
    database_url: str, answer: object, state: str, reason: str | None
):
    packages = Packages()

    @packages.package("app").job(attempts=1)
    def work() -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with engine_of(database_url, packages) as engine:
        run = await ended(engine, await work.submit())
        assert (run.state, run.reason) == (state, reason)
        job = await job_of(engine, "work")
        assert {k: n for k, n in job.counts.items() if n} == {state: 1} | (
            {"failing": 1} if state == "failed" else {}
        )


async def test_a_snooze_charges_nothing(database_url: str):
    packages, calls = Packages(), list[int]()

    @packages.package("app").job(attempts=1)
    async def later() -> object:
        run = current_run()
        assert run is not None
        calls.append(run.attempt)
        return Snooze(0.05) if len(calls) < 3 else None

    async with engine_of(database_url, packages) as engine:
        run = await ended(engine, await later.submit())
        assert (run.state, calls) == ("succeeded", [1, 2, 3])
        said = [a.outcome for a in await engine.schedules.attempts(TENANT, run.id)]
        assert said == ["snoozed", "snoozed", "succeeded"]


async def test_a_key_has_one_open_run(database_url: str):
    packages, gate = Packages(), asyncio.Event()

    @packages.package("app").job()
    async def sync(account: str) -> None:
        del account
        await gate.wait()

    async with engine_of(database_url, packages) as engine:
        first = await sync.submit("a", key="a")
        again = await asyncio.gather(*(sync.submit("a", key="a") for _ in range(5)))
        assert set(again) == {first}
        assert await sync.submit("b", key="b") != first
        gate.set()
        await ended(engine, first)
        assert await sync.submit("a", key="a") != first


async def test_submit_many_is_all_or_nothing(database_url: str):
    packages, seen = Packages(), set[int]()

    @packages.package("app").job()
    async def each(number: int) -> None:
        seen.add(number)

    async with engine_of(database_url, packages) as engine:
        runs = await each.submit_many([{"number": n} for n in range(20)])
        assert len(set(runs)) == 20
        with pytest.raises(ValidationFailed):
            await each.submit_many([{"number": 1}, {"number": "x"}])
        for run in runs:
            assert (await ended(engine, run)).state == "succeeded"
        assert len(await engine.schedules.list_runs(TENANT, job="each")) == 20
    assert seen == set(range(20))


async def test_case_52_a_failed_run_settles_its_window_failed_and_may_be_replayed(
    database_url: str,
):
    packages, fails = Packages(), [True]

    @packages.package("app").job(every="10d")
    async def nightly() -> None:
        if fails[0]:
            raise RuntimeError("no disk")

    async with engine_of(database_url, packages) as engine:
        await pass_to_window(engine, "nightly")
        (run,) = await until_runs(
            engine, "nightly", lambda runs: [r.state for r in runs] == ["failed"]
        )
        (window,) = await engine.schedules.list_windows(TENANT, "nightly")
        assert (window.state, window.run) == ("failed", run.id)
        assert (await job_of(engine, "nightly")).last_outcome == "failed"
        fails[0] = False
        again = await engine.schedules.replay(TENANT, run.id, actor="ops")
        assert again.id == run.id
        assert (await ended(engine, run.id)).state == "succeeded"
        (window,) = await engine.schedules.list_windows(TENANT, "nightly")
        assert window.state == "succeeded"
        with pytest.raises(WindowSucceeded, match=f"{window.job} at .*{run.id}"):
            await engine.schedules.replay(TENANT, run.id, actor="ops")
        forced = await engine.schedules.replay(
            TENANT, run.id, actor="ops", force=True, note="again"
        )
        assert forced.id != run.id
        await ended(engine, forced.id)
        marked, first = await engine.schedules.list_windows(TENANT, "nightly")
        assert (first.mark, first.run, first.state) == ("", run.id, "succeeded")
        assert (marked.at, marked.run) == (first.at, forced.id)
        assert marked.mark.startswith("replay_")


async def test_case_62_a_timed_out_attempt_is_cancelled_and_says_so(database_url: str):
    packages, ends = Packages(), list[str]()

    @packages.package("app").job(timeout=0.2, attempts=1)
    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ends.append("cancelled")

    async with engine_of(database_url, packages) as engine:
        run = await ended(engine, await hang.submit())
        assert (run.state, run.reason) == ("timed_out", "timed out after 0.2 s")
    assert ends == ["cancelled"]


async def test_a_run_is_cancelled_while_it_goes_on(database_url: str):
    packages, started = Packages(), asyncio.Event()

    @packages.package("app").job()
    async def long() -> None:
        started.set()
        await asyncio.sleep(60)

    async with engine_of(database_url, packages) as engine:
        run = await long.submit()
        await started.wait()
        await engine.schedules.cancel(TENANT, run, actor="ops")
        engine.beat()
        assert (await ended(engine, run)).state == "cancelled"


async def test_paused_fires_nothing_and_resumed_catches_up_by_its_rule(
    database_url: str,
):
    packages = Packages()

    @packages.package("app").job(every="1d")
    async def daily() -> None:
        pass

    async with engine_of(database_url, packages) as engine:
        job = await engine.schedules.pause(TENANT, "daily", actor="ops", note="audit")
        assert (job.state, job.paused_by, job.paused_note) == ("paused", "ops", "audit")
        engine.backend.clock_offset_us += 3 * 86_400_000_000
        await asyncio.sleep(0.3)
        assert await engine.schedules.list_runs(TENANT, job="daily") == []
        await engine.schedules.resume(TENANT, "daily")
        (run,) = await until_runs(
            engine, "daily", lambda runs: [r.state for r in runs] == ["succeeded"]
        )
        skipped, fired = sorted(
            await engine.schedules.list_windows(TENANT, "daily"),
            key=lambda window: window.at,
        )
        assert (skipped.state, skipped.windows) == ("skipped", 2)
        assert fired.run == run.id


async def test_an_unknown_job_is_named_in_its_error(database_url: str):
    async with engine_of(database_url, Packages()) as engine:
        with pytest.raises(NotFound, match="no job is named 'nothing'"):
            await job_of(engine, "nothing")


def test_a_timedelta_is_an_interval():
    packages = Packages()

    @packages.package("app").job(every=timedelta(days=30))
    async def monthly() -> None:
        pass

    assert str(monthly.coordinate) == "app:monthly"


async def test_case_61_counters_are_right_when_ten_runs_end_at_once(database_url: str):
    packages, gate = Packages(), asyncio.Event()

    @packages.package("app").job(attempts=1)
    async def odd(number: int) -> None:
        await gate.wait()
        if number % 2:
            raise ValueError(str(number))

    async with engine_of(database_url, packages) as engine:
        runs = await odd.submit_many([{"number": n} for n in range(10)])
        gate.set()
        for run in runs:
            await ended(engine, run)
        counts = (await job_of(engine, "odd")).counts
        assert (counts["succeeded"], counts["failed"]) == (5, 5)


async def test_a_catalogue_that_cannot_be_read_stops_nothing_and_splits_no_history(
    database_url: str,
):
    packages = Packages()

    @packages.package("app").job(every="1d")
    async def daily() -> None:
        pass

    async with engine_of(database_url, packages) as engine:
        first = (await job_of(engine, "daily")).id
    backend = await open_backend(database_url)
    await backend.write(lambda tx: tx.run("ALTER TABLE job_spelling RENAME TO hidden"))
    await backend.aclose()
    again = Packages()
    again.package("app").job(every="1d", name="daily")(daily.__wrapped__)
    async with engine_of(database_url, again) as engine:
        assert engine.health().node is not None  # it is there, and sends
        assert engine.events.count(Event.CATALOGUE_UNREADABLE) == 1
        await asyncio.sleep(0.3)
        assert engine.events.count(Event.CATALOGUE_UNREADABLE) == 1
        await engine.backend.write(
            lambda tx: tx.run("ALTER TABLE hidden RENAME TO job_spelling")
        )
        async with asyncio.timeout(20):
            while not engine.events.count(Event.CATALOGUE_READ):  # noqa: ASYNC110 - a loop
                await asyncio.sleep(0.02)
        await pass_to_window(engine, "daily")
        (run,) = await until_runs(
            engine, "daily", lambda runs: [r.state for r in runs] == ["succeeded"]
        )
        assert run.job == first


async def test_a_package_that_is_renamed_keeps_the_history_of_its_jobs(
    database_url: str,
):
    packages, again = Packages(), Packages()

    async def report() -> None:
        pass

    packages.package("billing").job()(report)
    async with engine_of(database_url, packages) as engine:
        first = (await job_of(engine, "billing:report")).id
    again.package("ledger", formerly=["billing"]).job()(report)
    async with engine_of(database_url, again) as engine:
        job = await job_of(engine, "ledger:report")
        assert (job.id, job.key) == (first, "report")
        assert (await job_of(engine, "billing:report")).id == first
        with pytest.raises(Conflict, match="Tenure's own"):
            await engine.schedules.uninstall(TENANT, "builtin")


@pytest.mark.parametrize("commits", [True, False])
async def test_a_run_exists_once_the_callers_own_transaction_has_committed(
    database_url: str, commits: bool
):
    packages, seen = Packages(), list[int]()

    @packages.package("app").job()
    async def work(number: int) -> None:
        seen.append(number)

    async with engine_of(database_url, packages) as engine:
        scheme = (
            "sqlite+aiosqlite" if "sqlite" in database_url else "postgresql+asyncpg"
        )
        own = make_url(database_url).set(drivername=scheme)
        joined = create_async_engine(own)
        async with joined.connect() as connection, AsyncSession(connection) as session:
            run = await work.submit(1, into=session)
            await (session.commit() if commits else session.rollback())
            await connection.commit()
        await joined.dispose()
        if commits:
            assert (await ended(engine, run)).state == "succeeded"
        else:
            with pytest.raises(NotFound):
                await engine.schedules.find_run(TENANT, run)
    assert seen == ([1] if commits else [])


async def test_a_job_that_fails_too_often_in_a_row_pauses_itself(database_url: str):
    packages = Packages()

    @packages.package("app").job(attempts=1, pause_on_failure=3)
    async def broken() -> None:
        raise RuntimeError("no disk")

    async with engine_of(database_url, packages) as engine:
        for _ in range(2):
            await ended(engine, await broken.submit())
        assert (await job_of(engine, "broken")).state == "on demand"
        await ended(engine, await broken.submit())
        async with asyncio.timeout(20):
            while (job := await job_of(engine, "broken")).state != "paused":  # noqa: ASYNC110 - a loop
                await asyncio.sleep(0.02)
        assert (job.paused_by, job.paused_note) == ("tenure", "3 runs failed in a row")
        assert (await engine.schedules.resume(TENANT, "broken")).state == "on demand"


async def test_a_hosts_own_logging_is_left_as_it_is(database_url: str):
    packages, root = Packages(), logging.getLogger()
    before = (list(root.handlers), root.level)

    @packages.package("app").job()
    async def talks() -> None:
        logging.getLogger("app").warning("said")
        logging.makeLogRecord({"name": "app", "msg": "a copy, as queues make"})

    async with engine_of(database_url, packages) as engine:
        run = await ended(engine, await talks.submit())
        (attempt,) = await engine.schedules.attempts(TENANT, run.id)
        assert [line.rpartition(": ")[2] for line in attempt.logs] == ["said"]
    assert (list(root.handlers), root.level) == before
