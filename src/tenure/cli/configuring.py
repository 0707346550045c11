"""`tenure config`: what the settings are, and whether a server could start with them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import typer

from tenure.cli.databases import named, sqlite_file
from tenure.cli.verbs import Call, verb
from tenure.errors import ConfigInvalid, WrongKeyRing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.config import Settings
    from tenure.outbox.keyring import KeyRing

RING: Final = "key_ring"
"""The name under which the engine keeps what the ring must open."""

OF_COMMANDS: Final = frozenset({"TENURE_SERVER", "TENURE_API_KEY"})
"""Variables that are no settings of a deployment: they say whom a command asks."""

configuration = typer.Typer(
    name="config",
    help="Settings: what they are, and whether a server could start with them.",
    no_args_is_help=True,
)


@verb(configuration, "show", asks=False)
def show(call: Call) -> None:
    """Print every setting; secrets are masked."""
    from tenure.config import PREFIX

    shown = call.settings().shown()
    if call.screen.as_json:
        call.screen.json(shown)
        return
    call.screen.table(
        ("SETTING", "VALUE", "VARIABLE"),
        [(name, value, PREFIX + name.upper()) for name, value in shown.items()],
        empty="",
    )


@verb(configuration, "check", asks=False)
def check(call: Call) -> None:
    """Look at the settings, the database and the key ring as a start would.

    Changes nothing.
    """
    settings = call.settings()
    for name in unknown_variables(os.environ):
        call.screen.note(
            f"{name} is set and is no setting: `tenure config show` lists all",
            style="yellow",
        )
    ring = _ring(settings)
    file = sqlite_file(settings)
    if file is None or file.exists():
        pending = _pending(settings, ring)
        found = f"opens; {pending} migrations pending" if pending else "opens"
    else:
        found = "does not exist yet; `tenure serve` makes it"
    if call.screen.as_json:
        call.screen.json({"good": True, "database": named(settings), "found": found})
    else:
        call.screen.line(
            f"the settings are good; the database {named(settings)} {found}"
        )


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the names of variables that look like settings and are none."""
    from tenure.config import PREFIX, Settings

    known = {PREFIX + name.upper() for name in Settings.model_fields} | OF_COMMANDS
    return sorted(
        name for name in environ if name.startswith(PREFIX) and name not in known
    )


def _ring(settings: Settings) -> KeyRing | None:
    """Return the ring of the settings or of the file beside SQLite's; None yet."""
    from tenure.outbox.keyring import KeyRing

    keys = [key.get_secret_value() for key in settings.secret_keys]
    file = sqlite_file(settings)
    if not keys and file is None:
        raise ConfigInvalid(
            "TENURE_SECRET_KEYS is not set, which PostgreSQL needs: give the ring that"
            " this database is used with; for a new one `tenure key new` makes a key"
        )
    beside = None if file is None else file.with_name(f"{file.name}.keys")
    if not keys and beside is not None and beside.exists():
        keys = beside.read_text("ascii").split()
    return KeyRing(keys) if keys else None


def _pending(settings: Settings, ring: KeyRing | None) -> int:
    """Return how many migrations are missing. Raises WrongKeyRing."""
    from tenure.store import migrating
    from tenure.store.backend import open_backend
    from tenure.store.identity import read_setting

    scripts = migrating.load()

    async def look() -> int:
        backend = await open_backend(settings.database_url)
        try:
            pending = await backend.read(lambda tx: migrating.plan(tx, scripts=scripts))
            if await backend.read(migrating.current) is not None:
                kept = await backend.read(lambda tx: read_setting(tx, RING))
                if kept is not None and (ring is None or not ring.opens(kept)):
                    raise _wrong_ring(settings)
        finally:
            await backend.aclose()
        return len(pending)

    return asyncio.run(look())


def _wrong_ring(settings: Settings) -> WrongKeyRing:
    return WrongKeyRing(
        f"the key ring does not open {named(settings)}: give the one it was used with"
        " (TENURE_SECRET_KEYS, or the .keys file beside SQLite's)"
    )
