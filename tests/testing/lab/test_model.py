from dataclasses import replace
from typing import Any

import pytest

from tenure.errors import ConfigInvalid
from tenure.limits import LAB_KILL_SECONDS, LAB_SQLITE_KILLS
from tenure.testing.lab.model import (
    SCENARIOS,
    Database,
    Fault,
    Figures,
    Plan,
    Scenario,
    broken,
    planned,
)

SIZE: Any = {"messages": 100, "endpoints": 3, "processes": 3, "seed": 7}


def kept(scenario: Scenario = Scenario.KILL) -> Figures:
    fault = Fault(
        what="kill -9", at=1, in_flight=4, others_seconds=0.1, restarted_seconds=1.5
    )
    return Figures(
        plan=planned(scenario, Database.POSTGRESQL, **SIZE),
        factor=1.0,
        seconds=12.0,
        accepted=100,
        asked_again=3,
        stored=100,
        requests=300,
        lost=0,
        duplicated=0,
        quarantined=0,
        unsettled=0,
        attempts=300,
        attempts_lost=0,
        unclean=0,
        faults=(fault, replace(fault, in_flight=2)),
        doubled=(),
        findings=(),
    )


@pytest.mark.parametrize("scenario", list(Scenario))
def test_a_run_without_loss_keeps_the_promise(scenario: Scenario):
    assert broken(kept(scenario)) == []


def test_as_many_requests_may_come_twice_as_were_in_flight():
    figures = kept()
    assert figures.in_flight == 6
    assert broken(replace(figures, requests=306, duplicated=6)) == []
    assert broken(replace(figures, requests=307, duplicated=7)) == [
        "7 requests came twice, 6 may"
    ]


def test_healthy_restarts_are_exact():
    figures = kept(Scenario.ROLLING)
    assert broken(replace(figures, requests=301, duplicated=1, attempts=301)) == [
        "1 requests came twice, 0 may"
    ]
    assert broken(replace(figures, attempts=302)) == ["302 attempts made 300 requests"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"accepted": 99}, "99 of 100 messages were accepted"),
        ({"stored": 101}, "101 messages are stored, 100 were accepted"),
        ({"lost": 1}, "1 deliveries were lost"),
        ({"quarantined": 1}, "1 deliveries were quarantined"),
        ({"unsettled": 2}, "2 deliveries have not succeeded"),
        ({"unclean": 1}, "1 processes did not end cleanly"),
        ({"faults": ()}, "everything had arrived before anything happened"),
        ({"findings": ("holder: x",)}, "the doctor found: holder: x"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_figure_that_breaks_the_promise_is_said(
    change: dict[str, Any], words: str
):
    told = broken(replace(kept(), **change))
    assert any(line.startswith(words) for line in told), told


def test_sqlite_has_one_process_that_is_killed_twenty_times():
    plan = planned(Scenario.KILL, Database.SQLITE, **SIZE)
    assert (plan.processes, plan.faults, plan.every_seconds) == (
        1,
        LAB_SQLITE_KILLS,
        None,
    )


def test_postgresql_loses_a_process_every_two_seconds():
    plan = planned(Scenario.KILL, Database.POSTGRESQL, **SIZE)
    assert (plan.processes, plan.faults, plan.every_seconds) == (
        3,
        None,
        LAB_KILL_SECONDS,
    )


@pytest.mark.parametrize("database", list(Database))
def test_every_scenario_of_a_database_can_be_planned(database: Database):
    for scenario in SCENARIOS[database]:
        plan = planned(scenario, database, **SIZE)
        assert isinstance(plan, Plan)
        assert (plan.faults is None) != (plan.every_seconds is None)


def test_sqlite_has_no_server_to_fail_over():
    with pytest.raises(ConfigInvalid, match="--database postgresql"):
        planned(Scenario.FAILOVER, Database.SQLITE, **SIZE)


def test_faults_are_spread_over_requests_or_over_time():
    with pytest.raises(ConfigInvalid, match="give one"):
        planned(Scenario.KILL, Database.POSTGRESQL, **SIZE, faults=3, every_seconds=1.0)
