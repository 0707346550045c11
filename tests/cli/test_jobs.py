"""`tenure jobs`, `runs` and `packages` against a server that has jobs of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.rig import Served, run, serving, tenure, tenure_json, until

CODE = '''
import logging

import tenure

billing = tenure.package("billing")


@billing.job(cron="0 6 * * *", zone="Europe/Rome", catch_up="all")
async def report(account: str = "all") -> None:
    """Send each account its report."""
    logging.getLogger("billing").warning("reporting %s", account)


@tenure.job(attempts=1)
def fails() -> None:
    raise RuntimeError("no disk")
'''


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "myjobs.py").write_text(CODE, encoding="utf-8")
    level = ("--log-level", "warning")  # what it lets through, runs keep
    with serving(folder, *level, TENURE_PACKAGES="myjobs") as served:
        yield served


def over(served: Served, run_id: str) -> Any:
    def ended() -> Any:
        found = tenure_json("runs", "show", run_id, *served.access)
        return found if found["state"] != "open" else None

    return until(ended, "the run's end")


def test_jobs_are_listed_with_their_keys_and_next_instants(planned: Served):
    found = tenure_json("jobs", "list", *planned.access)
    by_name = {each["coordinate"]: each for each in found}
    assert by_name["billing:report"]["key"] == "report"
    assert by_name["billing:report"]["state"] == "active"
    assert by_name["app:fails"]["state"] == "on demand"
    assert by_name["builtin:send"]["state"] == "on demand"
    shown = tenure("jobs", "show", "report", *planned.access)
    assert shown.code == 0
    assert "billing:report" in shown.out
    assert "0 6 * * * Europe/Rome" in shown.out
    assert "Send each account its report." in shown.out


def test_next_instants_are_shown_with_their_local_time(planned: Served):
    found = tenure_json("jobs", "next", "report", "--count", "400", *planned.access)
    assert len(found) == 400
    assert {each["local"][11:19] for each in found} == {"06:00:00"}
    assert len({each["at"][11:] for each in found}) == 2  # summer and winter


def test_a_manual_run_says_who_and_why_and_shows_what_it_logged(planned: Served):
    args = ("--args", '{"account": "acme"}', "--note", "asked by acme")
    made = tenure_json("jobs", "run", "report", *args, *planned.access)
    found = over(planned, made["id"])
    assert (found["state"], found["origin"]) == ("succeeded", "manual")
    assert (found["actor"], found["note"]) == ("bootstrap key", "asked by acme")
    shown = tenure("runs", "show", made["id"], *planned.access)
    assert "WARNING billing: reporting acme" in shown.out
    assert "attempt 1 on node" in shown.out
    assert made["id"] in tenure("explain", made["id"], *planned.access).out


def test_a_failed_run_shows_its_error_and_is_listed_by_its_state(planned: Served):
    made = tenure_json("jobs", "submit", "fails", *planned.access)
    assert over(planned, made["id"])["state"] == "failed"
    shown = tenure("runs", "show", made["id"], *planned.access)
    assert "RuntimeError: no disk" in shown.out
    assert "Traceback" in shown.out
    listed = tenure_json("runs", "list", "--state", "failed", *planned.access)
    assert made["id"] in [each["id"] for each in listed]
    again = tenure_json("runs", "replay", made["id"], *planned.access)
    assert again["id"] == made["id"]
    over(planned, made["id"])


def test_a_job_is_paused_with_a_note_and_resumed(planned: Served):
    done = tenure("jobs", "pause", "report", "--note", "audit", *planned.access)
    assert done.code == 0
    assert "by bootstrap key: audit" in done.out
    assert tenure_json("jobs", "resume", "report", *planned.access)["state"] == "active"


def test_a_job_is_made_edited_and_deleted_at_run_time(planned: Served):
    schedule = ("--every", "1h", "--args", '{"account": "b"}')
    made = tenure_json(
        "jobs", "create", "hourly", "--calls", "report", *schedule, *planned.access
    )
    assert made["coordinate"] == "env:hourly"
    edit = ("jobs", "edit", "hourly", "--cron", "30 * * * *")
    assert tenure(*edit, *planned.access).code == 0
    (first,) = tenure_json("jobs", "next", "hourly", "--count", "1", *planned.access)
    assert first["at"][14:16] == "30"
    assert tenure("jobs", "delete", "hourly", *planned.access).code == 0
    assert tenure("jobs", "show", "hourly", *planned.access).code == 3


def test_an_operators_change_lies_over_the_code_and_is_taken_back(planned: Served):
    edit = ("jobs", "edit", "report", "--cron", "0 7 * * *")
    changed = tenure_json(*edit, *planned.access)
    assert changed["overridden"]
    assert changed["schedule"]["calendar"]["pattern"] == "0 7 * * *"
    back = tenure_json("jobs", "edit", "report", "--reset", *planned.access)
    assert not back["overridden"]
    assert back["schedule"]["calendar"]["pattern"] == "0 6 * * *"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--cron", "61 * * * *"), "'61' is no minute"),
        (("--at", "2020-01-01T00:00Z"), "which has passed"),
        (("--every", "0s"), "more than nothing"),
        (("--cron", "@daily", "--zone", "Europe/Atlantis"), "not in the tz database"),
        (("--args", '{"account": 7}'), "Expected `str`, got `int`"),
        (("--args", "[7]"), "give a JSON object"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    planned: Served, options: tuple[str, ...], why: str
):
    done = tenure("jobs", "create", "x", "--calls", "report", *options, *planned.access)
    assert done.code == 1
    assert why in done.err.replace("\n", " ")


def test_a_pattern_that_never_comes_is_a_state(planned: Served):
    cron = ("--cron", "0 0 30 2 *")
    made = tenure_json(
        "jobs", "create", "never", "--calls", "report", *cron, *planned.access
    )
    assert made["state"] == "never"
    assert "never: no instant" in tenure("jobs", "next", "never", *planned.access).err


def test_a_backfill_makes_marked_windows(planned: Served):
    span = ("--since", "2026-01-01T00:00:00Z", "--until", "2026-01-03T23:59:00Z")
    made = tenure_json("jobs", "backfill", "report", *span, *planned.access)
    assert len(made) == 3
    for each in made:
        over(planned, each)
    windows = tenure_json("jobs", "windows", "report", *planned.access)
    filled = [each for each in windows if each["runId"] in made]
    assert {each["state"] for each in filled} == {"succeeded"}
    assert all(each["mark"].startswith("backfill_") for each in filled)
    assert "(backfill)" in tenure("jobs", "windows", "report", *planned.access).out


def test_a_plan_says_what_a_deploy_changes_before_it_happens(
    planned: Served, tmp_path: Path
):
    changed = CODE.replace("def report", "def statement").replace(
        "zone=", 'formerly=["report"], zone='
    )
    (tmp_path / "nextjobs.py").write_text(
        changed.replace("def fails", "def other"), encoding="utf-8"
    )
    done = run(
        tmp_path,
        "jobs",
        "plan",
        "--json",
        *planned.database,
        TENURE_PACKAGES="nextjobs",
    )
    assert done.code == 0, done.err
    found = done.json()
    assert found["renamed"] == [{"from": "billing:report", "to": "billing:statement"}]
    assert found["added"] == ["app:other"]
    assert found["orphaned"] == ["app:fails"]


def test_a_package_that_is_uninstalled_fires_no_more(tmp_path: Path):
    (tmp_path / "gone.py").write_text(CODE, encoding="utf-8")
    with serving(tmp_path, TENURE_PACKAGES="gone") as served:
        done = tenure_json("packages", "uninstall", "billing", *served.access)
        assert done == {"jobs": 1}
        shown = tenure_json("jobs", "show", "billing:report", *served.access)
        assert (shown["state"], shown["key"]) == ("uninstalled", None)
        listed = tenure("packages", "list", *served.access)
        assert "billing" in listed.out


def test_a_module_that_cannot_be_imported_stops_the_start(tmp_path: Path):
    done = run(tmp_path, "serve", "--port", "0", TENURE_PACKAGES="nowhere")
    assert done.code != 0
    assert "module 'nowhere' cannot be imported" in done.err.replace("\n", " ")
