from ipaddress import ip_network
from pathlib import Path

import pytest
from pydantic import ValidationError

from tenure import config
from tenure.config import LogFormat, LogLevel, Settings, Synchronous, load
from tenure.errors import ConfigInvalid


def written(folder: Path, text: str) -> Path:
    file = folder / "tenure.toml"
    file.write_text(text, encoding="utf-8")
    return file


def refusal(
    flags: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    file: Path | None = None,
) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        load(flags, environ=environ or {}, file=file)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_without_anything_the_defaults_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    settings = load(environ={})
    assert settings.database_url == "sqlite:///tenure.db"
    assert settings.is_sqlite
    assert (settings.host, settings.port) == ("127.0.0.1", 8071)
    assert settings.sending
    assert settings.allow_networks == ()
    assert settings.sqlite_synchronous is Synchronous.FULL


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path):
    file = written(tmp_path, 'port = 1\nhost = "file"\ndeployment = "file"\n')
    settings = load(
        {"port": 3, "host": None},
        environ={"TENURE_PORT": "2", "TENURE_HOST": "environment"},
        file=file,
    )
    assert settings.port == 3
    assert settings.host == "environment"
    assert settings.deployment == "file"


def test_the_file_of_the_working_directory_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written(tmp_path, "slots = 7\n")
    monkeypatch.chdir(tmp_path)
    assert load(environ={}).slots == 7


def test_an_empty_variable_is_not_set():
    assert load(environ={"TENURE_PORT": " "}).port == 8071


def test_lists_are_written_with_commas_or_spaces():
    settings = load(
        environ={
            "TENURE_SECRET_KEYS": "newest, older oldest",
            "TENURE_ALLOW_NETWORKS": "127.0.0.0/8,::1",
        }
    )
    ring = [key.get_secret_value() for key in settings.secret_keys]
    assert ring == ["newest", "older", "oldest"]
    assert settings.allow_networks == (ip_network("127.0.0.0/8"), ip_network("::1"))


def test_lists_may_be_toml_arrays(tmp_path: Path):
    file = written(tmp_path, 'allow_networks = ["10.0.0.0/8"]\nsending = "off"\n')
    settings = load(environ={}, file=file)
    assert settings.allow_networks == (ip_network("10.0.0.0/8"),)
    assert not settings.sending


def test_words_are_understood_in_any_letter_case():
    settings = load(
        {"sqlite_synchronous": "normal", "log_level": "DEBUG", "log_format": "Json"},
        environ={"TENURE_SVIX_HEADERS": "ON"},
    )
    assert settings.sqlite_synchronous is Synchronous.NORMAL
    assert settings.log_level is LogLevel.DEBUG
    assert settings.log_format is LogFormat.JSON
    assert settings.svix_headers


def test_postgres_is_postgresql():
    settings = load({"database_url": "postgres://me@host/name"}, environ={})
    assert settings.database_url == "postgresql://me@host/name"
    assert not settings.is_sqlite


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("DATABASE_URL", "mysql://x", "give sqlite:///FILE"),
        ("DATABASE_URL", "sqlite://", "give sqlite:///FILE"),
        ("PORT", "70000", "less than or equal to 65535"),
        ("PORT", "http", "valid integer"),
        ("BOOTSTRAP_KEY", "short", "at least 16 characters"),
        ("ALLOW_NETWORKS", "10.0.0.0/8 10.0.0.1/8", "10.0.0.1/8 has host bits set"),
        ("SENDING", "perhaps", "write on or off"),
        ("SLOTS", "0", "greater than or equal to 1"),
        ("DRAIN_SECONDS", "nan", "finite number"),
        ("LOG_LEVEL", "loud", "'debug'"),
        ("DEPLOYMENT", "a b", "match pattern"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place_and_reason(
    name: str, text: str, reason: str
):
    message = refusal(environ={f"TENURE_{name}": text})
    assert message.startswith(f"TENURE_{name}: ")
    assert reason in message


def test_every_wrong_value_is_named_at_once(tmp_path: Path):
    file = written(tmp_path, 'slots = "many"\n')
    message = refusal({"port": -1}, {"TENURE_SENDING": "?"}, file)
    assert "--port: " in message
    assert "TENURE_SENDING: " in message
    assert f"slots in {file}: " in message


def test_an_unknown_name_in_the_file_is_refused_with_a_suggestion(tmp_path: Path):
    file = written(tmp_path, 'databse_url = "sqlite:///x.db"\n')
    assert refusal(file=file) == (
        f"databse_url in {file} is no setting: did you mean database_url?"
    )


def test_an_unknown_flag_is_refused():
    assert "zzz in the flags is no setting" in refusal({"zzz": 1})


def test_a_file_that_was_named_must_exist(tmp_path: Path):
    assert "does not exist" in refusal(file=tmp_path / "none.toml")


def test_a_file_that_is_not_toml_is_refused_with_the_line(tmp_path: Path):
    assert "line 1" in refusal(file=written(tmp_path, "port 8071\n"))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path):
    assert "cannot be read" in refusal(file=tmp_path)


def test_secrets_are_masked_wherever_settings_are_shown():
    settings = load(
        {"database_url": "postgresql://me:pass-word@host:5432/name"},
        environ={
            "TENURE_BOOTSTRAP_KEY": "bootstrap-key-0123456789",
            "TENURE_SECRET_KEYS": "ring-key",
        },
    )
    shown = settings.shown()
    assert shown["database_url"] == "postgresql://me:***@host:5432/name"
    assert shown["sending"] == "on"
    assert shown["allow_networks"] == "not set"
    assert shown.keys() == Settings.model_fields.keys()
    for secret in ("pass-word", "bootstrap-key", "ring-key"):
        assert secret not in str(shown)


def test_a_refused_secret_is_not_repeated():
    assert "tooshort" not in refusal(environ={"TENURE_BOOTSTRAP_KEY": "tooshort"})


def test_loaded_settings_do_not_change():
    settings = load(environ={})
    with pytest.raises(ValidationError):
        settings.port = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_nothing_is_read_behind_the_caller_s_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TENURE_PORT", "1")
    assert config.Settings().port == 8071
