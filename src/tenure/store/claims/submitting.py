"""Submit: put work into its lane, in whatever transaction the caller has.

A lane row is neither read nor written: a submit can never wait for a claim, and a
caller's long transaction can never hold up a lane. Ordered lanes are the exception that
the order itself asks for: their sequence is taken under the queue's own lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenure.errors import InvariantViolated
from tenure.ids import LaneId, TenantId, WorkId
from tenure.store import schema
from tenure.store.claims import ordering

if TYPE_CHECKING:
    from tenure.store.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWork:
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


def submit(tx: Tx, rows: Sequence[NewWork]) -> None:
    """Insert work rows, due or later by this database's clock.

    Ids are the caller's, so an unknown COMMIT is asked again with the same rows.
    Raises IntegrityError (of SQLAlchemy) when an id exists, and InvariantViolated for a
    row that is both asleep and ordered: the head of its line would never be woken.
    """
    if not rows:
        return
    if any(row.asleep and row.order_key is not None for row in rows):
        raise InvariantViolated("work in an ordered lane cannot be submitted asleep")
    places = _stand_in_line(tx, rows)
    tx.insert(
        schema.work,
        [_row(row, *places.get(row.id, (None, True)), tx.now) for row in rows],
    )


def _stand_in_line(
    tx: Tx, rows: Sequence[NewWork]
) -> dict[WorkId, tuple[int | None, bool]]:
    """Give each ordered row its sequence and say whether it is in front."""
    ordered = [(row, row.order_key) for row in rows if row.order_key is not None]
    if not ordered:
        return {}
    counts = Counter((row.lane, key) for row, key in ordered)
    following = ordering.take_sequences(tx, counts)
    taken = ordering.fronts(tx, counts).keys()
    free = counts.keys() - taken
    places: dict[WorkId, tuple[int | None, bool]] = {}
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


def _row(
    row: NewWork,
    sequence: int | None,
    front: bool,  # noqa: FBT001 - unpacked from the line's place
    now: int,
) -> dict[str, object]:
    due_at = None if row.asleep or not front else row.due_at or now
    phase = "asleep" if due_at is None else "due" if due_at <= now else "later"
    return {
        "id": row.id,
        "lane": row.lane,
        "kind": row.kind,
        "tenant": row.tenant,
        "subject": row.subject,
        "state": "ready",
        "phase": phase,
        "priority": row.priority,
        "due_at": due_at,
        "order_key": row.order_key,
        "sequence": sequence,
        "trigger": row.trigger,
        "reason": None if front else "head of line",
        "created_at": now,
    }
