"""Which database a command means, and whether it is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tenure.errors import ConfigInvalid

if TYPE_CHECKING:
    from tenure.config import Settings

__all__ = ["existing", "named", "sqlite_file"]


def sqlite_file(settings: Settings) -> Path | None:
    """Return the file of a SQLite database; None for a PostgreSQL one."""
    if not settings.is_sqlite:
        return None
    from tenure.store.backend import parse_url

    return Path(parse_url(settings.database_url).database or "")


def named(settings: Settings) -> str:
    """Return the database as messages name it; a password is never shown."""
    from tenure.config import masked_url

    file = sqlite_file(settings)
    return masked_url(settings.database_url) if file is None else str(file)


def existing(settings: Settings) -> Settings:
    """Return the settings. Raises ConfigInvalid when their SQLite file is missing.

    A command that only looks must not make a database by looking.
    """
    file = sqlite_file(settings)
    if file is not None and not file.exists():
        raise ConfigInvalid(
            f"there is no database {file} in {Path.cwd()}: `tenure serve` makes one;"
            " --database-url names another; --key asks a running server"
        )
    return settings
