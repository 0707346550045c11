import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.rig import Served, running, tenure, tenure_json


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("doctor") / "tenure.db"
    tenure_json("migrate", "apply", "--database-url", f"sqlite:///{file}")
    return file


def write(database: Path, statement: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(statement)


BROKEN = "INSERT INTO unmatched (message, reasons) VALUES ('msg_gone', '{}')"
MENDED = "DELETE FROM unmatched"


def test_a_sound_database_ends_with_zero(database: Path):
    done = tenure("doctor", "--database-url", f"sqlite:///{database}")
    assert done.code == 0, done.err
    assert "every invariant holds" in done.out


def test_a_broken_invariant_says_where_and_what_to_do_and_ends_with_70(
    database: Path,
):
    write(database, BROKEN)
    try:
        of = ("--database-url", f"sqlite:///{database}")
        done = tenure("doctor", *of)
        assert done.code == 70
        assert "broken  unmatched.message  msg_gone" in done.out
        assert "must hold: reasons belong to a message" in done.out
        assert "do: " in done.out
        assert "invariant_violated" in done.err
        again = tenure("doctor", "--json", "--heal", *of)
        assert again.code == 70
        (found,) = again.json()["findings"]
        assert (found["where"], found["healed"]) == (["msg_gone"], False)
        assert tenure("doctor", "--quick", *of).code == 0
    finally:
        write(database, MENDED)


def test_a_watch_prints_what_comes_and_what_goes(database: Path):
    watching = ("doctor", "--watch", "0.2", "--json")
    of = ("--database-url", f"sqlite:///{database}")
    with running(database.parent, *watching, *of) as command:
        write(database, BROKEN)
        command.wait_for(lambda: len(command.lines) >= 1, "what came")
        write(database, MENDED)
        command.wait_for(lambda: len(command.lines) >= 2, "what went")
        changes = [json.loads(line) for line in command.lines]
    assert [(each["change"], each["code"]) for each in changes[:2]] == [
        ("came", "unmatched.message"),
        ("went", "unmatched.message"),
    ]


def test_with_a_key_the_server_is_asked_and_heals_nothing(served: Served):
    found = tenure_json("doctor", *served.access)
    assert found["clean"] is True
    assert found["examined"] == {}
    assert tenure("doctor", "--heal", *served.access).code == 2


def test_beside_a_server_the_whole_database_is_looked_at(served: Served):
    done = tenure("doctor", "--json", *served.database)
    assert done.code == 0, done.out
    assert done.json()["clean"] is True
