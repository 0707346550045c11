"""`tenure lab` in a short fixed form: every scenario, as an operator would run it.

Real processes, real servers, a real standby; the full size is `just lab`.
"""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tenure.testing.lab.model import SCENARIOS, Database, Scenario
from tests.cli.rig import running

pytestmark = [pytest.mark.crash, pytest.mark.timeout(400)]

SIZE: dict[tuple[Database, Scenario], tuple[str, ...]] = {
    (Database.SQLITE, Scenario.KILL): ("--messages", "200", "--faults", "2"),
    (Database.SQLITE, Scenario.ROLLING): ("--messages", "200", "--faults", "1"),
    (Database.POSTGRESQL, Scenario.KILL): ("--messages", "300", "--faults", "2"),
    (Database.POSTGRESQL, Scenario.RESTART_DATABASE): (
        *("--messages", "300", "--faults", "2"),
    ),
    (Database.POSTGRESQL, Scenario.BACKENDS): ("--messages", "400", "--every", "0.2"),
    (Database.POSTGRESQL, Scenario.FAILOVER): ("--messages", "300", "--faults", "1"),
    (Database.POSTGRESQL, Scenario.ROLLING): ("--messages", "300", "--faults", "2"),
}


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files that PostgreSQL's own user can reach."""
    with tempfile.TemporaryDirectory(prefix="tenure-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_every_scenario_has_a_short_form():
    assert set(SIZE) == {
        (db, each) for db, every in SCENARIOS.items() for each in every
    }


QUICK = {
    (Database.SQLITE, Scenario.KILL),
    (Database.POSTGRESQL, Scenario.KILL),
    (Database.POSTGRESQL, Scenario.FAILOVER),
}


@pytest.mark.parametrize(
    ("database", "scenario"),
    [
        pytest.param(
            *each,
            id=f"{each[1]}-{each[0]}",
            marks=() if each in QUICK else pytest.mark.long,
        )
        for each in SIZE
    ],
)
def test_the_promise_is_kept(
    database: Database, scenario: Scenario, tmp_path: Path, temporary: Path
):
    size = SIZE[database, scenario]
    with running(
        tmp_path,
        *("lab", "--scenario", scenario, "--database", database, "--json"),
        *("--processes", "2", "--seed", "20", *size),
        env={"TMPDIR": str(temporary)},
    ) as lab:
        code = lab.process.wait(300)
    said = "\n".join(lab.errors)
    assert code == 0, said + "\n".join(lab.lines)
    (told,) = json.loads(lab.lines[-1])
    print(shown(told))
    assert told["kept"]
    assert told["lost"] == told["quarantined"] == told["unsettled"] == 0
    assert told["accepted"] == told["stored"] == told["plan"]["messages"]
    assert told["requests"] - told["duplicated"] == 3 * told["accepted"]
    assert len(told["faults"]) >= (told["plan"]["faults"] or 1)
    assert told["findings"] == []
    if scenario is Scenario.ROLLING:
        assert told["requests"] == told["attempts"] == 3 * told["accepted"]
    assert left_in(tmp_path) == left_in(temporary) == []


@pytest.mark.long
def test_a_run_that_would_be_over_before_its_first_fault_has_it_half_way(
    tmp_path: Path, temporary: Path
):
    with running(
        tmp_path,
        *("lab", "--scenario", "kill", "--json", "--seed", "3"),
        *("--messages", "20", "--every", "600"),
        env={"TMPDIR": str(temporary)},
    ) as lab:
        code = lab.process.wait(300)
    assert code == 0, "\n".join([*lab.errors, *lab.lines])
    (told,) = json.loads(lab.lines[-1])
    assert len(told["faults"]) == 1
    assert told["faults"][0]["others_seconds"] is not None, "nothing came after it"


def shown(told: dict[str, Any]) -> str:
    faults = told["faults"]
    went_on = [
        f"{fault['others_seconds']:.2f}" for fault in faults if fault["others_seconds"]
    ]
    return (
        f"{told['plan']['scenario']} on {told['plan']['database']}: accepted"
        f" {told['accepted']}, lost {told['lost']}, duplicated {told['duplicated']},"
        f" quarantined {told['quarantined']}, in flight"
        f" {[fault['in_flight'] for fault in faults]}, going on after"
        f" {', '.join(went_on)} s"
    )


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def test_a_stop_ends_every_process_that_it_started(tmp_path: Path, temporary: Path):
    with running(
        tmp_path,
        *("lab", "--scenario", "rolling", "--database", "sqlite", "--seed", "1"),
        *("--messages", "100000"),
        env={"TMPDIR": str(temporary)},
    ) as lab:
        children = started(lab.process.pid)
        lab.signal(signal.SIGTERM)
        assert lab.process.wait(60) == 130
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
    assert left_in(temporary) == []


@pytest.mark.long
def test_a_lab_that_is_killed_takes_its_processes_with_it(
    tmp_path: Path, temporary: Path
):
    with running(
        tmp_path,
        *("lab", "--scenario", "rolling", "--database", "postgresql", "--seed", "1"),
        *("--messages", "100000", "--processes", "1"),
        env={"TMPDIR": str(temporary)},
    ) as lab:
        children = started(lab.process.pid)
        lab.process.kill()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert alive == []


def started(pid: int) -> list[psutil.Process]:
    """Wait until a lab has its node; return every process below it."""
    lab = psutil.Process(pid)
    for _ in range(1200):
        children = lab.children(recursive=True)
        serving = [
            each for each in children if each.is_running() and "serve" in each.cmdline()
        ]
        if serving:
            return children
        psutil.wait_procs(children, timeout=0.1)
    raise AssertionError("it never had its node")
