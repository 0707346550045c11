"""Settings: from flags, ``TENURE_*`` variables and ``tenure.toml``, in that order.

`load` merges the three, remembers where each value came from, and refuses with a
ConfigInvalid that says what is wrong, where it was written and what to change. The
field descriptions are the reference: ``docs/reference/settings.md`` is made from them.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Final, cast
from urllib.parse import urlsplit, urlunsplit

from pydantic import (
    BeforeValidator,
    Field,
    IPvAnyNetwork,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from tenure import limits
from tenure.errors import ConfigInvalid

__all__ = ["LogFormat", "LogLevel", "Settings", "Synchronous", "load"]

PREFIX: Final = "TENURE_"
CONFIG_FILE: Final = Path("tenure.toml")
_KEY_MIN: Final = 16  # characters of a bootstrap key


class Synchronous(StrEnum):
    """How SQLite waits for the disk at a commit."""

    FULL = "FULL"
    NORMAL = "NORMAL"


class LogLevel(StrEnum):
    """The least severe log lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """What a log line looks like."""

    JSON = "json"
    CONSOLE = "console"


def _split(value: object) -> object:
    """Let a list be written as text with commas or spaces between its parts."""
    if isinstance(value, str):
        return [part for part in re.split(r"[,\s]+", value) if part]
    return value


def _networks(value: object) -> object:
    """Read networks one by one, so that the message can name the one that is wrong."""
    parts = _split(value)
    if not isinstance(parts, (list, tuple)):
        return parts
    networks: list[object] = []
    for part in cast("list[object]", parts):
        try:
            networks.append(ip_network(str(part)))
        except ValueError as error:
            msg = f"{error}; write a network such as 10.1.0.0/16 or fd00::/8"
            raise ValueError(msg) from None
    return networks


def _switch(value: object) -> object:
    match value:
        case str() if value.lower() in {"on", "true", "yes", "1"}:
            return True
        case str() if value.lower() in {"off", "false", "no", "0"}:
            return False
        case bool():
            return value
        case _:
            msg = "write on or off"
            raise ValueError(msg)


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


Switch = Annotated[bool, BeforeValidator(_switch)]


class Settings(BaseSettings):
    """Everything a deployment can say; frozen once loaded. Use `load` to make one."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="forbid",
        frozen=True,
        validate_default=False,
        hide_input_in_errors=True,
    )

    database_url: str = Field(
        default="sqlite:///tenure.db",
        description="Database: `sqlite:///FILE` or `postgresql://USER@HOST/NAME`.",
    )
    host: str = Field(default="127.0.0.1", description="Address the server listens on.")
    port: int = Field(
        default=8071,
        ge=0,
        le=65535,
        description="Port the server listens on; 0 picks one.",
    )
    bootstrap_key: SecretStr | None = Field(
        default=None,
        description="An admin API key given from outside, for automation; at least 16"
        " characters. Unset: `tenure serve` makes one and prints it once.",
    )
    secret_keys: Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_split)] = (
        Field(
            default=(),
            description="Key ring for secrets at rest, newest first, separated by commas"
            " or spaces. Unset: on SQLite `<database>.keys` is made beside the file (mode"
            " 0600); on PostgreSQL the start is refused and a fresh key is printed.",
        )
    )
    deployment: str = Field(
        default="default",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Name of this deployment. A database that was opened under another"
        " name (a restored dump, a staging copy) makes no outward claims until it is"
        " adopted.",
    )
    allow_networks: Annotated[
        tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(_networks)
    ] = Field(
        default=(),
        description="Networks (CIDR, separated by commas or spaces) that endpoints may"
        " live in although they are not public. Unset: none.",
    )
    sending: Switch = Field(
        default=True,
        description="`off`: messages are accepted and kept, nothing is sent.",
    )
    born_claimed: Switch = Field(
        default=True,
        description="`off`: what a node accepts waits for a claim like all work, also"
        " where that node could send it at once.",
    )
    slots: int = Field(
        default=limits.SLOTS, ge=1, le=10_000, description="Attempts at once per node."
    )
    drain_seconds: float = Field(
        default=limits.DRAIN_SECONDS,
        ge=0,
        le=3600,
        allow_inf_nan=False,
        description="Seconds that a stopping node gives to what is in flight.",
    )
    processes: int = Field(
        default=1, ge=1, le=64, description="Processes of `tenure serve`, each a node."
    )
    sqlite_synchronous: Annotated[Synchronous, BeforeValidator(_upper)] = Field(
        default=Synchronous.FULL,
        description="`FULL`: a commit survives a power cut. `NORMAL`: faster; a power"
        " cut (not a crash of the process) may lose the last commits.",
    )
    payload_max_bytes: int = Field(
        default=limits.PAYLOAD_BYTES,
        ge=1,
        le=limits.PAYLOAD_HARD_BYTES,
        description="Largest message body in bytes.",
    )
    receipt_max_bytes: int = Field(
        default=limits.RECEIPT_BYTES,
        ge=1,
        le=limits.RECEIPT_BYTES_MAX,
        description="Largest body of a received webhook, in bytes; a source may say"
        " otherwise.",
    )
    trusted_proxies: Annotated[
        tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(_networks)
    ] = Field(
        default=(),
        description="Networks (CIDR) of proxies whose `X-Forwarded-*` headers say who"
        " calls. Unset: nobody's do.",
    )
    notify: Switch = Field(
        default=True,
        description="`off`: no `LISTEN` and `NOTIFY` on PostgreSQL, as behind a"
        " transaction pooler; what another process accepts then waits for the poll, a"
        " second at most.",
    )
    history_days: int = Field(
        default=limits.HISTORY_DAYS,
        ge=1,
        le=limits.HISTORY_DAYS_MAX,
        description="Days for which messages, their deliveries and attempts are kept"
        " after every delivery is over. An application may say otherwise.",
    )
    response_days: int = Field(
        default=limits.RESPONSE_DAYS,
        ge=1,
        le=limits.HISTORY_DAYS_MAX,
        description="Days for which the answers of receivers are kept after the delivery"
        " is over. An application may say otherwise.",
    )
    payload_days: int = Field(
        default=round(limits.PAYLOAD_RETENTION_MAX_SECONDS / limits.DAY_SECONDS),
        ge=1,
        le=limits.HISTORY_DAYS_MAX,
        description="Days for which payloads are kept from their first due time, and"
        " longer while a delivery is open. A message or an application may say"
        " otherwise.",
    )
    idempotency_hours: int = Field(
        default=round(limits.IDEMPOTENCY_SECONDS / 3600),
        ge=1,
        le=24 * limits.HISTORY_DAYS_MAX,
        description="Hours for which an Idempotency-Key is remembered.",
    )
    svix_headers: Switch = Field(
        default=False,
        description="`on`: send `svix-*` headers beside the `webhook-*` ones.",
    )
    https_only: Switch = Field(
        default=False,
        description="`on`: refuse endpoints whose URL is not https.",
    )
    schedules: Switch = Field(
        default=True,
        description="`off`: no job is fired by its schedule here; what is due stays due.",
    )
    packages: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=(),
        description="Python modules to import before the start, separated by commas:"
        " those that register jobs and functions. Installed distributions may name"
        " theirs by entry points of the group `tenure.packages`.",
    )
    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="A port of its own for `/metrics` and `/health/*`, without a key, on"
        " `TENURE_METRICS_HOST`; with several processes the second has the next port, and so on."
        " Unset: they answer on the API's port, metrics for a key.",
    )
    metrics_host: str = Field(
        default="127.0.0.1", description="Address that `TENURE_METRICS_PORT` is on."
    )
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = Field(
        default=LogLevel.INFO, description="Least severe lines that are logged."
    )
    log_format: Annotated[LogFormat, BeforeValidator(_lower)] = Field(
        default=LogFormat.CONSOLE, description="`json` or `console`."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing behind the caller's back: `load` merges the sources."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        scheme, colon, rest = value.partition("://")
        match scheme:
            case "sqlite" if colon and rest.startswith("/") and len(rest) > 1:
                return value
            case "postgresql" | "postgres" if colon and rest:
                return f"postgresql://{rest}"
            case _:
                msg = (
                    "give sqlite:///FILE (four slashes for an absolute path) or"
                    " postgresql://USER:PASSWORD@HOST:PORT/NAME"
                )
                raise ValueError(msg)

    @field_validator("bootstrap_key")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < _KEY_MIN:
            msg = f"give at least {_KEY_MIN} characters: a short key can be guessed"
            raise ValueError(msg)
        return value

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a SQLite file."""
        return self.database_url.startswith("sqlite:")

    def shown(self) -> dict[str, str]:
        """Return every setting as text that may be printed: secrets are masked."""
        return {name: _shown(getattr(self, name)) for name in type(self).model_fields}


def _shown(value: object) -> str:
    match value:
        case None | ():
            return "not set"
        case bool():
            return "on" if value else "off"
        case tuple():
            return ", ".join(_shown(part) for part in cast("tuple[object, ...]", value))
        case str() if "://" in value:
            return masked_url(value)
        case _:
            return str(value)


def masked_url(url: str) -> str:
    """Return a URL with its password replaced by stars, fit for logs and pages."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, at, host = parts.netloc.rpartition("@")
    netloc = user.partition(":")[0] + ":***" + at + host
    return urlunsplit(parts._replace(netloc=netloc))


def load(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Settings:
    """Return the settings: flags win over ``TENURE_*``, those over ``tenure.toml``.

    ``flags`` holds field names; a None means that the flag was not given. ``file`` must
    exist when it is named; ``tenure.toml`` of the working directory may be missing.
    Raises ConfigInvalid with what is wrong, where, and what to change.
    """
    path = CONFIG_FILE if file is None else file
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for name, value in _read_file(path, required=file is not None).items():
        values[name], origins[name] = value, f"{name} in {path}"
    for name in Settings.model_fields:
        variable = PREFIX + name.upper()
        if text := environ.get(variable, "").strip():
            values[name], origins[name] = text, variable
    for name, value in (flags or {}).items():
        if value is not None:
            values[name], origins[name] = value, f"--{name.replace('_', '-')}"
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise ConfigInvalid(_explain(error, origins)) from None


def _read_file(path: Path, *, required: bool) -> dict[str, object]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if not required:
            return {}
        msg = f"{path} does not exist: name a file that does, or none"
        raise ConfigInvalid(msg) from None
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {error}"
        raise ConfigInvalid(msg) from None
    try:
        values: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{path} is not TOML: {error}"
        raise ConfigInvalid(msg) from None
    for name in values:
        if name not in Settings.model_fields:
            raise ConfigInvalid(_unknown(name, str(path)))
    return values


def _unknown(name: str, where: str) -> str:
    close = difflib.get_close_matches(name, Settings.model_fields, n=1)
    hint = f"did you mean {close[0]}?" if close else "`tenure config check` lists all"
    return f"{name} in {where} is no setting: {hint}"


def _explain(error: ValidationError, origins: Mapping[str, str]) -> str:
    lines: list[str] = []
    for fault in error.errors(include_url=False, include_input=False):
        name = str(fault["loc"][0]) if fault["loc"] else "settings"
        if fault["type"] == "extra_forbidden":
            lines.append(_unknown(name, "the flags"))
            continue
        reason = fault["msg"].removeprefix("Value error, ")
        lines.append(f"{origins.get(name, name)}: {reason[:1].lower()}{reason[1:]}")
    return "; ".join(dict.fromkeys(lines))
