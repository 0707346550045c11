"""`tenure migrate`: what the schema lacks, and bringing it up to date."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tenure.cli.databases import existing
from tenure.cli.verbs import Call, verb

if TYPE_CHECKING:
    from tenure.config import Settings
    from tenure.store.migrating import Pending

migrate = typer.Typer(
    help="The database's schema: what it lacks, and bringing it up to date.",
    no_args_is_help=True,
)

UP_TO_DATE: Final = "the schema is up to date"


@verb(migrate, "plan", asks=False)
def plan(call: Call) -> None:
    """Show what `migrate apply` would do; changes nothing."""
    pending = asyncio.run(_plan(existing(call.settings())))
    if call.screen.as_json:
        call.screen.json(
            [
                {"revision": p.revision, "phase": p.phase, "summary": p.summary}
                for p in pending
            ]
        )
        return
    call.screen.table(
        ("REVISION", "PHASE", "WHAT"),
        [(p.revision, p.phase, p.summary) for p in pending],
        empty=UP_TO_DATE,
    )


async def _plan(settings: Settings) -> list[Pending]:
    from tenure.store import migrating
    from tenure.store.backend import open_backend

    scripts = await asyncio.to_thread(migrating.load)
    backend = await open_backend(settings.database_url)
    try:
        return await backend.read(lambda tx: migrating.plan(tx, scripts=scripts))
    finally:
        await backend.aclose()


@verb(migrate, "apply", asks=False)
def apply(
    call: Call,
    post: Annotated[
        bool,
        typer.Option(
            "--post",
            help="Also what takes away from nodes of the release before.",
        ),
    ] = False,
) -> None:
    """Bring the schema up to date; `serve` does the same without --post."""
    applied = asyncio.run(_apply(call.settings(), post=post))
    if call.screen.as_json:
        call.screen.json({"applied": applied})
    else:
        call.screen.line(f"applied {', '.join(applied)}" if applied else UP_TO_DATE)


async def _apply(settings: Settings, *, post: bool) -> list[str]:
    from tenure.store.backend import open_backend

    backend = await open_backend(settings.database_url)
    try:
        # What only adds is committed first: it stays when the rest is refused.
        applied = await backend.migrate()
        return applied + (await backend.migrate(post=True) if post else [])
    finally:
        await backend.aclose()
