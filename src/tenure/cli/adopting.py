"""`tenure adopt` and `tenure held`: a restored database, and what waits in it."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tenure.cli.databases import existing, named
from tenure.cli.verbs import Call, verb
from tenure.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.config import Settings
    from tenure.outbox.ledger.held import HeldFilter, HeldRow
    from tenure.store.adopting import Adopted
    from tenure.store.identity import Verdict

held = typer.Typer(
    help="Deliveries that wait because a copy was adopted held.", no_args_is_help=True
)

App = Annotated[str | None, typer.Option("--app", help="Of this application (its id).")]
Endpoint = Annotated[
    str | None, typer.Option("--endpoint", help="To this endpoint (its id).")
]
EventType = Annotated[
    str | None, typer.Option("--event-type", help="Of this event type.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count only; change nothing.")]


def add(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.add_typer(held, name="held")

    @verb(app, "adopt", asks=False)
    def adopt(
        call: Call,
        *,
        keep: Annotated[
            bool,
            typer.Option("--held", help="Send nothing of what waits in it now."),
        ] = False,
        yes: Yes = False,
    ) -> None:
        """Say that a restored or copied database is meant, so that it may send.

        Until then a copy accepts messages and sends nothing. With --held every delivery
        that is open now is parked and waits for `tenure held release` or `cancel`; what
        is accepted later goes out as ever.
        """
        settings = existing(call.settings())
        verdict = asyncio.run(_look(settings))
        differs = getattr(verdict, "reason", None)
        if differs is None and not keep:
            _say(call, settings, differs=None, count=0)
            return
        if not call.screen.as_json:
            call.screen.note(f"{named(settings)}: {differs or 'it is no copy'}")
        _confirm(call, yes=yes, question=_question(keep=keep))
        done = asyncio.run(_adopt(settings, keep=keep, told=_counter(call)))
        _say(call, settings, differs=differs, count=done.held)


def _question(*, keep: bool) -> str:
    if keep:
        return "hold what is open now, and send what is accepted from now on?"
    return "send everything that waits in this copy?"


def _confirm(call: Call, *, yes: bool, question: str) -> None:
    if yes:
        return
    if call.screen.as_json or not sys.stdin.isatty():
        raise BadRequest(f"{question} Nobody is here to ask: say --yes")
    typer.confirm(question, abort=True, err=True)


def _counter(call: Call) -> Callable[[int], None] | None:
    if call.screen.as_json or not call.screen.people:
        return None
    return lambda count: call.screen.rewrite(f"held: {count}")


def _say(call: Call, settings: Settings, *, differs: str | None, count: int) -> None:
    if call.screen.as_json:
        call.screen.json(
            {"deployment": settings.deployment, "differed": differs, "held": count}
        )
    elif differs is None and not count:
        call.screen.line(f"{named(settings)} is no copy: nothing to adopt")
    else:
        call.screen.line(
            f"adopted by {settings.deployment!r}; {count} deliveries are held"
        )


async def _look(settings: Settings) -> Verdict:
    from tenure.store.backend import open_backend
    from tenure.store.identity import check_identity
    from tenure.store.revisions import revision_of

    backend = await open_backend(settings.database_url)
    try:
        if await backend.read(revision_of) is None:
            raise BadRequest(
                f"{named(settings)} has no Tenure tables: nothing to adopt"
            )
        return await backend.write(
            partial(check_identity, deployment=settings.deployment)
        )
    finally:
        await backend.aclose()


async def _adopt(
    settings: Settings, *, keep: bool, told: Callable[[int], None] | None
) -> Adopted:
    from tenure.store import adopting
    from tenure.store.backend import open_backend

    backend = await open_backend(settings.database_url)
    try:
        await backend.migrate()
        return await adopting.adopt(backend, settings.deployment, held=keep, told=told)
    finally:
        await backend.aclose()


@verb(held, "list", asks=False)
def list_held(
    call: Call,
    app: App = None,
    endpoint: Endpoint = None,
    event_type: EventType = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.")] = 50,
) -> None:
    """List held deliveries, oldest first."""
    wanted = _filter(app, endpoint, event_type)
    count, shown = asyncio.run(_rows(existing(call.settings()), wanted, limit))
    if call.screen.as_json:
        call.screen.json(
            {
                "count": count,
                "data": [
                    {
                        "work": row.work,
                        "message": row.message,
                        "app": row.app,
                        "endpoint": row.endpoint,
                        "eventType": row.event_type,
                    }
                    for row in shown
                ],
            }
        )
        return
    call.screen.table(
        ("DELIVERY", "MESSAGE", "APPLICATION", "ENDPOINT", "EVENT TYPE"),
        [(r.work, r.message, r.app, r.endpoint, r.event_type) for r in shown],
        empty="nothing is held",
    )
    if count > len(shown):
        call.screen.note(f"{count - len(shown)} more: --limit shows them")


@verb(held, "release", asks=False)
def release(
    call: Call,
    app: App = None,
    endpoint: Endpoint = None,
    event_type: EventType = None,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Let held deliveries go out, with fresh budgets; lines keep their order."""
    _end(call, _filter(app, endpoint, event_type), "release", dry_run=dry_run, yes=yes)


@verb(held, "cancel", asks=False)
def cancel(
    call: Call,
    app: App = None,
    endpoint: Endpoint = None,
    event_type: EventType = None,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Cancel held deliveries: the original sent them, or nobody wants them any more."""
    _end(call, _filter(app, endpoint, event_type), "cancel", dry_run=dry_run, yes=yes)


def _filter(
    app: str | None, endpoint: str | None, event_type: str | None
) -> HeldFilter:
    from tenure.outbox.ledger.held import HeldFilter

    return HeldFilter(app=app, endpoint=endpoint, event_type=event_type)


def _end(
    call: Call,
    wanted: HeldFilter,
    what: Literal["release", "cancel"],
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    settings = existing(call.settings())
    count, _ = asyncio.run(_rows(settings, wanted, 0))
    if not dry_run and count:
        _confirm(call, yes=yes, question=f"{what} {count} deliveries?")
        count = asyncio.run(_ended(settings, wanted, what))
    if call.screen.as_json:
        call.screen.json({"verb": what, "count": count, "dryRun": dry_run})
        return
    would = "would be " if dry_run else ""
    past = "released" if what == "release" else "cancelled"
    call.screen.line(f"{count} deliveries {would}{past}")


async def _rows(
    settings: Settings, wanted: HeldFilter, limit: int
) -> tuple[int, list[HeldRow]]:
    """Return how many are held and meant, and the first of them."""
    from tenure.outbox.ledger.held import page_held
    from tenure.store.backend import open_backend

    backend = await open_backend(settings.database_url)
    rows: list[HeldRow] = []
    count, place = 0, ""
    try:
        while True:
            page = await backend.read(partial(page_held, place=place, wanted=wanted))
            count += len(page.rows)
            rows += page.rows[: max(0, limit - len(rows))]
            if page.place is None:
                return count, rows
            place = page.place
    finally:
        await backend.aclose()


async def _ended(
    settings: Settings, wanted: HeldFilter, what: Literal["release", "cancel"]
) -> int:
    from tenure.outbox.ledger.held import end_held
    from tenure.store.backend import open_backend

    backend = await open_backend(settings.database_url)
    count, place = 0, ""
    try:
        while True:
            done = await backend.write(
                partial(end_held, place=place, wanted=wanted, verb=what)
            )
            count += done.count
            if done.place is None:
                return count
            place = done.place
    finally:
        await backend.aclose()
