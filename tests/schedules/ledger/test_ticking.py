"""The tick: what is minted, and what is not, whatever is left of earlier windows."""

from __future__ import annotations

import pytest

from tenure.schedules.calendar.catching import ON_TIME_US
from tenure.schedules.model import JobSettings, Overlap
from tenure.store.backend import Backend
from tests.schedules.fleet import DAY_US, Fleet, definition, release

SKIP = JobSettings()


async def fleet_of(backend: Backend, settings: JobSettings = SKIP) -> Fleet:
    fleet = Fleet(backend)
    await fleet.start("n", release(definition("app:report", settings=settings)))
    return fleet


async def write(fleet: Fleet, sql: str) -> None:
    await fleet.backend.write(lambda tx: tx.run(sql))


async def test_a_window_that_exists_already_is_passed_and_not_fired(backend: Backend):
    fleet = await fleet_of(backend)
    at = await fleet.pass_to_next()
    await write(
        fleet,
        "INSERT INTO job_window (job, at, state, created_at)"
        f" SELECT id, {at}, 'succeeded', 1 FROM job",
    )
    assert (await fleet.tick("n")).fired == 0
    (job,) = await fleet.rows("SELECT fired_to, nominal_at FROM job")
    assert job == {"fired_to": at, "nominal_at": at + DAY_US}
    assert await fleet.fired() == (1, 0, 0)


async def test_what_has_fired_is_not_fired_again_although_its_window_is_gone(
    backend: Backend,
):
    fleet = await fleet_of(backend, JobSettings(overlap=Overlap.ALLOW))
    at = await fleet.pass_to_next()
    assert (await fleet.tick("n")).fired == 1
    # Retention took the window, and somebody thinks that it is still to come.
    await write(fleet, "DELETE FROM job_window")
    await write(fleet, f"UPDATE job SET nominal_at = {at}, due_at = {at}")
    assert (await fleet.tick("n")).fired == 0
    (job,) = await fleet.rows("SELECT fired_to, nominal_at FROM job")
    assert job == {"fired_to": at, "nominal_at": at + DAY_US}


@pytest.mark.parametrize(
    ("overlap", "states"),
    [
        (Overlap.SKIP, ["open", "skipped", "skipped"]),
        (Overlap.QUEUE, ["open", "open", "skipped"]),
        (Overlap.ALLOW, ["open", "open", "open"]),
        (Overlap.CANCEL_OTHER, ["cancelled", "cancelled", "open"]),
    ],
)
async def test_windows_that_overlap_follow_their_rule(
    backend: Backend, overlap: Overlap, states: list[str]
):
    fleet = await fleet_of(backend, JobSettings(overlap=overlap))
    for _ in states:
        await fleet.pass_to_next()
        await fleet.tick("n")
    windows = await fleet.rows("SELECT state FROM job_window ORDER BY at")
    assert [row["state"] for row in windows] == states
    work = await fleet.rows("SELECT state FROM work WHERE kind = 'job' ORDER BY id")
    cancelled = [row["state"] for row in work].count("cancelled")
    assert cancelled == (2 if overlap is Overlap.CANCEL_OTHER else 0)
    (lane,) = await fleet.rows("SELECT concurrency FROM lane WHERE kind = 'job'")
    assert lane["concurrency"] == (None if overlap is Overlap.ALLOW else 1)


@pytest.mark.parametrize(
    ("rule", "fired", "skipped"), [("none", 0, 3), ("latest", 1, 2), ("all", 3, 0)]
)
async def test_three_days_away_are_made_up_for_by_the_rule(
    backend: Backend, rule: str, fired: int, skipped: int
):
    fleet = Fleet(backend)
    said = definition("app:report", every="1d", catch_up=rule)
    await fleet.start("n", release(said))
    await fleet.pass_to_next()
    backend.clock_offset_us += 2 * DAY_US + 2 * ON_TIME_US
    ticked = await fleet.tick("n")
    assert (ticked.fired, ticked.skipped) == (fired, skipped)
    ranges = await fleet.rows(
        "SELECT windows, reason FROM job_window WHERE state = 'skipped'"
    )
    if skipped:
        reason = f"missed: catch-up is {rule}"
        assert ranges == [{"windows": skipped, "reason": reason}]
    (counter,) = await fleet.rows("SELECT skipped FROM job_counter")
    assert counter["skipped"] == skipped


async def test_a_definition_of_a_newer_release_stays_due_and_is_named(
    backend: Backend,
):
    fleet = await fleet_of(backend)
    at = await fleet.pass_to_next()
    (job,) = await fleet.rows("SELECT body FROM job")
    newer = job["body"].replace('"name"', '"format":9,"name"')
    await backend.write(lambda tx: tx.run("UPDATE job SET body = :b", {"b": newer}))
    ticked = await fleet.tick("n")
    (job,) = await fleet.rows("SELECT id, due_at FROM job")
    assert (ticked.fired, list(ticked.unreadable)) == (0, [job["id"]])
    assert job["due_at"] == at


async def test_a_zone_that_this_machine_does_not_know_stops_no_other_job(
    backend: Backend,
):
    fleet = Fleet(backend)
    said = definition("app:there", cron="@daily", zone="Europe/Rome")
    await fleet.start("n", release(said, definition("app:here")))
    (job,) = await fleet.rows("SELECT id, body FROM job WHERE name = 'there'")
    gone = job["body"].replace("Europe/Rome", "Europe/Atlantis")
    await write(fleet, "UPDATE job SET due_at = 1, nominal_at = 1")
    await backend.write(
        lambda tx: tx.run(
            "UPDATE job SET body = :b WHERE id = :id", {"b": gone, "id": job["id"]}
        )
    )
    await fleet.pass_to_next()
    ticked = await fleet.tick("n")
    assert list(ticked.unreadable) == [job["id"]]
    assert ticked.jobs == 2
