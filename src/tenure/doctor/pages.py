"""Walking a table by its key: pages of bounded size, each read in a snapshot of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenure.doctor.model import About, Check, Find, Grade, Heal, Key, Scope, Suspect

if TYPE_CHECKING:
    from tenure.doctor.model import Table
    from tenure.store.tx import ColumnType, Tx

__all__ = ["Page", "look", "page", "rows_by_key", "sql_check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page's suspects by check, and the key from which the next page goes on.

    `rows` is a lower bound at the last page, whose rows nobody counted.
    """

    suspects: tuple[tuple[Check, Suspect], ...]
    last: Key | None
    rows: int


def page(
    tx: Tx,
    table: Table,
    checks: Sequence[Check],
    about: About,
    *,
    after: Key | None,
    rows: int,
) -> Page:
    """Look at the next `rows` rows of a table, all checks in one snapshot."""
    guard_plans(tx)
    last = _end(tx, table, after, rows)
    scope = _between(table, after, last)
    found = tuple(
        (check, suspect) for check in checks for suspect in check.find(tx, scope, about)
    )
    counted = rows
    if last is None:
        counted = tx.scalar(
            f"SELECT count(*) FROM {table.name} {table.alias} WHERE {scope.where}",
            scope.params,
        )
    return Page(suspects=found, last=last, rows=counted)


def look(
    tx: Tx, check: Check, suspects: Sequence[Suspect], about: About
) -> list[Suspect]:
    """Look at suspects again, and return those that still are."""
    guard_plans(tx)
    wanted = {(suspect.key, suspect.invariant) for suspect in suspects}
    scope = Scope()
    if check.table is not None:
        scope = rows_by_key(tx, check.table, [suspect.key for suspect in suspects])
    return [
        suspect
        for suspect in check.find(tx, scope, about)
        if (suspect.key, suspect.invariant) in wanted
    ]


def guard_plans(tx: Tx) -> None:
    """Let this transaction's queries go by the indexes alone.

    A page is small whatever the table's statistics say; a plan that hashes the other
    table instead would read all of it once for every page.
    """
    if tx.dialect == "postgresql":
        tx.first(
            "SELECT set_config('enable_seqscan', 'off', true),"
            " set_config('enable_hashjoin', 'off', true),"
            " set_config('enable_mergejoin', 'off', true)"
        )


def rows_by_key(tx: Tx, table: Table, keys: Sequence[Key]) -> Scope:
    """Return the scope of exactly these rows."""
    columns: dict[str, ColumnType] = {
        f"k{at}": kind for at, (_, kind) in enumerate(table.keys)
    }
    given, params = tx.rows("doc", columns, sorted(set(keys)))
    names = ", ".join(f"doc.{name}" for name in columns)
    where = f"({table.columns}) IN (SELECT {names} FROM {given})"
    return Scope(where=where, params=params)


def _end(tx: Tx, table: Table, after: Key | None, rows: int) -> Key | None:
    """Return the key of the page's last row, None when the table ends before it."""
    scope = _between(table, after, None)
    found = tx.first(
        f"SELECT {table.columns} FROM {table.name} {table.alias}"
        f" WHERE {scope.where} ORDER BY {table.columns} LIMIT 1 OFFSET {rows - 1}",
        scope.params,
    )
    return None if found is None else tuple(found)


def _between(table: Table, after: Key | None, last: Key | None) -> Scope:
    parts: list[str] = []
    params: dict[str, object] = {}
    for sign, name, key in ((">", "after", after), ("<=", "last", last)):
        if key is not None:
            marks = ", ".join(f":{name}{at}" for at in range(len(key)))
            parts.append(f"({table.columns}) {sign} ({marks})")
            params |= {f"{name}{at}": value for at, value in enumerate(key)}
    return Scope(where=" AND ".join(parts) or "true", params=params)


def sql_check(
    code: str,
    table: Table,
    invariant: str,
    query: str,
    *,
    what: str,
    todo: str,
    grade: Grade = Grade.BROKEN,
    heal: Heal | None = None,
) -> Check:
    """Return a check written as one query.

    The query selects the table's key and then facts, and says `{scope}` where it is
    narrowed to a page; `what` is formatted with the facts.
    """
    width = len(table.keys)

    def rows(tx: Tx, scope: Scope) -> Iterator[Suspect]:
        for row in tx.all(query.replace("{scope}", scope.where), scope.params):
            yield Suspect(key=tuple(row[:width]), what=what.format(*row[width:]))

    find: Find = lambda tx, scope, _about: list(rows(tx, scope))  # noqa: E731 - one line
    return Check(
        code=code,
        invariant=invariant,
        todo=todo,
        find=find,
        table=table,
        grade=grade,
        heal=heal,
    )
