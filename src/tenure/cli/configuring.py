"""`tenure config`: what the settings are, and whether a server could start with them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from tenure.cli.databases import named, sqlite_file
from tenure.cli.verbs import Call, verb

if TYPE_CHECKING:
    from tenure.config import Settings

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
    """Read the settings and open the database, as a start would; change nothing."""
    settings = call.settings()
    if settings.secret_keys:
        from tenure.outbox.keyring import KeyRing

        KeyRing([key.get_secret_value() for key in settings.secret_keys])
    file = sqlite_file(settings)
    if file is None or file.exists():
        asyncio.run(_open(settings))
        found = "opens"
    else:
        found = "does not exist yet; `tenure serve` makes it"
    if call.screen.as_json:
        call.screen.json({"good": True, "database": named(settings), "found": found})
    else:
        call.screen.line(
            f"the settings are good; the database {named(settings)} {found}"
        )


async def _open(settings: Settings) -> None:
    from tenure.store.backend import open_backend

    backend = await open_backend(settings.database_url)
    await backend.aclose()
