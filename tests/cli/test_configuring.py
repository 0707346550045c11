import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.rig import Served, tenure, tenure_json


def test_every_setting_is_shown_and_secrets_are_masked(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("TENURE_BOOTSTRAP_KEY", "a very secret bootstrap key")
    monkeypatch.setenv("TENURE_PORT", "9999")
    shown = tenure_json("config", "show")
    assert shown["port"] == "9999"
    assert "very secret" not in tenure("config", "show").out


def test_a_setting_that_is_wrong_is_named_with_its_origin(tmp_path: Path):
    file = tmp_path / "other.toml"
    file.write_text('port = "many"\nprot = 1\n', encoding="utf-8")
    done = tenure("config", "check", "--config", str(file))
    assert done.code == 2
    assert "prot in" in done.err
    assert "did you mean port?" in done.err
    assert "Traceback" not in done.err


def test_a_database_is_opened_but_never_made(served: Served, tmp_path: Path):
    assert "opens" in tenure("config", "check", *served.database).out
    empty = tmp_path / "empty.db"
    empty.touch()
    pending = tenure("config", "check", "--database-url", f"sqlite:///{empty}")
    assert "migrations pending" in pending.out
    with closing(sqlite3.connect(empty)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    file = tmp_path / "none.db"
    fresh = tenure("config", "check", "--database-url", f"sqlite:///{file}")
    assert fresh.code == 0
    assert "does not exist yet" in fresh.out
    assert not file.exists()


def test_a_key_ring_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TENURE_SECRET_KEYS", "abc")
    done = tenure("config", "check", "--json")
    assert done.code == 2
    assert "tenure key new" in done.err


def test_postgresql_needs_a_key_ring():
    done = tenure("config", "check", "--database-url", "postgresql://nobody@x/y")
    assert done.code == 2
    assert "TENURE_SECRET_KEYS is not set" in done.err


def test_a_variable_that_is_no_setting_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TENURE_PROT", "9999")
    monkeypatch.setenv("TENURE_SERVER", "http://127.0.0.1:1")
    done = tenure("config", "check")
    assert done.code == 0
    assert "TENURE_PROT is set and is no setting" in done.err
    assert "TENURE_SERVER" not in done.err


def test_a_database_that_cannot_be_opened_says_where_it_was_named(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'no' / 'such.db'}"
    done = tenure("serve", "--database-url", url)
    assert done.code == 69
    assert "such.db" in done.err
    assert "--database-url" in done.err
