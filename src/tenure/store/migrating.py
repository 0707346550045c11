"""Bring a database's schema to the revision that this release needs.

Each revision is of one phase. *pre* is additive and lock-safe, so that nodes of the
release before it go on beside it: it runs at start. *post* takes away what no open node
needs any more: it runs only by `tenure migrate`. A database at a revision that this
release does not know was migrated by a newer one. The database names its *floor*, the
newest post revision that was applied: a release that knows it works there, because all
that came later was added; another one refuses to start.

Everything happens inside one transaction. On PostgreSQL a transaction-scoped advisory
lock lets several nodes start at once: one applies, the others find it done.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from tenure.errors import InvariantViolated, NodesBehind, SchemaTooNew
from tenure.limits import (
    MIGRATION_LOCK_SECONDS,
    MIGRATION_QUEUE_SECONDS,
    MIGRATION_SECONDS,
)
from tenure.store.identity import write_setting
from tenure.store.revisions import FLOOR, VERSION_TABLE, floor_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alembic.runtime.migration import MigrationStep, RevisionStep

    from tenure.store.tx import Tx

__all__ = [
    "VERSION_TABLE",
    "Pending",
    "Phase",
    "apply",
    "current",
    "head",
    "load",
    "plan",
]

Phase: TypeAlias = Literal["pre", "post"]

_ADVISORY_KEY: Final = 7_306_642_953_148_855  # any number that nobody else picks
_FOLDER: Final = Path(__file__).parent / "migrations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A revision that the database does not have yet."""

    revision: str
    phase: Phase
    summary: str


def load() -> ScriptDirectory:
    """Read every revision from disk; blocks, so not for an event loop's thread."""
    scripts = ScriptDirectory(str(_FOLDER))
    scripts.get_current_head()  # Alembic reads the files at the first question only
    return scripts


def head(scripts: ScriptDirectory) -> str:
    """Return the newest revision that this release knows."""
    return cast("str", scripts.get_current_head())


def current(tx: Tx) -> str | None:
    """Return the revision of the database; None when it is empty."""
    return _context(tx).get_current_revision()


def plan(tx: Tx, *, scripts: ScriptDirectory) -> list[Pending]:
    """Return what is missing, oldest first; nothing where a newer release added to it.

    Raises SchemaTooNew where a newer release took away what this one needs.
    """
    at = current(tx)
    if at is not None and not _knows(scripts, at):
        if _knows(scripts, floor_of(tx)):
            return []
        raise SchemaTooNew(
            f"the database is at revision {at!r}, and this release knows them up to"
            f" {head(scripts)!r} only: start a release at least as new as the one that"
            " migrated it"
        )
    return [_pending(step) for step in _steps(scripts, at, head(scripts))]


def apply(tx: Tx, *, scripts: ScriptDirectory, post: bool = False) -> list[str]:
    """Apply what is missing up to the first post revision, or all with `post`.

    Returns the revisions applied, none when there was nothing to do. Raises
    SchemaTooNew where a newer release took away what this one needs, NodesBehind where
    an open node needs what would be taken away.
    """
    _lock(tx)
    target: str | None = None
    for pending in plan(tx, scripts=scripts):
        if pending.phase == "post":
            if not post:
                break
            _refuse_behind(tx, scripts, pending.revision)
        target = pending.revision
    if target is None:
        return []
    at = current(tx)
    done = [step.revision.revision for step in _steps(scripts, at, target)]

    def steps(_heads: Sequence[str], _: MigrationContext) -> Any:
        return _steps(scripts, at, target)

    context = _context(tx, fn=steps)
    with Operations.context(context):
        context.run_migrations()
    write_setting(tx, FLOOR, _floor(scripts, target).encode())
    return done


def _floor(scripts: ScriptDirectory, target: str) -> str:
    """Return the newest post revision up to `target`, else the first of all."""
    steps = [_pending(step) for step in _steps(scripts, None, target)]
    post = [pending.revision for pending in steps if pending.phase == "post"]
    return post[-1] if post else steps[0].revision


def _refuse_behind(tx: Tx, scripts: ScriptDirectory, post: str) -> None:
    """Raise NodesBehind when an open node's release does not know this revision.

    Nodes of a release that is newer than this one know all that this one knows.
    """
    if not inspect(tx.conn).has_table("node"):
        return  # an empty database has no nodes
    known = [each.revision for each in reversed([*scripts.walk_revisions()])]
    columns = {column["name"] for column in inspect(tx.conn).get_columns("node")}
    column = "revision" if "revision" in columns else "NULL AS revision"
    for row in tx.all(
        f"SELECT id, name, version, {column} FROM node WHERE state <> 'closed'"
        " ORDER BY id"
    ):
        at = row.revision
        if at is None or (at in known and known.index(at) < known.index(post)):
            raise NodesBehind(
                f"node {row.id} ({row.name}, release {row.version}) is open and does not"
                f" understand {post!r}: update or stop it; one that is gone is closed by"
                f" `tenure nodes close {row.id}`",
                node=row.id,
                revision=post,
            )


def _knows(scripts: ScriptDirectory, revision: str | None) -> bool:
    return any(each.revision == revision for each in scripts.walk_revisions())


def _lock(tx: Tx) -> None:
    if tx.dialect == "sqlite":
        return  # BEGIN IMMEDIATE holds the only write lock there is
    tx.first(
        f"SELECT set_config('lock_timeout', '{MIGRATION_QUEUE_SECONDS * 1000:.0f}',"
        f" true), set_config('statement_timeout', '{MIGRATION_SECONDS * 1000:.0f}',"
        " true)"
    )
    tx.first(f"SELECT pg_advisory_xact_lock({_ADVISORY_KEY})")
    tx.first(
        f"SELECT set_config('lock_timeout', '{MIGRATION_LOCK_SECONDS * 1000:.0f}', true)"
    )


def _context(tx: Tx, **options: Any) -> MigrationContext:
    return MigrationContext.configure(
        connection=tx.conn,
        opts={
            "version_table": VERSION_TABLE,
            **options,
        },
    )


def _steps(
    scripts: ScriptDirectory, at: str | None, target: str
) -> Sequence[RevisionStep]:
    # The stub of Alembic calls these StampSteps; upgrades are RevisionSteps.
    return cast(
        "Sequence[RevisionStep]",
        scripts._upgrade_revs(target, cast("str", at)),  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    )


def _pending(step: MigrationStep) -> Pending:
    script = cast("RevisionStep", step).revision
    phase = getattr(script.module, "phase", None)
    if phase not in {"pre", "post"}:
        raise InvariantViolated(f"revision {script.revision} names no phase")
    return Pending(
        revision=script.revision, phase=cast("Phase", phase), summary=script.doc
    )
