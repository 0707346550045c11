import os
import subprocess
from pathlib import Path

import pytest

from tenure import __version__
from tests.cli.rig import (
    COMMAND,
    PATIENCE,
    environment,
    run,
    running,
    tenure,
    tenure_json,
)

VERBS = (
    *("demo", "explain", "lab", "send", "serve", "verify", "version"),
    *("config check", "config show", "key new"),
    *("endpoints create", "endpoints delete", "endpoints disable", "endpoints enable"),
    *("endpoints list", "endpoints rotate", "endpoints secret", "endpoints show"),
    *("keys create", "keys list", "keys revoke", "migrate apply", "migrate plan"),
    *("messages list", "messages resend", "messages show", "messages tail"),
    *("nodes close", "nodes list"),
)


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_says_what_it_does_and_prints_json(name: str):
    done = tenure(*name.split(), "--help")
    assert done.code == 0
    assert "--json" in done.out


def test_the_version_is_printed_without_loading_the_server(tmp_path: Path):
    assert tenure_json("version") == {"version": __version__}
    assert tenure("--version").out.strip() == f"tenure {__version__}"
    with running(tmp_path, "version", env={"PYTHONVERBOSE": "1"}) as command:
        assert command.ended() == 0
        imported = "\n".join(command.errors)
    assert "tenure.cli.app" in imported
    for heavy in ("sqlalchemy", "fastapi", "pydantic_settings"):
        assert f"import '{heavy}'" not in imported


def test_a_wrong_call_ends_with_2_and_says_what_is_possible():
    assert tenure("messages", "lisst").code == 2
    assert tenure("send").code == 2


def test_without_a_database_and_without_a_key_nothing_is_made(tmp_path: Path):
    done = run(tmp_path, "messages", "list")
    assert done.code == 2
    assert "`tenure serve` makes one" in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


def test_errors_are_json_for_programs(tmp_path: Path):
    done = run(tmp_path, "messages", "list", "--json")
    assert done.out == ""
    assert done.err.startswith('{"code":"config_invalid"')


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*COMMAND, "config", "show"],
            cwd=tmp_path,
            env=environment(),
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        os.close(writing)
    assert done.stderr == b""


def test_shells_complete_verbs(tmp_path: Path):
    done = subprocess.run(
        [str(Path(COMMAND[0]).parent / "tenure")],
        cwd=tmp_path,
        env=environment(
            _TENURE_COMPLETE="complete_bash", COMP_WORDS="tenure mess", COMP_CWORD="1"
        ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout.split() == ["messages"]
