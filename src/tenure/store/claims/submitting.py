"""Submit: put work into its lane, in whatever transaction the caller has.

A lane row is neither read nor written: a submit can never wait for a claim, and a
caller's long transaction can never hold up a lane. Ordered lanes are the exception that
the order itself asks for: their sequence is taken under the queue's own lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from tenure.errors import InvariantViolated
from tenure.ids import LaneId, TenantId, WorkId
from tenure.store import schema
from tenure.store.claims import ordering
from tenure.store.claims.bearing import bear

if TYPE_CHECKING:
    from tenure.kernel.states import Work
    from tenure.store.claims.bearing import Birth
    from tenure.store.claims.taking import Claimed
    from tenure.store.tx import Tx


class NewWork(msgspec.Struct, frozen=True, kw_only=True):
    """What must happen. `due_at` is µs since the epoch; None is now.

    `order_key` is given for ordered lanes only; `asleep` rows wait for a wake.
    """

    id: WorkId
    lane: LaneId
    kind: str
    tenant: TenantId
    subject: str
    priority: int = 2
    due_at: int | None = None
    asleep: bool = False
    order_key: str | None = None
    trigger: int = 0


_Places: TypeAlias = "dict[WorkId, tuple[int | None, bool]]"
"""The sequence of rows in ordered lanes, and whether each is in front."""
_NOWHERE: Final = (None, True)
_COLUMNS: Final = (
    "id",
    "lane",
    "kind",
    "tenant",
    "subject",
    "state",
    "phase",
    "priority",
    "due_at",
    "trigger",
    "created_at",
)
_LINE_COLUMNS: Final = ("order_key", "sequence", "reason")
_BORN_COLUMNS: Final = ("claim", "claimed_by", "claimed_at", "deadline_at")


def submit(
    tx: Tx, rows: Sequence[NewWork], *, birth: Birth | None = None
) -> list[Claimed]:
    """Insert work rows, due or later by this database's clock.

    With `birth`, rows that its node may try at once are inserted as that node's claims,
    which are returned: they are held from the commit on.

    Ids are the caller's, so an unknown COMMIT is asked again with the same rows.
    Raises IntegrityError (of SQLAlchemy) when an id exists, and InvariantViolated for a
    row that is both asleep and ordered: the head of its line would never be woken.
    """
    if not rows:
        return []
    if any(row.asleep and row.order_key is not None for row in rows):
        raise InvariantViolated("work in an ordered lane cannot be submitted asleep")
    born = [] if birth is None else bear(tx, rows, birth)
    if born:
        names = (*_COLUMNS, *_BORN_COLUMNS)
        tx.insert_records(schema.work, names, [_born(each.work) for each in born])
        taken = {each.work.id for each in born}
        rows = [row for row in rows if row.id not in taken]
    places = _stand_in_line(tx, rows)
    now = tx.now
    if places:
        in_line = [(*_row(row, now, places), *_place(row, places)) for row in rows]
        tx.insert_records(schema.work, (*_COLUMNS, *_LINE_COLUMNS), in_line)
    else:
        plain = [_row(row, now, places) for row in rows]
        tx.insert_records(schema.work, _COLUMNS, plain)
    return born


_born: Final[Callable[[Work], tuple[Any, ...]]] = attrgetter(*_COLUMNS, *_BORN_COLUMNS)


def _stand_in_line(tx: Tx, rows: Sequence[NewWork]) -> _Places:
    """Give each ordered row its sequence and say whether it is in front."""
    ordered = [(row, row.order_key) for row in rows if row.order_key is not None]
    if not ordered:
        return {}
    counts = Counter((row.lane, key) for row, key in ordered)
    following = ordering.take_sequences(tx, counts)
    taken = ordering.fronts(tx, counts).keys()
    free = counts.keys() - taken
    places: _Places = {}
    lines: list[Mapping[str, object]] = []
    for row, key in ordered:
        head = (row.lane, key)
        places[row.id] = (following[head], head in free)
        lines.append(
            {
                "lane": row.lane,
                "order_key": key,
                "sequence": following[head],
                "work": row.id,
                "not_before": row.due_at,
            }
        )
        following[head] += 1
        free.discard(head)
    ordering.join_lines(tx, lines)
    return places


def _row(row: NewWork, now: int, places: _Places) -> tuple[Any, ...]:
    """Return the values of `_COLUMNS`."""
    front = not places or places.get(row.id, _NOWHERE)[1]
    due_at = None if row.asleep or not front else row.due_at or now
    return (
        row.id,
        row.lane,
        row.kind,
        row.tenant,
        row.subject,
        "ready",
        "asleep" if due_at is None else "due" if due_at <= now else "later",
        row.priority,
        due_at,
        row.trigger,
        now,
    )


def _place(row: NewWork, places: _Places) -> tuple[str | None, int | None, str | None]:
    """Return the values of `_LINE_COLUMNS`."""
    sequence, front = places.get(row.id, _NOWHERE)
    return (row.order_key, sequence, None if front else "head of line")
