"""Open a database by its URL; the promise of what comes back is in `contract`."""

from __future__ import annotations

import asyncio

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from tenure.errors import ConfigInvalid
from tenure.store.contract import Backend, BackendSettings, CommitUnknown, RowsLocked

__all__ = [
    "Backend",
    "BackendSettings",
    "CommitUnknown",
    "RowsLocked",
    "open_backend",
    "parse_url",
]


def parse_url(url: str) -> URL:
    """Return the URL of a database in the form its driver wants.

    Takes sqlite:///path, postgresql://, postgres:// and postgresql+asyncpg://. Raises
    ConfigInvalid for anything else, never showing a password.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigInvalid(
            "the database URL cannot be read: give one such as sqlite:///tenure.db "
            "or postgresql://user@host/database"
        ) from None
    match parsed.drivername:
        case "sqlite" | "sqlite+pysqlite":
            if parsed.database in {None, "", ":memory:"} or parsed.query:
                raise ConfigInvalid(
                    "SQLite needs a file without options, because several "
                    "connections share it: give sqlite:///path/to/tenure.db"
                )
            return parsed.set(drivername="sqlite")
        case "postgresql" | "postgres" | "postgresql+asyncpg":
            return parsed.set(drivername="postgresql+asyncpg")
        case other:
            raise ConfigInvalid(
                f"a database of kind {other!r} is not supported: give a sqlite:/// "
                "or a postgresql:// URL"
            )


async def open_backend(url: str, settings: BackendSettings | None = None) -> Backend:
    """Open the database at `url`; close it with `aclose`."""
    parsed = parse_url(url)
    chosen = settings or BackendSettings()
    # On a thread: loading a driver reads files, and SQLAlchemy asks where they are.
    backend = await asyncio.to_thread(_make, parsed, chosen)
    try:
        await backend.open()
    except BaseException:
        await backend.aclose()
        raise
    return backend


def _make(url: URL, settings: BackendSettings) -> Backend:
    """Load the one driver that is asked for: each takes half a second."""
    if url.drivername == "sqlite":
        from tenure.store.backends.sqlite import SqliteBackend

        return SqliteBackend(url, settings)
    from tenure.store.backends.postgresql import PostgresqlBackend

    return PostgresqlBackend(url, settings)
