from pathlib import Path

import pytest

from tests.cli.rig import tenure


def test_a_scenario_or_database_that_is_not_there_is_named_with_those_that_are():
    scenario = tenure("lab", "--scenario", "meteor")
    assert scenario.code == 2
    assert "restart-database" in scenario.err
    database = tenure("lab", "--database", "oracle")
    assert database.code == 2
    assert "sqlite or postgresql" in database.err


def test_what_sqlite_has_no_server_for_is_refused():
    done = tenure("lab", "--database", "sqlite", "--scenario", "failover")
    assert done.code == 2
    assert "needs a database server" in done.err


def test_without_postgresql_it_says_what_to_name(tmp_path: Path):
    done = tenure("lab", "--database", "postgresql", "--postgres-bin", str(tmp_path))
    assert done.code == 2
    assert str(tmp_path) in done.err
    assert "initdb" in done.err


def test_faults_come_by_number_or_by_time():
    done = tenure("lab", "--scenario", "kill", "--faults", "2", "--every", "1")
    assert done.code == 2
    assert "give one" in done.err


@pytest.mark.parametrize("option", ["--database-url", "--config", "--server", "--key"])
def test_it_cannot_be_pointed_at_a_database_of_somebodys(option: str):
    assert option not in tenure("lab", "--help").out
    assert tenure("lab", option, "x").code == 2
