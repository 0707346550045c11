"""Each benchmark can still be run: at its smallest size, and without judging what it finds."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from benchmarks import growth, latency
from benchmarks.__main__ import BENCHES, options
from benchmarks.databases import Databases, Dialect, opened
from benchmarks.figures import MISSED, PRINTED, REACHED, Figure, Result, ratio_of
from benchmarks.runs import Run, Size
from tests.databases import PostgresServer

FACTS = {"cores": "2"}


@pytest.fixture
def databases(postgres_server: PostgresServer, tmp_path: Path) -> Databases:
    return Databases(server=postgres_server, folder=tmp_path)


def run_of(databases: Databases, dialect: Dialect, size: Size = "tiny") -> Run:
    return Run(
        databases=databases,
        size=size,
        dialects=(dialect,),
        settings={"TENURE_BORN_CLAIMED": "off"},
    )


@pytest.mark.parametrize("name", BENCHES)
def test_a_benchmark_that_is_named_exists(name: str):
    bench = importlib.import_module(f"benchmarks.{name}")
    assert callable(bench.run)
    assert bench.__doc__


def test_the_command_line_takes_every_name_and_settings():
    chosen = options().parse_args(["all", "--quick", "--setting", "TENURE_SLOTS=8"])
    assert (chosen.which, chosen.quick, chosen.setting) == (
        ["all"],
        True,
        ["TENURE_SLOTS=8"],
    )


async def test_a_message_is_timed_from_submit_to_the_sink(databases: Databases):
    result = await latency.run(run_of(databases, "sqlite"))
    assert {figure.mark for figure in result.figures} == {"T4"}
    assert all(figure.ratio is not None for figure in result.figures)
    assert all(figure.ratio > 0 for figure in result.figures if figure.ratio)


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite"])
async def test_a_claim_is_counted_beside_a_load(databases: Databases, dialect: Dialect):
    scenarios = growth.SCENARIOS[1:2]
    result = await growth.run(run_of(databases, dialect), scenarios)
    pages, seconds = result.figures
    assert pages.ratio is not None
    assert 0.5 < pages.ratio <= 1.25  # counts, not times
    assert seconds.at_most == 1.5


COUNT = "SELECT count(*) FROM kept"


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite"])
async def test_a_database_comes_back_as_it_was_kept(
    databases: Databases, dialect: Dialect
):
    url = await databases.empty(dialect)
    await run_each(url, "CREATE TABLE kept (i int)", "INSERT INTO kept VALUES (1)")
    kept = await databases.keep(url)
    await run_each(url, "DELETE FROM kept")
    assert await databases.restore(kept) == url
    async with opened(url) as backend:
        assert await backend.read(lambda tx: tx.scalar(COUNT)) == 1
    await databases.remove(url)


async def run_each(url: str, *texts: str) -> None:
    async with opened(url) as backend:
        for text in texts:
            await backend.write(lambda tx, text=text: tx.run(text))


@pytest.mark.parametrize(
    ("ratio", "at_least", "at_most", "verdict"),
    [
        (0.6, 0.5, None, REACHED),
        (0.4, 0.5, None, MISSED),
        (1.2, None, 1.25, REACHED),
        (1.3, None, 1.25, MISSED),
        (1.3, None, None, PRINTED),
        (None, 0.5, None, PRINTED),
    ],
)
def test_a_ratio_is_judged_by_its_bound(
    ratio: float | None, at_least: float | None, at_most: float | None, verdict: str
):
    figure = Figure(
        mark="T0",
        what="w",
        measured="m",
        ratio=ratio,
        at_least=at_least,
        at_most=at_most,
    )
    assert figure.verdict == verdict


def test_ratios_are_taken_round_by_round():
    assert ratio_of([10, 40, 90], [10, 20, 30]) == 2


def test_a_result_is_a_table_and_json():
    result = Result(notes=["a note"], tables={"a profile": "| f |"})
    result.figures.append(
        Figure(mark="T1", what="accept", measured="0.60", ratio=0.6, at_least=0.5)
    )
    assert "| T1 | accept | ≥ 0.5 | 0.60 | reached |" in result.as_markdown(FACTS)
    told = json.loads(result.as_json(FACTS))
    assert told["facts"] == FACTS
    assert told["figures"][0]["verdict"] == REACHED
