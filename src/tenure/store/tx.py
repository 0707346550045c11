"""One transaction, as every slice's SQL sees it.

All SQL is written once, as plain functions over a `Tx`; the backend decides on which
thread and connection they run, commits, and runs them again after a serialization
failure. So a function over a `Tx` may have no effect outside the transaction.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, assert_never, cast

import msgspec
import sqlalchemy as sa

from tenure.errors import InvariantViolated

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from sqlalchemy.engine import Connection, CursorResult, Row

    from tenure.clock import Clock

__all__ = ["AnyRow", "ColumnType", "Dialect", "Params", "Statement", "Tx"]

Dialect: TypeAlias = Literal["sqlite", "postgresql"]
ColumnType: TypeAlias = Literal["text", "bigint", "bool"]
Statement: TypeAlias = "str | sa.Executable"
Params: TypeAlias = "Mapping[str, Any] | Sequence[Mapping[str, Any]] | None"
AnyRow: TypeAlias = "Row[*tuple[Any, ...]]"
"""A row of any number of columns."""

_POSTGRESQL_TYPES: Final[Mapping[ColumnType, str]] = {
    "text": "text",
    "bigint": "bigint",
    "bool": "boolean",
}
POSTGRESQL_CLOCK: Final = (
    "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
)


class Tx:
    """A transaction that somebody else commits.

    Not for use from two threads at once, nor after the function that got it returned.
    """

    __slots__ = ("_now", "_read_now", "conn", "dialect", "failure")

    conn: Final[Connection]
    dialect: Final[Dialect]
    failure: BaseException | None
    """What a statement raised outside of a savepoint: nothing may be committed now."""

    def __init__(
        self,
        conn: Connection,
        *,
        dialect: Dialect,
        read_now: Callable[[Tx], int],
    ) -> None:
        self.conn = conn
        self.dialect = dialect
        self.failure = None
        self._read_now = read_now
        self._now: int | None = None

    @classmethod
    def within(
        cls, connection: Connection, *, clock: Clock, clock_offset_us: int = 0
    ) -> Tx:
        """Wrap a caller's own connection, in whatever transaction it is.

        Nothing is committed, rolled back or set: the caller's transaction decides.
        `clock` is asked on SQLite only. Raises InvariantViolated for a database that
        is neither SQLite nor PostgreSQL.
        """
        match connection.dialect.name:
            case "sqlite":
                return cls(
                    connection,
                    dialect="sqlite",
                    read_now=lambda _: clock.wall_us() + clock_offset_us,
                )
            case "postgresql":
                return cls(
                    connection,
                    dialect="postgresql",
                    read_now=lambda tx: postgresql_now(tx) + clock_offset_us,
                )
            case other:
                raise InvariantViolated(
                    f"a connection to {other} cannot hold Tenure's rows: "
                    "give one to SQLite or PostgreSQL"
                )

    @property
    def now(self) -> int:
        """Microseconds since the Unix epoch by the database's clock, once per Tx."""
        if self._now is None:
            self._now = self._read_now(self)
        return self._now

    def set_now(self, now: int) -> None:
        """Say what time the backend's first statement read."""
        self._now = now

    def execute(self, stmt: Statement, params: Params = None) -> CursorResult[Any]:
        """Run a statement; text is compiled once per distinct string."""
        statement = sql(stmt) if isinstance(stmt, str) else stmt
        try:
            return self.conn.execute(statement, params)
        except BaseException as error:
            self.failure = error
            raise

    def all(self, stmt: Statement, params: Params = None) -> Sequence[AnyRow]:
        """Return every row."""
        return self.execute(stmt, params).all()

    def first(self, stmt: Statement, params: Params = None) -> AnyRow | None:
        """Return the first row, or None."""
        return self.execute(stmt, params).first()

    def scalar(self, stmt: Statement, params: Params = None) -> Any:
        """Return the first column of the first row, or None."""
        return self.execute(stmt, params).scalar()

    def run(self, stmt: Statement, params: Params = None) -> int:
        """Run a statement that writes; return how many rows it touched."""
        return self.execute(stmt, params).rowcount

    def insert(
        self,
        table: sa.Table,
        rows: Sequence[Mapping[str, Any]],
        *,
        on_conflict: Literal["error", "nothing"] = "error",
    ) -> int:
        """Insert all rows by one statement; return how many went in.

        Every row must name the same columns; columns not named take the database's
        default. "nothing" leaves out rows whose key exists, in the table or earlier in
        `rows`. Raises KeyError for a row that lacks a column of the first one.
        """
        if not rows:
            return 0
        names = tuple(rows[0])
        for row in rows:
            if len(row) != len(names):
                raise KeyError(
                    f"a row for {table.name} names {sorted(row)}, "
                    f"the first one {sorted(names)}"
                )
        records = [tuple(row[name] for name in names) for row in rows]
        return self.insert_records(table, names, records, on_conflict=on_conflict)

    def insert_records(
        self,
        table: sa.Table,
        names: tuple[str, ...],
        records: Sequence[tuple[Any, ...]],
        *,
        on_conflict: Literal["error", "nothing"] = "error",
    ) -> int:
        """Insert as `insert` does, rows given as tuples of the named columns' values."""
        if not records:
            return 0
        statement, raw = _insert_sql(table, names, self.dialect, on_conflict)
        match self.dialect:
            case "postgresql":
                params: dict[str, Any] = {
                    f"c{at}": [record[at] for record in records] for at in raw
                }
                if raw:
                    plain = [at for at in range(len(names)) if at not in raw]
                    records = [tuple(record[at] for at in plain) for record in records]
                params["rows"] = _json(records)
                return self.run(statement, params)
            case "sqlite":
                return self._many(statement, list(records))
            case never:
                assert_never(never)

    def update(
        self,
        table: sa.Table,
        key: Sequence[str],
        columns: Mapping[str, ColumnType],
        records: Sequence[tuple[Any, ...]],
    ) -> int:
        """Set columns of the rows that `key` names, each to its record's values.

        A record has a value for each of `columns`, which include the key's. Returns
        how many rows were there.
        """
        if not records:
            return 0
        statement = _update_sql(
            table.name, tuple(key), tuple(columns.items()), self.dialect
        )
        match self.dialect:
            case "postgresql":
                return self.run(statement, {"b_rows": _json(records)})
            case "sqlite":
                names = tuple(columns)
                order = [at for at, name in enumerate(names) if name not in key]
                order += [names.index(name) for name in key]
                values = [tuple(record[at] for at in order) for record in records]
                return self._many(statement, values)
            case never:
                assert_never(never)

    def _many(self, statement: str, values: list[tuple[Any, ...]]) -> int:
        try:
            return self.conn.exec_driver_sql(statement, values).rowcount
        except BaseException as error:
            self.failure = error
            raise

    def rows(
        self,
        alias: str,
        columns: Mapping[str, ColumnType],
        records: Sequence[tuple[Any, ...]],
    ) -> tuple[str, dict[str, Any]]:
        """Return records as something that FROM can name, and its parameters.

        The fragment is `… AS alias` with the given columns; parameters start with the
        alias, so several fragments fit one statement. All records travel as one JSON
        text: an array for each column costs the driver ten times as much.
        """
        text = _rows_sql(self.dialect, alias, tuple(columns.items()))
        return text, {f"{alias}_rows": _json(records)}

    def refuse_hidden_failure(self) -> None:
        """Raise InvariantViolated when a statement failed and nobody undid it.

        PostgreSQL would answer the COMMIT of such a transaction with a silent
        rollback; SQLite would commit the rest.
        """
        if self.failure is not None:
            raise InvariantViolated(
                "a function over a Tx hid a failed statement: use tx.savepoint()"
            ) from self.failure

    @contextmanager
    def savepoint(self) -> Generator[None]:
        """Undo what happens inside when it raises, and let the error through."""
        before = self.failure
        nested = self.conn.begin_nested()
        try:
            yield
        except BaseException:
            nested.rollback()
            self.failure = before
            raise
        else:
            nested.commit()


def postgresql_now(tx: Tx) -> int:
    """Read PostgreSQL's clock, in microseconds since the Unix epoch."""
    return cast("int", tx.scalar(f"SELECT {POSTGRESQL_CLOCK}"))


@lru_cache(maxsize=4096)
def sql(statement: str) -> sa.TextClause:
    """Return the text clause of a string, the same object each time."""
    return sa.text(statement)


def _json(records: Sequence[Sequence[Any]]) -> str:
    return msgspec.json.encode(records).decode()


@lru_cache(maxsize=1024)
def _insert_sql(
    table: sa.Table, names: tuple[str, ...], dialect: Dialect, on_conflict: str
) -> tuple[str, frozenset[int]]:
    """Return the statement, and which columns travel as arrays of bytes."""
    into = ", ".join(_quoted(table.c[name].name) for name in names)
    tail = " ON CONFLICT DO NOTHING" if on_conflict == "nothing" else ""
    head = f"INSERT INTO {_quoted(table.name)} ({into})"
    match dialect:
        case "postgresql":
            raw = [
                at
                for at, name in enumerate(names)
                if isinstance(table.c[name].type, sa.LargeBinary)
            ]
            values: list[str] = []
            for at, name in enumerate(names):
                place = at - sum(1 for each in raw if each < at)
                kind = _cast_type(table.c[name])
                values.append(f"c{at}" if at in raw else f"CAST(v->>{place} AS {kind})")
            sources = ["jsonb_array_elements(CAST(:rows AS jsonb))"]
            sources += [f"unnest(CAST(:c{at} AS bytea[]))" for at in raw]
            named = ", ".join(["v", *(f"c{at}" for at in raw)])
            rows = f"ROWS FROM ({', '.join(sources)}) AS r({named})"
            text = f"{head} SELECT {', '.join(values)} FROM {rows}{tail}"
            return text, frozenset(raw)
        case "sqlite":
            marks = ", ".join("?" * len(names))
            return f"{head} VALUES ({marks}){tail}", frozenset()
        case never:
            assert_never(never)


@lru_cache(maxsize=256)
def _update_sql(
    table: str,
    key: tuple[str, ...],
    columns: tuple[tuple[str, ColumnType], ...],
    dialect: Dialect,
) -> str:
    names = [name for name, _ in columns if name not in key]
    match dialect:
        case "postgresql":
            sets = ", ".join(f"{name} = b.{name}" for name in names)
            given = _rows_sql(dialect, "b", columns)
            match_ = " AND ".join(f"{table}.{name} = b.{name}" for name in key)
            return f"UPDATE {table} SET {sets} FROM {given} WHERE {match_}"
        case "sqlite":
            sets = ", ".join(f"{name} = ?" for name in names)
            match_ = " AND ".join(f"{name} = ?" for name in key)
            return f"UPDATE {table} SET {sets} WHERE {match_}"
        case never:
            assert_never(never)


@lru_cache(maxsize=1024)
def _rows_sql(
    dialect: Dialect, alias: str, columns: tuple[tuple[str, ColumnType], ...]
) -> str:
    unknown = [name for name, kind in columns if kind not in _POSTGRESQL_TYPES]
    if unknown:
        raise InvariantViolated(
            f"rows {alias!r} carry {unknown}, which JSON cannot: insert them by"
            " Tx.insert"
        )
    match dialect:
        case "postgresql":
            fields = ", ".join(
                f"CAST(v->>{at} AS {_POSTGRESQL_TYPES[kind]}) AS {name}"
                for at, (name, kind) in enumerate(columns)
            )
            # OFFSET 0 keeps the planner from working each field out where it is used.
            return (
                f" (SELECT {fields} FROM jsonb_array_elements("
                f"CAST(:{alias}_rows AS jsonb)) AS v OFFSET 0) AS {alias}"
            )
        case "sqlite":
            fields = ", ".join(
                f"json_extract(value, '$[{at}]') AS {name}"
                for at, (name, _) in enumerate(columns)
            )
            return f" (SELECT {fields} FROM json_each(:{alias}_rows)) AS {alias}"
        case never:
            assert_never(never)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cast_type(column: sa.Column[Any]) -> str:
    kind = column.type
    match kind:
        case sa.BigInteger():
            return "bigint"
        case sa.SmallInteger():
            return "smallint"
        case sa.Integer():
            return "integer"
        case sa.Boolean():
            return "boolean"
        case sa.LargeBinary():
            return "bytea"
        case sa.Float():
            return "double precision"
        case sa.String():
            return "text"
        case _:
            raise InvariantViolated(
                f"column {column} has type {kind!r}, which Tx.insert cannot carry"
            )
