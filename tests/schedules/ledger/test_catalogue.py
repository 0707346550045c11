"""The catalogue on real databases: identities, keys, and what is in force."""

from __future__ import annotations

from itertools import permutations

import pytest

from tenure.errors import ConfigInvalid
from tenure.schedules.ledger import controls, outcomes
from tenure.schedules.model import JobSettings, Overlap
from tenure.store.backend import Backend
from tenure.store.tx import Tx
from tests.naming.test_keys import TABLE
from tests.schedules.fleet import TENANT, Fleet, definition, release

IMPORTED = (
    "INSERT INTO job (id, tenant, package, name, code, lane, edited_at, created_at)"
    " VALUES ('job_old', 'default', NULL, 't', 'job_old', 1, 0, 0)"
)


def import_row(tx: Tx) -> None:
    tx.run(IMPORTED)
    tx.run("INSERT INTO job_counter (job) VALUES ('job_old')")
    tx.run(
        "INSERT INTO job_window (job, at, state, created_at)"
        " VALUES ('job_old', 1, 'succeeded', 1)"
    )


@pytest.mark.parametrize("name", TABLE)
async def test_the_keys_on_a_database_are_those_of_the_table(
    backend: Backend, name: str
):
    steps, keys = TABLE[name]
    fleet = Fleet(backend)
    for verb, *what in steps:
        match verb:
            case "start" | "beside":
                said = release(*(definition(f"{package}:t") for package in what))
                await fleet.start(verb, said)
            case "uninstall":
                await backend.write(lambda tx: controls.uninstall(tx, TENANT, what[0]))  # noqa: B023 - awaited here
            case _:
                await backend.write(import_row)
    assert await fleet.keys() == keys
    if name in {"S11", "S12"}:
        await fleet.pass_to_next()
        assert (await fleet.tick("start")).fired == len(keys)
        (old,) = await fleet.rows("SELECT at FROM job_window WHERE job = 'job_old'")
        assert old == {"at": 1}


async def test_each_job_runs_under_its_own_id_whatever_loads_first(backend: Backend):
    seen = set[tuple[tuple[str, str], ...]]()
    fleet = Fleet(backend)
    for order in permutations("abc"):
        said = release(*(definition(f"{package}:t") for package in order))
        found = await fleet.start("n", said)
        seen.add(tuple(sorted((str(c), i) for c, i in found.ids.items())))
        assert await fleet.keys() == {"a": "t", "b": "b:t", "c": "c:t"}
    assert len(seen) == 1


async def test_a_renamed_and_moved_job_keeps_its_windows_its_counters_and_its_runs(
    backend: Backend,
):
    fleet = Fleet(backend)
    old = release(definition("app:report"))
    (first,) = (await fleet.start("n", old)).ids.values()
    await fleet.pass_to_next()
    assert (await fleet.tick("n")).fired == 1
    new = release(definition("billing:statement", formerly=("app:report",)))
    found = await fleet.start("n", new)
    assert list(found.ids.values()) == [first]
    assert [(was, str(now)) for was, now in found.renamed] == [
        ("app:report", "billing:statement")
    ]
    (row,) = await fleet.rows("SELECT id, package, name, key FROM job")
    assert row == {
        "id": first,
        "package": "billing",
        "name": "statement",
        "key": "statement",
    }
    assert await fleet.fired() == (1, 1, 1)
    # The old release again: its spelling still leads there.
    assert list((await fleet.start("n", old)).ids.values()) == [first]
    (row,) = await fleet.rows("SELECT package, name FROM job")
    assert row == {"package": "app", "name": "report"}
    assert len(await fleet.rows("SELECT * FROM job_spelling")) == 2


async def test_an_old_node_that_restarts_in_a_rollout_changes_nothing(backend: Backend):
    fleet = Fleet(backend)
    old = release(definition("app:report", every="1d"))
    new = release(definition("app:report", every="1h"))
    await fleet.start("old", old)
    await fleet.start("new", new)
    (before,) = await fleet.rows("SELECT definition, body, nominal_at FROM job")
    await fleet.start("old", old)
    assert await fleet.rows("SELECT definition, body, nominal_at FROM job") == [before]
    await fleet.stop("new")  # rolled back: the old one is in force again
    await fleet.enrol("old")
    (after,) = await fleet.rows("SELECT body FROM job")
    assert after["body"] != before["body"]


async def test_case_59_an_edit_between_two_windows_fires_what_was_due_once(
    backend: Backend,
):
    fleet = Fleet(backend)
    await fleet.start("n", release(definition("app:report", every="1d")))
    at = await fleet.pass_to_next()
    # Due, not fired yet, and the new release says otherwise.
    await fleet.start("n", release(definition("app:report", every="1h")))
    windows = await fleet.rows("SELECT at, state FROM job_window")
    assert windows == [{"at": at, "state": "open"}]
    assert (await fleet.tick("n")).fired == 0
    (row,) = await fleet.rows("SELECT nominal_at, fired_to FROM job")
    assert row["fired_to"] == at
    assert row["nominal_at"] == at + 3_600_000_000


async def test_case_58_a_deploy_more_often_than_the_interval_still_fires(
    backend: Backend,
):
    fleet = Fleet(backend)
    settings = JobSettings(overlap=Overlap.ALLOW)
    said = release(definition("app:weekly", every="7d", settings=settings))
    await fleet.start("n", said)
    fired = 0
    for _ in range(30):
        backend.clock_offset_us += 86_400_000_000
        await fleet.start("n", said)
        fired += (await fleet.tick("n")).fired
    assert fired in {4, 5}


async def test_case_60_a_node_that_does_not_know_a_job_leaves_it_alone(
    backend: Backend,
):
    fleet = Fleet(backend)
    await fleet.start("new", release(definition("app:new")))
    await fleet.start("old", release(definition("app:old")))
    await fleet.pass_to_next()
    assert (await fleet.tick("old")).fired == 1
    (row,) = await fleet.rows("SELECT due_at, fired_to FROM job WHERE name = 'new'")
    assert row["due_at"] is not None
    assert row["fired_to"] is None
    assert (await fleet.tick("new")).fired == 1


async def test_a_job_whose_code_is_gone_is_kept_and_not_fired(backend: Backend):
    fleet = Fleet(backend)
    await fleet.start("n", release(definition("app:a"), definition("app:b")))
    await fleet.start("n", release(definition("app:a")))
    await fleet.pass_to_next()
    assert (await fleet.tick("n")).fired == 1
    assert len(await fleet.rows("SELECT id FROM job")) == 2


async def test_an_uninstalled_package_fires_nothing_and_comes_back_with_its_history(
    backend: Backend,
):
    fleet = Fleet(backend)
    said = release(definition("a:t"))
    (first,) = (await fleet.start("n", said)).ids.values()
    await backend.write(lambda tx: controls.uninstall(tx, TENANT, "a"))
    backend.clock_offset_us += 3 * 86_400_000_000
    assert (await fleet.tick("n")).fired == 0
    assert list((await fleet.start("n", said)).ids.values()) == [first]
    assert (await fleet.tick("n")).fired == 0  # what passed meanwhile is not made up
    await fleet.pass_to_next()
    assert (await fleet.tick("n")).fired == 1


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ((definition("a:x", formerly=("a:old",)),), "different items with a history"),
        (
            (
                definition("a:y", formerly=("a:x",)),
                definition("b:z", formerly=("a:x",)),
            ),
            "one item under two names",
        ),
    ],
)
async def test_histories_that_would_be_led_together_stop_the_start(
    backend: Backend, names: tuple[object, ...], why: str
):
    fleet = Fleet(backend)
    await fleet.start("n", release(definition("a:x"), definition("a:old")))
    with pytest.raises(ConfigInvalid, match=why):
        await fleet.start("m", release(*names))  # pyright: ignore[reportArgumentType]


async def test_case_61_of_two_windows_at_once_the_second_is_skipped_with_the_reason(
    backend: Backend,
):
    fleet = Fleet(backend)
    await fleet.start("n", release(definition("app:slow", every="1h")))
    await fleet.pass_to_next()
    assert (await fleet.tick("n")).fired == 1
    await fleet.pass_to_next()
    ticked = await fleet.tick("n")
    assert (ticked.fired, ticked.skipped) == (0, 1)
    (run,) = await fleet.rows("SELECT id FROM job_run")
    skipped = await fleet.rows(
        "SELECT reason FROM job_window WHERE state = 'skipped' AND run IS NULL"
    )
    assert skipped == [{"reason": f"overlap: {run['id']} is open"}]


async def test_case_64_a_run_that_was_lost_holds_no_window_up(backend: Backend):
    """The overlap is what work says, not what a counter remembers."""
    fleet = Fleet(backend)
    await fleet.start("n", release(definition("app:slow", every="1h")))
    await fleet.pass_to_next()
    await fleet.tick("n")
    await backend.write(
        lambda tx: tx.run(
            "UPDATE work SET state = 'cancelled', phase = NULL, due_at = NULL,"
            " settled_at = 1, reason = 'lost' WHERE kind = 'job'"
        )
    )
    await fleet.pass_to_next()
    assert (await fleet.tick("n")).fired == 1
    assert await backend.write(outcomes.mend) == (1, outcomes.START)
    states = await fleet.rows("SELECT state FROM job_run ORDER BY id")
    assert [row["state"] for row in states] == ["cancelled", "open"]
    windows = await fleet.rows("SELECT state FROM job_window ORDER BY at")
    assert [row["state"] for row in windows] == ["cancelled", "open"]


async def test_case_57_what_one_node_pauses_no_other_fires(backend: Backend):
    fleet = Fleet(backend)
    said = release(definition("app:report"))
    (job,) = (await fleet.start("a", said)).ids.values()
    await fleet.start("b", said)
    await fleet.pass_to_next()
    await backend.write(lambda tx: controls.pause(tx, job, actor="ops", note=None))
    assert (await fleet.tick("b")).fired == 0
    await backend.write(lambda tx: controls.resume(tx, job))
    assert (await fleet.tick("b")).fired == 1
    assert (await fleet.tick("a")).fired == 0
