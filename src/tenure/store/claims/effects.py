"""What a kind adds to a settlement's transaction: evidence and effects, as values.

A kind never writes by itself while rows are settled. It says what is to be written, set
by set, and the settle runs it in the same commit, after the kernel's own rows: so an
effect of an attempt that no longer holds its claim cannot exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, assert_never

import msgspec

from tenure.kernel.commands import Answer, Settlement
from tenure.kernel.states import Work

if TYPE_CHECKING:
    import sqlalchemy as sa

    from tenure.store.tx import ColumnType, Params, Statement, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One statement (text or SQLAlchemy Core) with its parameters."""

    stmt: Statement
    params: Params = None


class Insert(msgspec.Struct, frozen=True, kw_only=True):
    """Rows for one table, each with the values of `names`.

    `ignore` leaves out rows whose key exists.
    """

    table: sa.Table
    names: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    ignore: bool = False


class Over(msgspec.Struct, frozen=True, kw_only=True):
    """One statement over a set of records, which stand as `b` where its text has `{b}`."""

    stmt: str
    columns: Mapping[str, ColumnType]
    records: Sequence[tuple[Any, ...]]


Effect = Write | Insert | Over


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """One settlement with what became of it.

    `before` is the row under its lock; `after` is the row as written, None when the
    settlement did not change it. `attempt` tells whether its attempt row is this
    settlement's (inserted or completed), so that evidence has something to hang on.
    """

    settlement: Settlement
    answer: Answer
    before: Work
    after: Work | None
    attempt: bool


class KindSql(Protocol):
    """What settle must know of a kind."""

    @property
    def late_success(self) -> bool:
        """Whether a lost claim's success still counts (deliveries: yes)."""
        ...

    def evidence(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """Return inserts keyed by (work, claim), late answers included."""
        ...

    def effects(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """Return writes for settlements that changed their row by their own claim."""
        ...


def perform(tx: Tx, effects: Sequence[Effect]) -> None:
    """Run effects in their order."""
    for effect in effects:
        match effect:
            case Write():
                tx.run(effect.stmt, effect.params)
            case Insert():
                conflict = "nothing" if effect.ignore else "error"
                tx.insert_records(
                    effect.table, effect.names, effect.rows, on_conflict=conflict
                )
            case Over():
                given, params = tx.rows("b", effect.columns, effect.records)
                tx.run(effect.stmt.replace("{b}", given), params)
            case _:
                assert_never(effect)
