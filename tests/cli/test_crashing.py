import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tenure.cli import crashing
from tenure.cli.screen import Screen
from tenure.errors import DatabaseUnavailable
from tenure.testing.lab.model import Database, Fault, Figures, Scenario, broken, planned
from tenure.testing.lab.running import Seen


def figures() -> Figures:
    return Figures(
        plan=planned(
            Scenario.KILL,
            Database.POSTGRESQL,
            messages=10,
            endpoints=3,
            processes=3,
            seed=7,
        ),
        factor=1.0,
        seconds=4.2,
        accepted=10,
        asked_again=2,
        stored=10,
        requests=31,
        lost=0,
        duplicated=1,
        quarantined=0,
        unsettled=0,
        attempts=32,
        attempts_lost=2,
        unclean=0,
        faults=(
            Fault(
                what="kill -9",
                at=1,
                in_flight=2,
                others_seconds=0.25,
                restarted_seconds=None,
            ),
        ),
        doubled=("msg_a /e0 attempts [1, 2]",),
        findings=(),
    )


def shown(told: Figures) -> str:
    out = io.StringIO()
    screen = Screen(as_json=False, out=out)
    crashing.show(screen, told, broken(told))
    return out.getvalue()


def test_people_see_every_figure_and_the_verdict():
    text = shown(figures())
    assert "kill: postgresql, 3 processes, 10 messages to 3 endpoints, 4.2 s" in text
    assert "accepted     10 (2 submits were repeated)" in text
    assert "attempts     32, 2 of them lost" in text
    assert "in flight    2 (2)" in text
    assert "goes on      after 0.25 s, at most 0.25 s" in text
    assert "the promise was kept" in text
    assert "msg_a" not in text


def test_a_broken_promise_is_shown_with_what_came_twice():
    text = shown(replace(figures(), duplicated=3))
    assert "BROKEN 3 requests came twice, 2 may" in text
    assert "twice: msg_a /e0 attempts [1, 2]" in text
    assert "kept" not in text


def test_programs_get_every_figure_and_the_verdict():
    told = json.loads(json.dumps(crashing.as_json(figures(), [])))
    assert told["kept"] is True
    assert told["in_flight"] == 2
    assert told["plan"]["scenario"] == "kill"
    assert told["faults"][0]["others_seconds"] == 0.25


@pytest.mark.parametrize("keep", [True, False])
def test_the_folder_stays_when_it_is_asked_for_or_when_something_failed(
    keep: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plan, err = figures().plan, io.StringIO()
    screen = Screen(as_json=False, err=err)

    async def runs(*_args: object, told: object, **_more: object) -> Figures:
        assert callable(told)
        told(Seen(accepted=1, arrived=1, faults=0))
        return figures()

    monkeypatch.setattr(crashing, "run", runs)
    assert crashing.in_folder(plan, None, screen, keep=keep) == figures()
    assert len(list(tmp_path.iterdir())) == keep
    assert (str(tmp_path) in err.getvalue()) is keep

    async def fails(*_args: object, **_more: object) -> Figures:
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(crashing, "run", fails)
    with pytest.raises(DatabaseUnavailable):
        crashing.in_folder(plan, None, screen, keep=keep)
    assert len(list(tmp_path.iterdir())) == keep + 1
    assert str(tmp_path) in err.getvalue()
