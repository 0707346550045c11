"""Reminders over a user's own records: each once, a moved date again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tenure.errors import ConfigInvalid
from tenure.limits import REMINDER_PAGE_ROWS
from tenure.schedules.declaring import Packages
from tenure.schedules.reminders import Due, Match
from tests.schedules.world import TENANT, ended, engine_of, until_runs

NOW = datetime(2027, 3, 10, 22, 30, tzinfo=UTC)


class Records:
    """A user's table: records by id, with a date each."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[datetime, Mapping[str, Any]]] = {}

    def __call__(self, after: str, limit: int) -> list[Any]:
        ids = sorted(id_ for id_ in self.rows if id_ > after)[:limit]
        return [(id_, *self.rows[id_]) for id_ in ids]


def told(packages: Packages, records: Any, seen: list[Due], **more: Any) -> None:
    @packages.package("crm").reminder(of=records, name="tell", **more)
    async def tell(due: Due) -> None:
        seen.append(due)


async def looked(engine: Any) -> None:
    """Let the source be looked through once."""
    run = await engine.schedules.trigger(TENANT, "tell", actor="t")
    found = await ended(engine, run.id)
    assert found.state == "succeeded", found.reason


async def test_each_offset_of_a_record_is_told_once_and_a_moved_date_again(
    database_url: str,
):
    records, seen, packages = Records(), list[Due](), Packages()
    told(packages, records, seen, offsets=["-3d", "-1d"])
    async with engine_of(database_url, packages) as engine:
        now = datetime.now(UTC)
        records.rows["a"] = (now + timedelta(days=3), {"name": "Ada"})
        records.rows["b"] = (now + timedelta(days=9), {"name": "Bob"})
        for _ in range(2):
            await looked(engine)
        runs = await until_runs(
            engine,
            "tell",
            lambda runs: all(r.state == "succeeded" for r in runs) and len(runs) == 3,
        )
        (due,) = seen
        assert (due.record, due.offset) == ("a", timedelta(days=-3))
        assert due.data == {"name": "Ada"}
        assert due.day == now.date()
        assert [r.record for r in runs if r.origin == "reminder"] == ["a"]
        records.rows["a"] = (now + timedelta(days=1), {"name": "Ada"})
        await looked(engine)
        await until_runs(engine, "tell", lambda runs: len(runs) == 5)
        async with asyncio.timeout(10):
            while len(seen) < 2:  # noqa: ASYNC110 - a run
                await asyncio.sleep(0.02)
        assert seen[1].offset == timedelta(days=-1)


async def test_a_record_far_down_the_source_is_not_starved(database_url: str):
    records, seen, packages = Records(), list[Due](), Packages()
    told(packages, records, seen, within="7d", where=lambda data: data["on"])
    async with engine_of(database_url, packages) as engine:
        now = datetime.now(UTC)
        far = now + timedelta(days=30)
        for n in range(2 * REMINDER_PAGE_ROWS + 7):
            records.rows[f"{n:05}"] = (far, {"on": True})
        records.rows["zz"] = (now + timedelta(days=2), {"on": True})
        records.rows["zzz"] = (now + timedelta(days=2), {"on": False})
        await looked(engine)
        async with asyncio.timeout(10):
            while not seen:  # noqa: ASYNC110 - a run
                await asyncio.sleep(0.02)
        await looked(engine)
    assert [due.record for due in seen] == ["zz"]


async def test_a_failed_reminder_is_tried_again(database_url: str):
    records, packages, tries = Records(), Packages(), list[str]()

    @packages.package("crm").reminder(of=records, within="1d", backoff=0.01)
    def tell(due: Due) -> None:
        tries.append(due.record)
        if len(tries) < 3:
            raise RuntimeError("no mail")

    async with engine_of(database_url, packages) as engine:
        records.rows["a"] = (datetime.now(UTC) + timedelta(hours=1), {})
        await looked(engine)
        await until_runs(
            engine,
            "tell",
            lambda runs: any(r.record == "a" and r.state == "succeeded" for r in runs),
        )
    assert tries == ["a"] * 3


async def test_a_source_whose_ids_do_not_rise_fails_its_window(database_url: str):
    packages = Packages()

    def stuck(after: str, limit: int) -> list[Any]:
        del after
        return [("a", datetime.now(UTC), {})] * limit

    told(packages, stuck, [], within="1d")
    async with engine_of(database_url, packages) as engine:
        run = await engine.schedules.trigger(TENANT, "tell", actor="t")
        found = await engine.schedules.find_run(TENANT, run.id)
        async with asyncio.timeout(10):
            while not (tries := await engine.schedules.attempts(TENANT, run.id)):  # noqa: ASYNC110 - a run
                await asyncio.sleep(0.02)
        assert "return records by their ids" in str(tries[0].reason)
        await engine.schedules.cancel(TENANT, found.id, actor="t")


@pytest.mark.parametrize(
    ("zone", "day"), [("UTC", date(2027, 3, 10)), ("Asia/Tokyo", date(2027, 3, 11))]
)
def test_days_are_those_of_the_schedules_zone(zone: str, day: date):
    match = Match(source=Records(), offsets_us=(0,), within_us=None, zone=zone)
    assert match.scopes(NOW, NOW, date(2027, 1, 1)) == [(f"0:{day}", 0, day)]


def test_a_day_that_nobody_looked_on_is_made_up_for_and_none_before_it_existed():
    match = Match(source=Records(), offsets_us=(0,), within_us=None, zone="UTC")
    yesterday = NOW - timedelta(days=1)
    assert len(match.scopes(yesterday, NOW, date(2027, 3, 1))) == 1
    assert match.scopes(yesterday, NOW, date(2027, 3, 10)) == []
    assert match.scopes(NOW - timedelta(days=2), NOW, date(2027, 3, 1)) == []


def test_offsets_and_a_span_exclude_each_other():
    for given in ({}, {"offsets": ["-1d"], "within": "1d"}):
        with pytest.raises(ConfigInvalid, match="give one of them"):
            told(Packages(), Records(), [], **given)  # pyright: ignore[reportArgumentType]
